//! What a replay would do, before it does anything: the letters in the order they would go, and what an operator should
//! know of them.

use std::collections::HashMap;
use std::ops::Range;

use redrive_core::Time;
use redrive_core::time::millis;

use super::fair::FairOrder;
use super::groups::TouchedGroups;
use super::taken::{TakenCounts, TakenLetters};
use crate::dispatch::KeySuccesses;
use crate::dispatch::key_successes::LaterSuccess;
use crate::engine::letter::REPLAYS_MAX;
use crate::engine::position::PartitionOffset;
use crate::engine::{DeliveryOrder, Letter};
use crate::handle::PipelineHandle;
use crate::letters::{SelectError, Selection};

/// Superseded keys that are named.
const KEYS_SHOWN_MAX: usize = 100;
/// A longer key is cut where it is shown.
const KEY_BYTES_MAX: usize = 200;

/// What to do with letters that have an attempt whose end is unknown: the receiver may have acted on it.
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
    /// The answer of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ok" => Some(Self::Ok),
            "skip" => Some(Self::Skip),
            _ => None,
        }
    }
}

/// How a selection is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct PlanOptions {
    /// Also letters that were replayed three times.
    pub force: bool,
    /// What to do with letters whose last attempt has no known end.
    pub ambiguous: Ambiguous,
    /// Leaves out letters whose key has had a later success.
    pub skip_superseded: bool,
    /// Leaves out letters with a key of which this process does not know whether it has had a later success.
    pub skip_unjudged: bool,
    /// Leaves out letters that the receiver may have applied and forgotten; see [`Plan::beyond_ledger`].
    pub skip_beyond_ledger: bool,
    /// Takes no more letters of one tenant than this; the others stay open.
    pub tenant_max: Option<u64>,
}

/// A frozen selection and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    /// In the order they would go: one of each tenant in turn.
    pub ids: Vec<u64>,
    /// Of these: replayed three times before, so that a job skips them unless it is forced.
    pub too_often: u64,
    /// Letters with an attempt whose end is unknown; with [`Ambiguous::Skip`] they are not among the ids.
    pub ambiguous: u64,
    /// Of these: an edit has given the message a new id, so that a receiver that remembers ids applies it.
    pub ambiguous_new_id: u64,
    /// Letters that were first attempted longer ago than the receiver remembers ids: if that attempt was applied, the
    /// replay is applied too. 0 where the horizon is not known.
    pub beyond_ledger: u64,
    /// Letters whose key has had a later success.
    pub superseded: Superseded,
    /// Letters that are left out because their tenant has more than [`PlanOptions::tenant_max`].
    pub beyond_quota: u64,
    /// Letters by tenant, the most first, where there is more than one.
    pub tenants: Vec<(String, u64)>,
    /// When the oldest of them died.
    pub oldest: Option<Time>,
    /// The groups they belong to.
    pub groups: TouchedGroups,
    /// Letters with a key whose numbers are made from their content, where keys are ordered: what a key's order is among
    /// them is not known.
    pub unordered: u64,
    /// Letters that are selected and wait in other jobs; they are not among the ids.
    pub taken: TakenCounts,
}

/// Letters whose key has had a later success: replaying them writes old state over new.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Superseded {
    /// How many keys.
    pub keys: u64,
    /// How many letters.
    pub letters: u64,
    /// The keys with their letters, the most first, at most a hundred.
    pub shown: Vec<(String, u64)>,
    /// From when on successes are known to this process; `None` if it has not begun to deliver.
    pub since: Option<Time>,
    /// Letters with a key whose message is older than that, or of a part of the pipeline that other processes deliver or
    /// delivered then: whether it has had a later success is not known for all of the time.
    pub older_letters: u64,
    /// Times since then of which successes are not known either, if a letter with a key is older: a process was killed.
    pub gaps: Vec<Range<Time>>,
}

impl Plan {
    /// Freezes a selection and looks at each of its letters. [`super::Replays::plan`] also leaves out what waits in other
    /// jobs.
    pub async fn make(
        handle: &PipelineHandle,
        selection: &Selection,
        options: PlanOptions,
    ) -> Result<Self, SelectError> {
        Self::make_beside(handle, selection, options, &TakenLetters::default()).await
    }

    /// The same, beside jobs that have letters to put back.
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
        selection.each(handle, |letter| making.add(letter)).await?;
        Ok(making.finish())
    }

    /// Letters that would be put back.
    pub fn would_replay(&self) -> u64 {
        self.ids.len() as u64 - self.too_often
    }
}

/// A plan while its letters are looked at.
struct Making<'a> {
    keyed: bool,
    taken: &'a TakenLetters,
    successes: KeySuccesses,
    options: PlanOptions,
    order: FairOrder,
    plan: Plan,
    superseded: HashMap<Vec<u8>, u64>,
    /// Letters with a key that are older than what is known of successes.
    older_letters: u64,
    /// When the oldest message of a letter with a key was created.
    oldest_with_key: Option<Time>,
    /// Groups of the letters that would be put back.
    groups: TouchedGroups,
    /// The receiver remembers ids that it applied at this time or later.
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

    fn add(&mut self, letter: &Letter) {
        if let Some(job) = self.taken.job_of(letter.id) {
            self.plan.taken.add(job);
            return;
        }
        if letter.history.attempts().iter().any(|attempt| attempt.ambiguous) {
            self.plan.ambiguous += 1;
            self.plan.ambiguous_new_id += u64::from(letter.accepted_id() != letter.message.id());
            if self.options.ambiguous == Ambiguous::Skip {
                return;
            }
        }
        let key = letter.message.key();
        if key.is_some() {
            let created = letter.message.created();
            self.older_letters += u64::from(self.successes.is_older(letter.id, created));
            self.oldest_with_key = self.oldest_with_key.into_iter().chain([created]).min();
        }
        // No more keys than successes are known of.
        let created = letter.message.created();
        let later = key.map(|key| self.successes.later(key, letter.id, created));
        if later == Some(LaterSuccess::Unknown) && self.options.skip_unjudged {
            return;
        }
        if let Some(key) = key.filter(|_| later == Some(LaterSuccess::Yes)) {
            let shown = &key[..key.len().min(KEY_BYTES_MAX)];
            *self.superseded.entry(shown.to_vec()).or_default() += 1;
            if self.options.skip_superseded {
                return;
            }
        }
        let first = letter.meta.first_failed.unwrap_or(letter.dead_at);
        if self.remembered_from.is_some_and(|from| first < from) {
            self.plan.beyond_ledger += 1;
            if self.options.skip_beyond_ledger {
                return;
            }
        }
        let tenant = letter.message.tenant();
        if self.options.tenant_max.is_some_and(|most| self.order.letters_of(tenant) >= most) {
            self.plan.beyond_quota += 1;
            return;
        }
        self.plan.too_often += u64::from(!self.options.force && letter.meta.replays >= REPLAYS_MAX);
        self.plan.oldest = self.plan.oldest.into_iter().chain([letter.dead_at]).min();
        self.groups.add(letter.group.group);
        let is_unordered = self.keyed && key.is_some() && PartitionOffset::of(letter.id).is_made();
        self.plan.unordered += u64::from(is_unordered);
        self.order.push(letter.id, tenant, key);
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
        let (tenants, ids, groups) = (self.order.tenants(), self.order.into_ids(), self.groups);
        Plan { ids, superseded, tenants, groups, ..self.plan }
    }
}
