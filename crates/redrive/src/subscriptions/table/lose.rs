//! Handles lost entries: no key silently falls back to an older value.
//!
//! An endpoint whose latest entry is lost is called and watched, so that its push service reports its state again. A
//! stored subscription whose latest entry is lost is forgotten. A purge that may have lost its announcement is
//! announced again, which is at worst a repeat. Purging stops if it is unknown whether it was stopped.

use super::super::entry::{Entry, Fact};
use super::super::guard::Stopped;
use super::super::holes::Loss;
use super::super::record::{Cause, EndpointId, Record, SubscriptionState};
use super::super::store::Loaded;
use super::Table;

/// Ids of stored subscriptions that are reported individually.
const NAMED_MAX: usize = 20;

/// Doubts that arose while a table was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Doubts {
    /// The loss directly before the next entry, if there is one.
    loss_before: Option<Loss>,
    /// Endpoints that would have fallen back to an older state.
    doubted: u64,
    forgotten: Vec<String>,
    /// Whether entries with unknown keys are lost.
    is_anything: bool,
    is_hash_key_lost: bool,
}

impl Table {
    /// Adopts an entry or a loss from the store.
    pub(in super::super) fn load(&mut self, loaded: Loaded) {
        match loaded {
            Loaded::Lost(loss) => self.lose(loss),
            Loaded::Entry(entry) => {
                self.apply(&entry);
                if let Some(loss) = self.doubts.loss_before.take() {
                    self.follow_loss(&entry, &loss);
                }
            }
        }
    }

    fn lose(&mut self, loss: Loss) {
        for (id, record) in self.doubtful(&loss) {
            self.doubts.doubted += 1;
            self.unannounced.take(id);
            self.set_record(id, Some(record));
        }
        let forgotten = self.stored.iter().map(|(id, _)| id).filter(|id| loss.names(&Fact::stored_key(id)));
        for id in forgotten.cloned().collect::<Vec<_>>() {
            drop(self.take_stored(&id));
            self.doubts.forgotten.push(id);
        }
        let purges = self.records.iter().filter(|(_, record)| record.standing == SubscriptionState::Purged);
        let unannounced = purges.filter(|(id, _)| loss.may_be_of(&Fact::unannounced_key(*id)));
        for (id, at) in unannounced.map(|(id, record)| (id, record.at)).collect::<Vec<_>>() {
            self.unannounced.put(id, at, None);
        }
        if loss.names(Fact::GUARD) && self.guard.stopped().is_none() {
            self.guard.set_stopped(Some(Stopped::UNKNOWN));
        }
        self.doubts.is_hash_key_lost |= loss.may_be_of(Fact::HASH_KEY);
        self.doubts.is_anything |= loss.is_anything();
        self.doubts.loss_before = Some(loss);
    }

    /// Flags and purges that may be outdated, with the records that replace them. If the lost keys are unknown, marks
    /// set by operators are kept, because a push service could not report them again.
    fn doubtful(&self, loss: &Loss) -> Vec<(EndpointId, Record)> {
        let is_doubtful = |id: EndpointId, record: &Record| {
            loss.names(&Fact::endpoint_key(id)) || (loss.is_anything() && record.cause != Cause::Operator)
        };
        let found = self.records.iter().filter(|(id, record)| is_doubtful(*id, record));
        found.map(|(id, record)| (id, record.doubted())).collect()
    }

    /// An announcement is stored directly before its purge, so it may be the last lost entry.
    fn follow_loss(&mut self, entry: &Entry, loss: &Loss) {
        let Some(Fact::Endpoint(id, Some(record))) = Fact::of(entry) else { return };
        let is_lost = loss.may_be_of(&Fact::unannounced_key(id)) && !self.unannounced.contains(id);
        if record.standing == SubscriptionState::Purged && is_lost {
            self.unannounced.put(id, record.at, None);
        }
    }

    /// Whether the fingerprint of the hash key may have been lost.
    pub(in super::super) fn is_hash_key_lost(&self) -> bool {
        self.hash_key.is_none() && self.doubts.is_hash_key_lost
    }

    /// The consequences of the damage, for people.
    pub(in super::super) fn doubts(&self) -> Vec<String> {
        let Doubts { doubted, forgotten, is_anything, .. } = &self.doubts;
        let mut findings = Vec::new();
        if *doubted > 0 {
            findings.push(format!(
                "{doubted} endpoints are flagged and will be checked again: their latest entries are lost"
            ));
        }
        let named = forgotten.iter().take(NAMED_MAX);
        findings.extend(named.map(|id| format!("the stored subscription `{id}` is lost: register it again")));
        if forgotten.len() > NAMED_MAX {
            let more = forgotten.len() - NAMED_MAX;
            findings.push(format!("{more} more stored subscriptions are lost: register them again"));
        }
        if *is_anything {
            findings.push(
                "some damaged lines cannot be attributed: all endpoints that push services reported as gone will be \
                 checked again, and stored subscriptions may be older than they were"
                    .to_owned(),
            );
        }
        findings
    }
}
