//! Purges that the owner's system has still to hear of: what is said of each, and when it is known.

use redrive_core::Time;

use super::super::change::{Change, Changed};
use super::super::entry::{Entry, Fact};
use super::super::record::{EndpointId, Standing};
use super::super::unannounced::{Announcement, AnnouncementKey};
use super::{Effects, Table};

impl Table {
    /// Announcements that can be made, the oldest first.
    pub(in super::super) fn unannounced(
        &self,
        after: Option<AnnouncementKey>,
        limit: usize,
    ) -> Vec<AnnouncementKey> {
        self.unannounced.after(after).take(limit).collect()
    }

    /// What there is to say of a purge; `None` if it does not hold any more.
    pub(in super::super) fn announcement(&self, (at, id): AnnouncementKey) -> Option<Changed> {
        let record = self.records.get(id).filter(|it| it.standing == Standing::Purged && it.at == at);
        let record = Some(record?.clone());
        let has_not_moved = |name: &&String| self.stored.get(name).is_none_or(|stored| stored.endpoint == id);
        let ids = match self.unannounced.get(id).and_then(|waits| waits.ids.as_ref()) {
            Some(ids) => ids.iter().filter(has_not_moved).cloned().collect(),
            None => self.stored.ids_of(id).cloned().collect(),
        };
        Some(Changed { at, endpoint: Some(id), ids, change: Change::Purged, record })
    }

    /// The owner's system knows of the purge, or does not have to. Also gives what was to be said of it.
    pub(in super::super) fn announced(
        &mut self,
        (at, id): AnnouncementKey,
    ) -> (Effects, Option<Announcement>) {
        let waiting = self.unannounced.get(id).filter(|waiting| waiting.at == at).cloned();
        let entry = waiting.as_ref().and_then(|_| self.forget_announcement(id));
        (Effects { entries: entry.into_iter().collect(), changes: Vec::new() }, waiting)
    }

    /// That it was announced could not be written, so it is not known, unless something else happened meanwhile.
    pub(in super::super) fn wait_again(&mut self, (at, id): AnnouncementKey, waiting: Announcement) {
        let holds = self.records.get(id).is_some_and(|record| record.at == at) && self.records.is_purged(id);
        if holds && !self.unannounced.contains(id) {
            self.unannounced.put(id, at, waiting.ids);
        }
    }

    pub(super) fn forget_announcement(&mut self, id: EndpointId) -> Option<Entry> {
        self.unannounced.take(id).then(|| Fact::Unannounced(id, None).entry())
    }

    /// The purges among these changes are in the store, and can be announced.
    pub(in super::super) fn are_durable(&mut self, changes: &[Changed]) {
        for changed in changes.iter().filter(|changed| changed.change == Change::Purged) {
            changed.endpoint.into_iter().for_each(|id| self.unannounced.is_durable(id, changed.at));
        }
    }

    pub(in super::super) fn unannounced_count(&self) -> u64 {
        self.unannounced.len() as u64
    }

    pub(in super::super) fn unannounced_since(&self) -> Option<Time> {
        self.unannounced.oldest()
    }
}
