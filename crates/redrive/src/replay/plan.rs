//! What a replay would do: its letters in replay order, and what an operator should know about them.

use std::collections::HashMap;
use std::ops::Range;

use redrive_core::Time;
use redrive_core::time::millis;

use super::fair::{FairOrder, OrderedLetter};
use super::groups::TouchedGroups;
use super::taken::{TakenCounts, TakenLetters};
use crate::dispatch::KeySuccesses;
use crate::dispatch::key_successes::LaterSuccess;
use crate::engine::letter::REPLAYS_MAX;
use crate::engine::position::PartitionOffset;
use crate::engine::{DeliveryOrder, Letter};
use crate::handle::PipelineHandle;
use crate::letters::{SelectError, Selection};

/// Superseded keys that are listed.
const KEYS_SHOWN_MAX: usize = 100;
/// Longer keys are cut for display.
const KEY_BYTES_MAX: usize = 200;

/// What to do with letters that have an attempt whose end is unknown, so that the receiver may have acted on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ambiguous {
    /// A replay that has such letters needs a decision first.
    #[default]
    Ask,
    /// They are replayed, with the same message id.
    Ok,
    /// They stay open.
    Skip,
}

impl Ambiguous {
    /// The decision with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ok" => Some(Self::Ok),
            "skip" => Some(Self::Skip),
            _ => None,
        }
    }
}

/// Options for freezing a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct PlanOptions {
    /// Include letters that were replayed three times.
    pub force: bool,
    /// What to do with letters that have an attempt whose end is unknown.
    pub ambiguous: Ambiguous,
    /// Exclude letters whose key has had a later success.
    pub skip_superseded: bool,
    /// Leaves out letters with a key of which this process does not know whether it has had a later success.
    pub skip_unjudged: bool,
    /// Leaves out letters that the receiver may have applied and forgotten; see [`Plan::beyond_ledger`].
    pub skip_beyond_ledger: bool,
    /// So many letters go first, and are meant to say something about the others: they are of as many groups as there are.
    pub canary: u64,
    /// Takes no more letters of one tenant than this, with those of the selection that wait in other jobs; the others stay
    /// open. Letters that a job skips are not counted.
    pub tenant_max: Option<u64>,
}

/// A frozen selection and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    /// The letters in replay order: round-robin by tenant.
    pub ids: Vec<u64>,
    /// Of these, letters that were replayed three times before, which a job skips unless it is forced.
    pub too_often: u64,
    /// Letters that go and have an attempt whose end is unknown; with [`Ambiguous::Skip`] those that do not go for it.
    pub ambiguous: u64,
    /// Of these, letters whose message got a new id from an edit, so that a receiver that remembers ids applies it.
    pub ambiguous_new_id: u64,
    /// Letters that go and were first attempted longer ago than the receiver remembers ids: if that attempt was applied, the
    /// replay is applied too. 0 where the horizon is not known.
    pub beyond_ledger: u64,
    /// Letters that go and whose key has had a later success; with [`PlanOptions::skip_superseded`] those that do not go for
    /// it.
    pub superseded: Superseded,
    /// Letters that are excluded because their tenant has more than [`PlanOptions::tenant_max`].
    pub beyond_quota: u64,
    /// Letters by tenant, the most first, if there is more than one tenant.
    pub tenants: Vec<(String, u64)>,
    /// When the oldest of the letters died.
    pub oldest: Option<Time>,
    /// The groups of the letters.
    pub groups: TouchedGroups,
    /// Letters with a key whose numbers are made from their content, where keys are ordered: what a key's order is among
    /// them is not known.
    pub unordered: u64,
    /// Letters that are selected and wait in other jobs; they are not among the ids.
    pub taken: TakenCounts,
}

/// Letters whose key has had a later success: replaying them would overwrite newer state.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Superseded {
    /// The number of such keys.
    pub keys: u64,
    /// The number of such letters.
    pub letters: u64,
    /// The keys with their letters, the most first, at most a hundred.
    pub shown: Vec<(String, u64)>,
    /// From when on this process knows successes; `None` if it has not begun to deliver.
    pub since: Option<Time>,
    /// Letters with a key whose message is older than that, or of a part of the pipeline that other processes deliver or
    /// delivered then: whether it has had a later success is not known for all of the time.
    pub older_letters: u64,
    /// Spans since then in which successes are unknown because a process was killed, as far as a letter with a key is
    /// older.
    pub gaps: Vec<Range<Time>>,
}

impl Plan {
    /// Freezes a selection and examines each letter. [`super::Replays::plan`] also excludes letters taken by other
    /// jobs.
    pub async fn make(
        handle: &PipelineHandle,
        selection: &Selection,
        options: PlanOptions,
    ) -> Result<Self, SelectError> {
        Self::make_beside(handle, selection, options, &TakenLetters::default()).await
    }

    /// Like [`Self::make`], excluding letters taken by other jobs.
    pub(super) async fn make_beside(
        handle: &PipelineHandle,
        selection: &Selection,
        options: PlanOptions,
        taken: &TakenLetters,
    ) -> Result<Self, SelectError> {
        let successes = handle.key_successes().await?;
        let mut making = Making::new(successes, options, handle.ordering() == DeliveryOrder::Key, taken);
        let remembered = |horizon| handle.now().as_millis().saturating_sub(millis(horizon));
        making.remembered_from = handle.ledger_horizon().map(remembered).map(Time::from_millis);
        if options.tenant_max.is_some() && !taken.is_empty() {
            // Letters of other jobs are on their way, so they count before any of these does.
            let held = |letter: &Letter| {
                if taken.job_of(letter.id).is_some() {
                    making.order.add_going(letter.message.tenant());
                }
            };
            selection.each(handle, held).await?;
        }
        selection.each(handle, |letter| making.add(letter)).await?;
        Ok(making.finish())
    }

    /// The number of letters that would be put back.
    pub fn would_replay(&self) -> u64 {
        self.ids.len() as u64 - self.too_often
    }
}

/// A plan in the making, while its letters are examined.
struct Making<'a> {
    keyed: bool,
    taken: &'a TakenLetters,
    successes: KeySuccesses,
    options: PlanOptions,
    order: FairOrder,
    plan: Plan,
    superseded: HashMap<Vec<u8>, u64>,
    /// Letters with a key whose message is older than the known successes.
    older_letters: u64,
    /// When the oldest message of a letter with a key was created.
    oldest_with_key: Option<Time>,
    /// The groups of the letters that would be put back.
    groups: TouchedGroups,
    /// The receiver remembers the ids that it applied since this time.
    remembered_from: Option<Time>,
}

impl<'a> Making<'a> {
    fn new(successes: KeySuccesses, options: PlanOptions, keyed: bool, taken: &'a TakenLetters) -> Self {
        let (order, plan) = (FairOrder::new(keyed), Plan::default());
        Self {
            keyed,
            taken,
            successes,
            options,
            order,
            plan,
            superseded: HashMap::new(),
            older_letters: 0,
            oldest_with_key: None,
            groups: TouchedGroups::default(),
            remembered_from: None,
        }
    }

    /// What is counted of letters that go is counted of those alone that really go: a letter that stays open, for whatever
    /// reason, is nobody's decision now.
    fn add(&mut self, letter: &Letter) {
        if let Some(job) = self.taken.job_of(letter.id) {
            self.plan.taken.add(job);
            return;
        }
        let is_ambiguous = letter.history.attempts().iter().any(|attempt| attempt.ambiguous);
        if is_ambiguous && self.options.ambiguous == Ambiguous::Skip {
            self.count_ambiguous(letter);
            return;
        }
        let key = letter.message.key();
        let created = letter.message.created();
        // No more keys than successes are known of.
        let later = key.map(|key| self.successes.later(key, letter.id, created));
        if later == Some(LaterSuccess::Unknown) && self.options.skip_unjudged {
            return;
        }
        let superseded = key.filter(|_| later == Some(LaterSuccess::Yes));
        if let Some(key) = superseded.filter(|_| self.options.skip_superseded) {
            self.count_superseded(key);
            return;
        }
        let first = letter.meta.first_failed.unwrap_or(letter.dead_at);
        let is_beyond_ledger = self.remembered_from.is_some_and(|from| first < from);
        if is_beyond_ledger && self.options.skip_beyond_ledger {
            self.plan.beyond_ledger += 1;
            return;
        }
        let tenant = letter.message.tenant();
        let goes = self.options.force || letter.meta.replays < REPLAYS_MAX;
        if goes && self.options.tenant_max.is_some_and(|most| self.order.going_of(tenant) >= most) {
            self.plan.beyond_quota += 1;
            return;
        }
        if goes {
            if is_ambiguous {
                self.count_ambiguous(letter);
            }
            if let Some(key) = superseded {
                self.count_superseded(key);
            }
            if key.is_some() {
                self.older_letters += u64::from(self.successes.is_older(letter.id, created));
                self.oldest_with_key = self.oldest_with_key.into_iter().chain([created]).min();
            }
            self.plan.beyond_ledger += u64::from(is_beyond_ledger);
        } else {
            self.plan.too_often += 1;
        }
        self.plan.oldest = self.plan.oldest.into_iter().chain([letter.dead_at]).min();
        self.groups.add(letter.group.group);
        let is_unordered = self.keyed && key.is_some() && PartitionOffset::of(letter.id).is_made();
        self.plan.unordered += u64::from(is_unordered);
        self.order.push(OrderedLetter { id: letter.id, tenant, key, group: letter.group.group, goes });
    }

    fn count_ambiguous(&mut self, letter: &Letter) {
        self.plan.ambiguous += 1;
        self.plan.ambiguous_new_id += u64::from(letter.accepted_id() != letter.message.id());
    }

    fn count_superseded(&mut self, key: &[u8]) {
        let shown = &key[..key.len().min(KEY_BYTES_MAX)];
        *self.superseded.entry(shown.to_vec()).or_default() += 1;
    }

    fn finish(self) -> Plan {
        let letters = self.superseded.values().sum();
        let keys = self.superseded.len() as u64;
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let mut shown: Vec<(String, u64)> =
            self.superseded.iter().map(|(key, letters)| (text(key), *letters)).collect();
        shown.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        shown.truncate(KEYS_SHOWN_MAX);
        let (since, older_letters) = (self.successes.since(), self.older_letters);
        let matters = |gap: &&Range<Time>| self.oldest_with_key.is_some_and(|oldest| oldest < gap.end);
        let gaps = self.successes.gaps().iter().filter(matters).cloned().collect();
        let superseded = Superseded { keys, letters, shown, since, older_letters, gaps };
        let (tenants, groups) = (self.order.tenants(), self.groups);
        let ids = self.order.into_ids(self.options.canary);
        Plan { ids, superseded, tenants, groups, ..self.plan }
    }
}
