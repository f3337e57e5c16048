//! Purges that the owner's system does not know of yet. A purge that is still being written waits until it is
//! durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use redrive_core::Time;
use serde_json::{Value, json};

use super::record::EndpointId;

/// The time of a purge and its endpoint; announcements are made in this order.
pub(super) type AnnouncementKey = (Time, EndpointId);

/// A pending announcement of a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// When it was purged.
    pub at: Time,
    /// The stored subscriptions of the endpoint at that time, so that a repeated announcement is the same even if
    /// some are removed meanwhile. `None` if it was written by an earlier version.
    pub ids: Option<Vec<String>>,
}

impl Announcement {
    pub(super) fn to_json(&self) -> Value {
        let mut value = json!({ "at_ms": self.at.as_millis() });
        if let Some(ids) = &self.ids {
            value["ids"] = json!(ids);
        }
        value
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let at = Time::from_millis(value.get("at_ms")?.as_u64()?);
        let ids = value.get("ids").and_then(Value::as_array);
        let ids = ids.map(|ids| ids.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        Some(Self { at, ids })
    }
}

#[derive(Debug, Default)]
pub(super) struct Unannounced {
    /// All of them, durable or not.
    purged: BTreeMap<EndpointId, Announcement>,
    /// The durable ones, the oldest first.
    ready: BTreeSet<AnnouncementKey>,
}

impl Unannounced {
    /// Adds a purge that is being written.
    pub(super) fn begin(&mut self, id: EndpointId, announcement: Announcement) {
        self.take(id);
        self.purged.insert(id, announcement);
    }

    /// The purge is stored. Ignored if the endpoint changed meanwhile.
    pub(super) fn is_durable(&mut self, id: EndpointId, at: Time) {
        if self.is_of(id, at) {
            self.ready.insert((at, id));
        }
    }

    /// Adds an announcement that was read from the store.
    pub(super) fn put(&mut self, id: EndpointId, at: Time, ids: Option<Vec<String>>) {
        self.begin(id, Announcement { at, ids });
        self.is_durable(id, at);
    }

    /// Removes an announcement; returns whether there was one.
    pub(super) fn take(&mut self, id: EndpointId) -> bool {
        let Some(Announcement { at, .. }) = self.purged.remove(&id) else { return false };
        self.ready.remove(&(at, id));
        true
    }

    pub(super) fn get(&self, id: EndpointId) -> Option<&Announcement> {
        self.purged.get(&id)
    }

    pub(super) fn contains(&self, id: EndpointId) -> bool {
        self.purged.contains_key(&id)
    }

    /// Whether the announcement is for the purge at this time.
    pub(super) fn is_of(&self, id: EndpointId, at: Time) -> bool {
        self.get(id).is_some_and(|announcement| announcement.at == at)
    }

    pub(super) fn len(&self) -> usize {
        self.purged.len()
    }

    pub(super) fn oldest(&self) -> Option<Time> {
        self.ready.first().map(|(at, _)| *at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointId, &Announcement)> {
        self.purged.iter().map(|(id, announcement)| (*id, announcement))
    }

    /// The announcements that are ready, in order.
    pub(super) fn after(&self, after: Option<AnnouncementKey>) -> impl Iterator<Item = AnnouncementKey> {
        self.ready.range((after.map_or(Unbounded, Excluded), Unbounded)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> EndpointId {
        EndpointId::from_number(number)
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn waits(ms: u64) -> Announcement {
        Announcement { at: at(ms), ids: None }
    }

    #[test]
    fn only_durable_purges_are_announced_and_the_oldest_first() {
        let mut unannounced = Unannounced::default();
        unannounced.begin(id(1), waits(5));
        unannounced.put(id(2), at(9), None);
        unannounced.put(id(3), at(7), None);
        assert_eq!(unannounced.after(None).collect::<Vec<_>>(), [(at(7), id(3)), (at(9), id(2))]);
        assert_eq!((unannounced.len(), unannounced.oldest()), (3, Some(at(7))));
        unannounced.is_durable(id(1), at(5));
        assert_eq!(unannounced.after(None).next(), Some((at(5), id(1))));
        assert_eq!(unannounced.after(Some((at(7), id(3)))).collect::<Vec<_>>(), [(at(9), id(2))]);
    }

    #[test]
    fn what_happened_to_the_endpoint_meanwhile_counts() {
        let mut unannounced = Unannounced::default();
        unannounced.begin(id(1), waits(5));
        assert!(unannounced.take(id(1)) && !unannounced.take(id(1)));
        unannounced.is_durable(id(1), at(5));
        assert_eq!((unannounced.len(), unannounced.after(None).count()), (0, 0));
        unannounced.put(id(1), at(5), None);
        unannounced.begin(id(1), waits(8));
        unannounced.is_durable(id(1), at(5));
        assert_eq!(unannounced.after(None).count(), 0, "it was purged again, and that is not durable yet");
        assert!(unannounced.is_of(id(1), at(8)) && !unannounced.is_of(id(1), at(5)));
    }
}
