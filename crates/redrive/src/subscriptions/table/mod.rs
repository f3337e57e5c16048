//! The table in memory. Every change returns the entries that make it durable and the changes to report.

mod effects;
mod lose;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Time;

use super::change::{Change, Changed};
use super::decide::{self, Admission, Answer, Next, Purge};
use super::entry::{Entry, Fact};
use super::guard::{PurgeGuard, Stopped};
use super::recent::RecentCalls;
use super::record::{Cause, EndpointId, Record, SubscriptionState};
use super::records::Records;
use super::seen::{PurgedLately, Seen};
use super::stored::Stored;
use super::stored_index::StoredIndex;
use super::unannounced::{Announcement, AnnouncementKey, Unannounced};
pub(super) use effects::Effects;
pub use effects::Listed;
use lose::Doubts;

/// How long a purge can be undone. After that the endpoint is called again if messages still name it.
pub(crate) const UNDO_FOR: Duration = Duration::from_hours(30 * 24);
/// Maximum number of stored subscriptions.
pub(crate) const STORED_MAX: usize = 500_000;

#[derive(Debug, Default)]
pub(super) struct Table {
    purge: Purge,
    records: Records,
    stored: StoredIndex,
    /// Endpoints that are both stored and purged.
    stored_purged: u64,
    guard: PurgeGuard,
    seen: Seen,
    purged_lately: PurgedLately,
    recent: RecentCalls,
    /// Whether purges are announced.
    announces: bool,
    unannounced: Unannounced,
    /// Identifies the key of the hashes; `None` for a table without a fingerprint.
    hash_key: Option<String>,
    /// The number of stored copies of the fingerprint.
    hash_key_copies: u32,
    doubts: Doubts,
}

impl Table {
    pub(super) fn new(purge: Purge) -> Self {
        Self { purge, ..Self::default() }
    }

    /// From now on purges wait until they are announced.
    pub(super) fn announce_purges(&mut self) {
        self.announces = true;
    }

    pub(super) fn announces(&self) -> bool {
        self.announces
    }

    pub(super) fn hash_key(&self) -> Option<&str> {
        self.hash_key.as_deref()
    }

    pub(super) fn hash_key_copies(&self) -> u32 {
        self.hash_key_copies
    }

    /// Sets the fingerprint of the key of the hashes.
    pub(super) fn set_hash_key(&mut self, fingerprint: &str) -> Entry {
        self.hash_key = Some(fingerprint.to_owned());
        self.hash_key_copies += 1;
        Fact::HashKey(fingerprint.to_owned()).entry()
    }

    pub(super) fn purge_mode(&self) -> Purge {
        self.purge
    }

    /// Adopts an entry of the store. Unknown entries are ignored.
    pub(super) fn apply(&mut self, entry: &Entry) {
        match Fact::of(entry) {
            Some(Fact::Endpoint(id, record)) => {
                let purged = record
                    .as_ref()
                    .filter(|it| it.standing == SubscriptionState::Purged && it.cause == Cause::Gone);
                if let Some(purged) = purged.filter(|purged| self.records.get(id) != Some(purged)) {
                    self.guard.count(purged.at);
                }
                // An announcement belongs to one purge, and precedes it in the store.
                let purged = record.as_ref().filter(|record| record.standing == SubscriptionState::Purged);
                if !purged.is_some_and(|purged| self.unannounced.is_of(id, purged.at)) {
                    self.unannounced.take(id);
                }
                self.set_record(id, record);
            }
            Some(Fact::Stored(id, Some(stored))) => self.put_stored(id, *stored),
            Some(Fact::Stored(id, None)) => drop(self.take_stored(&id)),
            Some(Fact::Guard(stopped)) => self.guard.set_stopped(stopped),
            Some(Fact::Seen(number, Some(sketch))) => self.seen.apply(number, &sketch),
            Some(Fact::Unannounced(id, Some(Announcement { at, ids }))) => self.unannounced.put(id, at, ids),
            Some(Fact::Unannounced(id, None)) => {
                self.unannounced.take(id);
            }
            Some(Fact::HashKey(fingerprint)) => drop(self.set_hash_key(&fingerprint)),
            // An outdated generation, which is not kept here either.
            Some(Fact::Seen(_, None)) | None => {}
        }
    }

    fn set_record(&mut self, id: EndpointId, record: Option<Record>) {
        let purged_at =
            |it: Option<&Record>| it.filter(|it| it.standing == SubscriptionState::Purged).map(|it| it.at);
        if let Some(at) = purged_at(self.records.get(id)) {
            self.purged_lately.remove(at);
        }
        if let Some(at) = purged_at(record.as_ref()) {
            self.purged_lately.add(id, at);
        }
        self.counting([Some(id), None], |table| table.records.set(id, record));
    }

    fn put_stored(&mut self, id: String, stored: Stored) {
        let (before, after) = (self.stored.get(&id).map(|stored| stored.endpoint), stored.endpoint);
        let before = before.filter(|before| *before != after);
        self.counting([before, Some(after)], |table| table.stored.put(id, stored));
    }

    fn take_stored(&mut self, id: &str) -> Option<Arc<Stored>> {
        let endpoint = self.stored.get(id).map(|stored| stored.endpoint);
        self.counting([endpoint, None], |table| table.stored.take(id))
    }

    /// Makes a change, and updates how many of these endpoints are both stored and purged.
    fn counting<T>(&mut self, endpoints: [Option<EndpointId>; 2], change: impl FnOnce(&mut Self) -> T) -> T {
        let count = |table: &Self| {
            let is_both = |id: &&EndpointId| table.stored.names(**id) && table.records.is_purged(**id);
            endpoints.iter().flatten().filter(is_both).count() as u64
        };
        let before = count(self);
        let changed = change(self);
        self.stored_purged = self.stored_purged + count(self) - before;
        changed
    }

    /// The whole table in as few entries as possible. The hash key is at both ends, so that no single damage destroys
    /// both copies.
    pub(super) fn snapshot(&self) -> Vec<Entry> {
        let records = self.records.iter().map(|(id, record)| Fact::Endpoint(id, Some(record.clone())));
        let stored = self.stored.iter();
        let stored = stored.map(|(id, stored)| Fact::Stored(id.clone(), Some(Box::new((**stored).clone()))));
        let guard = self.guard.stopped().map(|stopped| Fact::Guard(Some(stopped)));
        let hash_key = self.hash_key.clone().map(Fact::HashKey);
        let unannounced =
            self.unannounced.iter().map(|(id, waits)| Fact::Unannounced(id, Some(waits.clone())));
        let facts = hash_key.clone().into_iter().chain(unannounced).chain(records).chain(stored).chain(guard);
        facts.chain(self.seen.facts()).chain(hash_key).map(|fact| fact.entry()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len() + self.stored.len() + self.unannounced.len()
    }

    pub(super) fn admit(&mut self, id: EndpointId, registered: Option<Time>) -> Admission {
        self.recent.add(id);
        decide::admit(self.records.get(id), registered)
    }

    /// The endpoint registered after its record was made.
    pub(super) fn returned(&mut self, id: EndpointId, now: Time) -> Effects {
        let mut effects = Effects::default();
        self.change(id, None, Change::Registered, now, &mut effects);
        effects
    }

    pub(super) fn answered(&mut self, id: EndpointId, answer: Answer<'_>, now: Time) -> Effects {
        let mut effects = Effects::default();
        if answer == Answer::Delivered {
            effects.entries.extend(self.seen.see(id, now).iter().map(Fact::entry));
        }
        match decide::decide(self.records.get(id), answer, self.purge, now) {
            Next::Keep => {}
            Next::Clear => self.change(id, None, Change::Delivered, now, &mut effects),
            Next::Flag(record) => self.change(id, Some(record), Change::Flagged, now, &mut effects),
            Next::Purge(record) => self.try_purge(id, record, now, &mut effects),
        }
        effects
    }

    /// Purges an endpoint, or flags it if the guard refuses.
    fn try_purge(&mut self, id: EndpointId, record: Record, now: Time, effects: &mut Effects) {
        let was_stopped = self.guard.stopped().is_some();
        let active = self.active(now);
        if self.guard.allows(active, now) {
            self.guard.count(now);
            self.change(id, Some(record), Change::Purged, now, effects);
            return;
        }
        if !was_stopped && let Some(stopped) = self.guard.stopped() {
            effects.entries.push(Fact::Guard(Some(stopped)).entry());
            effects.changes.push(Changed::of_all(now, Change::PurgingStopped(stopped)));
        }
        if !self.records.contains(id) {
            let record = Record { standing: SubscriptionState::Flagged, ..record };
            self.change(id, Some(record), Change::Flagged, now, effects);
        }
    }

    /// Flags or purges for an operator, regardless of the guard.
    pub(super) fn mark(&mut self, id: EndpointId, record: Record, now: Time) -> Effects {
        let mut effects = Effects::default();
        let change =
            if record.standing == SubscriptionState::Purged { Change::Purged } else { Change::Flagged };
        let record = record.instead_of(self.records.get(id));
        self.change(id, Some(record), change, now, &mut effects);
        effects
    }

    /// Undoes a flag or a purge. A record that an operator replaced is restored; otherwise the endpoint is active.
    /// `None` if there is nothing to undo.
    pub(super) fn undo(&mut self, id: EndpointId, now: Time) -> Option<Effects> {
        let before = self.records.get(id)?.before.as_deref().cloned();
        let mut effects = Effects::default();
        self.change(id, before, Change::Undone, now, &mut effects);
        Some(effects)
    }

    /// Endpoints purged at `since` or later.
    pub(super) fn purged_since(&self, since: Time) -> Vec<EndpointId> {
        self.records.purged_since(since).collect()
    }

    /// Stores a subscription; `None` if there is no room for another one.
    pub(super) fn register(&mut self, id: &str, stored: Stored, now: Time) -> Option<Effects> {
        if self.stored.len() >= STORED_MAX && !self.stored.contains(id) {
            return None;
        }
        let (mut effects, endpoint) = (Effects::default(), stored.endpoint);
        effects.entries.push(Fact::Stored(id.to_owned(), Some(Box::new(stored.clone()))).entry());
        self.put_stored(id.to_owned(), stored);
        if self.records.contains(endpoint) {
            self.change(endpoint, None, Change::Registered, now, &mut effects);
        } else {
            effects.changes.push(Changed::of_id(now, endpoint, id, Change::Registered));
        }
        Some(effects)
    }

    /// Removes a stored subscription; `None` if there is none with this id.
    pub(super) fn remove(&mut self, id: &str, now: Time) -> Option<Effects> {
        let stored = self.take_stored(id)?;
        let entries = vec![Fact::Stored(id.to_owned(), None).entry()];
        Some(Effects { entries, changes: vec![Changed::of_id(now, stored.endpoint, id, Change::Removed)] })
    }

    /// Resumes purging; `None` if it is not stopped.
    pub(super) fn resume(&mut self, now: Time) -> Option<Effects> {
        self.guard.stopped()?;
        self.guard.set_stopped(None);
        let entries = vec![Fact::Guard(None).entry()];
        Some(Effects { entries, changes: vec![Changed::of_all(now, Change::PurgingResumed)] })
    }

    /// Removes flags and purges that can no longer be undone. A purge that was not announced yet stays.
    pub(super) fn sweep(&mut self, now: Time) -> Effects {
        let waits = |id: EndpointId| self.announces && self.unannounced.contains(id);
        let old = self.records.iter().filter(|(_, it)| now.since(it.at) > UNDO_FOR);
        let old: Vec<_> = old.map(|(id, _)| id).filter(|id| !waits(*id)).collect();
        let mut effects = Effects::default();
        for id in old {
            self.set_record(id, None);
            effects.entries.push(Fact::Endpoint(id, None).entry());
            effects.entries.extend(self.forget_announcement(id));
        }
        effects
    }

    fn change(
        &mut self,
        id: EndpointId,
        record: Option<Record>,
        change: Change,
        at: Time,
        effects: &mut Effects,
    ) {
        // A full table does not grow; an endpoint without a record is called again.
        if record.is_some() && !self.records.has_room_for(id) {
            return;
        }
        self.set_record(id, record.clone());
        let ids: Vec<String> = self.stored.ids_of(id).cloned().collect();
        if change == Change::Purged && self.announces {
            // Before the purge: a crash in between leaves an announcement without a purge, which is dropped. The
            // other way round the announcement would be lost.
            let waits = Announcement { at, ids: Some(ids.clone()) };
            self.unannounced.begin(id, waits.clone());
            effects.entries.push(Fact::Unannounced(id, Some(waits)).entry());
            effects.entries.push(Fact::Endpoint(id, record.clone()).entry());
        } else {
            effects.entries.push(Fact::Endpoint(id, record.clone()).entry());
            effects.entries.extend(self.forget_announcement(id));
        }
        effects.changes.push(Changed { at, endpoint: Some(id), ids, change, record });
    }

    /// Estimate of the active endpoints: those that took a push lately or are stored, without purged ones. Several
    /// stored ids of one endpoint count once.
    pub(super) fn active(&mut self, now: Time) -> u64 {
        if let Some(mut purged) = self.purged_lately.begin(now) {
            let records =
                self.records.iter().filter(|(_, record)| record.standing == SubscriptionState::Purged);
            records.for_each(|(id, record)| purged.add(id, record.at));
            self.purged_lately = purged;
        }
        let stored = (self.stored.endpoints() as u64).saturating_sub(self.stored_purged);
        self.seen.estimate_without(&self.purged_lately, now).max(stored)
    }

    pub(super) fn flagged(&self) -> u64 {
        self.records.flagged()
    }

    pub(super) fn purged(&self) -> u64 {
        self.records.purged()
    }

    pub(super) fn stopped(&self) -> Option<Stopped> {
        self.guard.stopped()
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.is_full()
    }

    pub(super) fn stored(&self, id: &str) -> Option<Arc<Stored>> {
        self.stored.get(id).cloned()
    }

    pub(super) fn stored_count(&self) -> usize {
        self.stored.len()
    }

    /// The number of stored subscriptions by key.
    pub(super) fn keys(&self) -> &BTreeMap<Option<String>, u64> {
        self.stored.keys()
    }

    /// Finds an endpoint by its hash or by the id of a stored subscription. `None` if it is unknown.
    pub(super) fn find(&self, name: &str) -> Option<EndpointId> {
        let stored = self.stored.get(name).map(|stored| stored.endpoint);
        stored.or_else(|| name.parse::<EndpointId>().ok().filter(|id| self.knows(*id)))
    }

    fn knows(&self, id: EndpointId) -> bool {
        self.records.contains(id) || self.stored.ids_of(id).next().is_some() || self.recent.contains(id)
    }

    pub(super) fn show(&self, endpoint: EndpointId) -> Listed {
        let ids: Vec<String> = self.stored.ids_of(endpoint).cloned().collect();
        let stored = ids.iter().filter_map(|id| self.stored.get(id)).max_by_key(|stored| stored.registered);
        Listed { endpoint, record: self.records.get(endpoint).cloned(), stored: stored.cloned(), ids }
    }

    /// Endpoints that are stored, flagged or purged, in the order of their hashes.
    pub(super) fn list(
        &self,
        standing: Option<SubscriptionState>,
        after: Option<EndpointId>,
        limit: usize,
    ) -> Vec<Listed> {
        let fits = |it: &SubscriptionState| standing.is_none_or(|wanted| wanted == *it);
        let marked = self.records.after(after).filter(|(_, record)| fits(&record.standing));
        let mut found: Vec<EndpointId> = marked.take(limit).map(|(id, _)| id).collect();
        if fits(&SubscriptionState::Active) {
            let active = self.stored.endpoints_after(after);
            found.extend(active.filter(|id| !self.records.contains(*id)).take(limit));
        }
        found.sort_unstable();
        found.into_iter().take(limit).map(|id| self.show(id)).collect()
    }

    /// The announcements that are ready, the oldest first.
    pub(super) fn unannounced(&self, after: Option<AnnouncementKey>, limit: usize) -> Vec<AnnouncementKey> {
        self.unannounced.after(after).take(limit).collect()
    }

    /// The details of a purge to announce; `None` if it was undone.
    pub(super) fn announcement(&self, (at, id): AnnouncementKey) -> Option<Changed> {
        let record =
            self.records.get(id).filter(|it| it.standing == SubscriptionState::Purged && it.at == at);
        let record = Some(record?.clone());
        let has_not_moved = |name: &&String| self.stored.get(name).is_none_or(|stored| stored.endpoint == id);
        let ids = match self.unannounced.get(id).and_then(|waits| waits.ids.as_ref()) {
            Some(ids) => ids.iter().filter(has_not_moved).cloned().collect(),
            None => self.stored.ids_of(id).cloned().collect(),
        };
        Some(Changed { at, endpoint: Some(id), ids, change: Change::Purged, record })
    }

    /// The owner's system knows of the purge, or need not. Also returns the announcement.
    pub(super) fn announced(&mut self, (at, id): AnnouncementKey) -> (Effects, Option<Announcement>) {
        let waiting = self.unannounced.get(id).filter(|waiting| waiting.at == at).cloned();
        let entry = waiting.as_ref().and_then(|_| self.forget_announcement(id));
        (Effects { entries: entry.into_iter().collect(), changes: Vec::new() }, waiting)
    }

    /// Makes an announcement pending again because its completion could not be written, unless the endpoint changed
    /// meanwhile.
    pub(super) fn wait_again(&mut self, (at, id): AnnouncementKey, waiting: Announcement) {
        let holds = self.records.get(id).is_some_and(|record| record.at == at) && self.records.is_purged(id);
        if holds && !self.unannounced.contains(id) {
            self.unannounced.put(id, at, waiting.ids);
        }
    }

    fn forget_announcement(&mut self, id: EndpointId) -> Option<Entry> {
        self.unannounced.take(id).then(|| Fact::Unannounced(id, None).entry())
    }

    /// The purges among these changes are stored, and can be announced.
    pub(super) fn are_durable(&mut self, changes: &[Changed]) {
        for changed in changes.iter().filter(|changed| changed.change == Change::Purged) {
            changed.endpoint.into_iter().for_each(|id| self.unannounced.is_durable(id, changed.at));
        }
    }

    pub(super) fn unannounced_count(&self) -> u64 {
        self.unannounced.len() as u64
    }

    pub(super) fn unannounced_since(&self) -> Option<Time> {
        self.unannounced.oldest()
    }
}
