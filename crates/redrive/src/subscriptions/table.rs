//! The table in memory. Every change gives the entries that make it durable and what there is to tell of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Time;

use super::change::{Change, Changed};
use super::decide::{self, Admission, Answer, Next, Purge};
use super::entry::{Entry, Fact};
use super::guard::{PurgeGuard, Stopped};
use super::record::{Cause, EndpointId, Record, Standing};
use super::seen::{GENERATION, Seen};
use super::stored::Stored;

/// How long a purge can be undone. After that the endpoint is called again if somebody still sends to it.
pub const UNDO_FOR: Duration = Duration::from_hours(30 * 24);
/// Flags and purges that are remembered. Beyond, endpoints are called as if nothing were known of them.
pub const RECORDS_MAX: usize = 1_000_000;
/// Stored subscriptions.
pub const STORED_MAX: usize = 500_000;

/// What a change brings with it.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub entries: Vec<Entry>,
    pub changes: Vec<Changed>,
}

/// One row of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub endpoint: EndpointId,
    /// The id of the stored subscription, if it is one.
    pub id: Option<String>,
    /// `None`: it is active.
    pub record: Option<Record>,
    pub stored: Option<Arc<Stored>>,
}

impl Listed {
    pub fn standing(&self) -> Standing {
        self.record.as_ref().map_or(Standing::Active, |record| record.standing)
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    purge: Purge,
    records: BTreeMap<EndpointId, Record>,
    flagged: u64,
    stored: BTreeMap<String, Arc<Stored>>,
    /// The stored subscription of each endpoint; the latest, if there are several.
    ids: BTreeMap<EndpointId, String>,
    guard: PurgeGuard,
    seen: Seen,
    /// The last estimate of active endpoints that is durable, and when it was made.
    estimated: (u64, Time),
}

impl Table {
    pub(super) fn new(purge: Purge) -> Self {
        Self { purge, ..Self::default() }
    }

    pub(super) fn purge_mode(&self) -> Purge {
        self.purge
    }

    /// Takes over an entry of the store. Those that mean nothing here are left out.
    pub(super) fn apply(&mut self, entry: &Entry) {
        match Fact::of(entry) {
            Some(Fact::Endpoint(id, record)) => {
                let purged =
                    record.as_ref().filter(|it| it.standing == Standing::Purged && it.cause == Cause::Gone);
                if let Some(purged) = purged.filter(|purged| self.records.get(&id) != Some(purged)) {
                    self.guard.count(purged.at);
                }
                self.set(id, record);
            }
            Some(Fact::Stored(id, Some(stored))) => self.put(id, *stored),
            Some(Fact::Stored(id, None)) => drop(self.take(&id)),
            Some(Fact::Guard(stopped)) => self.guard.set_stopped(stopped),
            Some(Fact::Active(count, at)) => self.estimated = (count, at),
            None => {}
        }
    }

    /// Everything, as few entries as possible.
    pub(super) fn snapshot(&self) -> Vec<Entry> {
        let records = self.records.iter().map(|(id, record)| Fact::Endpoint(*id, Some(record.clone())));
        let stored = self.stored.iter();
        let stored = stored.map(|(id, stored)| Fact::Stored(id.clone(), Some(Box::new((**stored).clone()))));
        let guard = self.guard.stopped().map(|stopped| Fact::Guard(Some(stopped)));
        let active = Fact::Active(self.estimated.0, self.estimated.1);
        records.chain(stored).chain(guard).chain([active]).map(|fact| fact.entry()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len() + self.stored.len()
    }

    fn set(&mut self, id: EndpointId, record: Option<Record>) {
        let is_flag = |record: Option<&Record>| {
            u64::from(record.is_some_and(|record| record.standing == Standing::Flagged))
        };
        self.flagged += is_flag(record.as_ref());
        let before = match record {
            Some(record) => self.records.insert(id, record),
            None => self.records.remove(&id),
        };
        self.flagged -= is_flag(before.as_ref());
    }

    fn put(&mut self, id: String, stored: Stored) {
        drop(self.take(&id));
        self.ids.insert(stored.endpoint, id.clone());
        self.stored.insert(id, Arc::new(stored));
    }

    fn take(&mut self, id: &str) -> Option<Arc<Stored>> {
        let stored = self.stored.remove(id)?;
        if self.ids.get(&stored.endpoint).is_some_and(|own| own == id) {
            self.ids.remove(&stored.endpoint);
        }
        Some(stored)
    }

    pub(super) fn admit(&self, id: EndpointId, registered: Option<Time>) -> Admission {
        decide::admit(self.records.get(&id), registered)
    }

    /// It registered after what is known of it.
    pub(super) fn returned(&mut self, id: EndpointId, now: Time) -> Effects {
        let mut effects = Effects::default();
        self.change(id, None, Change::Registered, now, &mut effects);
        effects
    }

    pub(super) fn answered(&mut self, id: EndpointId, answer: Answer<'_>, now: Time) -> Effects {
        let mut effects = Effects::default();
        if answer == Answer::Delivered && self.seen.see(id, now) {
            self.estimate(now, &mut effects);
        }
        match decide::decide(self.records.get(&id), answer, self.purge, now) {
            Next::Keep => {}
            Next::Clear => self.change(id, None, Change::Delivered, now, &mut effects),
            Next::Flag(record) => self.change(id, Some(record), Change::Flagged, now, &mut effects),
            Next::Purge(record) => self.try_purge(id, record, now, &mut effects),
        }
        effects
    }

    /// Purges, unless the guard stops it; then the endpoint is flagged.
    fn try_purge(&mut self, id: EndpointId, record: Record, now: Time, effects: &mut Effects) {
        let was_stopped = self.guard.stopped().is_some();
        if self.guard.allows(self.active(now), now) {
            self.guard.count(now);
            self.change(id, Some(record), Change::Purged, now, effects);
            return;
        }
        if !was_stopped && let Some(stopped) = self.guard.stopped() {
            effects.entries.push(Fact::Guard(Some(stopped)).entry());
            effects.changes.push(Changed::of_all(now, Change::PurgingStopped(stopped)));
        }
        if !self.records.contains_key(&id) {
            let record = Record { standing: Standing::Flagged, ..record };
            self.change(id, Some(record), Change::Flagged, now, effects);
        }
    }

    /// Flags or purges for a person. The guard has no say in it.
    pub(super) fn mark(&mut self, id: EndpointId, record: Record, now: Time) -> Effects {
        let mut effects = Effects::default();
        let change = if record.standing == Standing::Purged { Change::Purged } else { Change::Flagged };
        self.change(id, Some(record), change, now, &mut effects);
        effects
    }

    /// Takes a flag or a purge back. `None` if there is none.
    pub(super) fn undo(&mut self, id: EndpointId, now: Time) -> Option<Effects> {
        self.records.contains_key(&id).then(|| {
            let mut effects = Effects::default();
            self.change(id, None, Change::Undone, now, &mut effects);
            effects
        })
    }

    /// Endpoints purged at `since` or later.
    pub(super) fn purged_since(&self, since: Time) -> Vec<EndpointId> {
        let purged = self.records.iter().filter(|(_, it)| it.standing == Standing::Purged && it.at >= since);
        purged.map(|(id, _)| *id).collect()
    }

    /// `None` if there is no room for another one.
    pub(super) fn register(&mut self, id: &str, stored: Stored, now: Time) -> Option<Effects> {
        if self.stored.len() >= STORED_MAX && !self.stored.contains_key(id) {
            return None;
        }
        let (mut effects, endpoint) = (Effects::default(), stored.endpoint);
        effects.entries.push(Fact::Stored(id.to_owned(), Some(Box::new(stored.clone()))).entry());
        self.put(id.to_owned(), stored);
        if self.records.contains_key(&endpoint) {
            self.change(endpoint, None, Change::Registered, now, &mut effects);
        } else {
            effects.changes.push(self.changed(endpoint, None, Change::Registered, now));
        }
        Some(effects)
    }

    /// `None` if there is none of this id.
    pub(super) fn remove(&mut self, id: &str, now: Time) -> Option<Effects> {
        let stored = self.take(id)?;
        let entries = vec![Fact::Stored(id.to_owned(), None).entry()];
        let changed = self.changed(stored.endpoint, None, Change::Removed, now);
        Some(Effects { entries, changes: vec![Changed { id: Some(id.to_owned()), ..changed }] })
    }

    /// Lets purging go on. `None` if nothing stopped it.
    pub(super) fn resume(&mut self, now: Time) -> Option<Effects> {
        self.guard.stopped()?;
        self.guard.set_stopped(None);
        let entries = vec![Fact::Guard(None).entry()];
        Some(Effects { entries, changes: vec![Changed::of_all(now, Change::PurgingResumed)] })
    }

    /// Forgets flags and purges that are older than the time for undoing.
    pub(super) fn sweep(&mut self, now: Time) -> Effects {
        let old = self.records.iter().filter(|(_, it)| now.since(it.at) > UNDO_FOR);
        let old: Vec<_> = old.map(|(id, _)| *id).collect();
        let mut effects = Effects::default();
        for id in old {
            self.set(id, None);
            effects.entries.push(Fact::Endpoint(id, None).entry());
        }
        effects
    }

    fn change(
        &mut self,
        id: EndpointId,
        record: Option<Record>,
        change: Change,
        now: Time,
        effects: &mut Effects,
    ) {
        // A full table does not grow; what is not remembered is asked anew.
        if record.is_some() && self.records.len() >= RECORDS_MAX && !self.records.contains_key(&id) {
            return;
        }
        self.set(id, record.clone());
        effects.entries.push(Fact::Endpoint(id, record.clone()).entry());
        effects.changes.push(self.changed(id, record, change, now));
    }

    fn changed(&self, endpoint: EndpointId, record: Option<Record>, change: Change, at: Time) -> Changed {
        Changed { at, endpoint: Some(endpoint), id: self.ids.get(&endpoint).cloned(), change, record }
    }

    /// Makes the estimate durable when it has grown by a quarter, so that a restart does not forget how large 2 % is.
    fn estimate(&mut self, now: Time, effects: &mut Effects) {
        let estimate = self.seen.estimate();
        let (before, at) = self.estimated;
        let is_old = now.since(at) >= GENERATION;
        if estimate > before + before / 4 || (is_old && estimate != before) {
            self.estimated = (estimate, now);
            effects.entries.push(Fact::Active(estimate, now).entry());
        }
    }

    /// About how many endpoints are active.
    pub(super) fn active(&self, now: Time) -> u64 {
        let (estimated, at) = self.estimated;
        let estimated = if now.since(at) < 2 * GENERATION { estimated } else { 0 };
        self.seen.estimate().max(estimated).max(self.stored.len() as u64)
    }

    pub(super) fn flagged(&self) -> u64 {
        self.flagged
    }

    pub(super) fn purged(&self) -> u64 {
        self.records.len() as u64 - self.flagged
    }

    pub(super) fn stopped(&self) -> Option<Stopped> {
        self.guard.stopped()
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= RECORDS_MAX
    }

    pub(super) fn stored(&self, id: &str) -> Option<Arc<Stored>> {
        self.stored.get(id).cloned()
    }

    pub(super) fn stored_count(&self) -> usize {
        self.stored.len()
    }

    /// An endpoint by its hash or by the id of its stored subscription.
    pub(super) fn find(&self, name: &str) -> Option<EndpointId> {
        let stored = self.stored.get(name).map(|stored| stored.endpoint);
        stored.or_else(|| name.parse().ok())
    }

    pub(super) fn show(&self, endpoint: EndpointId) -> Listed {
        let id = self.ids.get(&endpoint).cloned();
        let stored = id.as_deref().and_then(|id| self.stored(id));
        Listed { endpoint, id, record: self.records.get(&endpoint).cloned(), stored }
    }

    /// Stored subscriptions and whatever is flagged or purged, in the order of their hashes.
    pub(super) fn list(
        &self,
        standing: Option<Standing>,
        after: Option<EndpointId>,
        limit: usize,
    ) -> Vec<Listed> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = (after.map_or(Unbounded, Excluded), Unbounded);
        let fits = |it: &Standing| standing.is_none_or(|wanted| wanted == *it);
        let marked = self.records.range(from).filter(|(_, record)| fits(&record.standing));
        let mut found: Vec<EndpointId> = marked.take(limit).map(|(id, _)| *id).collect();
        if fits(&Standing::Active) {
            let active = self.ids.range(from).map(|(id, _)| *id);
            found.extend(active.filter(|id| !self.records.contains_key(id)).take(limit));
        }
        found.sort_unstable();
        found.into_iter().take(limit).map(|id| self.show(id)).collect()
    }

    /// How many stored subscriptions were made with each key.
    pub(super) fn keys(&self) -> BTreeMap<Option<String>, u64> {
        let mut keys = BTreeMap::new();
        self.stored.values().for_each(|stored| *keys.entry(stored.key.clone()).or_default() += 1);
        keys
    }
}
