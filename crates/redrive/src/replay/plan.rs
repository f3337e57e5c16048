//! What a replay would do: its letters in replay order, and what an operator should know about them.

use std::collections::HashMap;
use std::ops::Range;

use redrive_core::Time;
use redrive_core::time::millis;

use super::fair::FairOrder;
use super::groups::TouchedGroups;
use super::taken::{TakenCounts, TakenLetters};
use crate::dispatch::KeySuccesses;
use crate::engine::letter::REPLAYS_MAX;
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
pub struct PlanOptions {
    /// Include letters that were replayed three times.
    pub force: bool,
    /// What to do with letters that have an attempt whose end is unknown.
    pub ambiguous: Ambiguous,
    /// Exclude letters whose key has had a later success.
    pub skip_superseded: bool,
    /// Exclude letters that the receiver may have applied and forgotten; see [`Plan::beyond_ledger`].
    pub skip_beyond_ledger: bool,
    /// The most letters of one tenant; the others stay open.
    pub tenant_max: Option<u64>,
}

/// A frozen selection and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    /// The letters in replay order: round-robin by tenant.
    pub ids: Vec<u64>,
    /// Of these, letters that were replayed three times before, which a job skips unless it is forced.
    pub too_often: u64,
    /// Letters with an attempt whose end is unknown; with [`Ambiguous::Skip`] they are not among the ids.
    pub ambiguous: u64,
    /// Of these, letters whose message got a new id from an edit, so that a receiver that remembers ids applies it.
    pub ambiguous_new_id: u64,
    /// Letters that were first attempted longer ago than the receiver remembers ids: if that attempt was applied, the
    /// replay is applied as well. 0 if the horizon is unknown.
    pub beyond_ledger: u64,
    /// Letters whose key has had a later success.
    pub superseded: Superseded,
    /// Letters that are excluded because their tenant has more than [`PlanOptions::tenant_max`].
    pub beyond_quota: u64,
    /// Letters by tenant, the most first, if there is more than one tenant.
    pub tenants: Vec<(String, u64)>,
    /// When the oldest of the letters died.
    pub oldest: Option<Time>,
    /// The groups of the letters.
    pub groups: TouchedGroups,
    /// Selected letters that are taken by other jobs; they are not among the ids.
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
    /// Letters with a key whose message is older than that, so that an earlier success is unknown.
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
            self.older_letters += u64::from(self.successes.since().is_none_or(|since| created < since));
            self.oldest_with_key = self.oldest_with_key.into_iter().chain([created]).min();
        }
        // Bounded by the number of keys with a known success.
        if let Some(key) = key.filter(|key| self.successes.is_superseded(key, letter.id)) {
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
