//! Flags and purges by endpoint, bounded and counted.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use redrive_core::Time;

use super::record::{EndpointId, Record, SubscriptionState};

/// Maximum number of flags and purges. Beyond that endpoints are called as if they had none.
pub(super) const RECORDS_MAX: usize = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct Records {
    by_endpoint: BTreeMap<EndpointId, Record>,
    flagged: u64,
}

impl Records {
    /// Sets the record of an endpoint; `None` makes it active.
    pub(super) fn set(&mut self, id: EndpointId, record: Option<Record>) {
        self.flagged += is_flag(record.as_ref());
        let before = match record {
            Some(record) => self.by_endpoint.insert(id, record),
            None => self.by_endpoint.remove(&id),
        };
        self.flagged -= is_flag(before.as_ref());
    }

    pub(super) fn get(&self, id: EndpointId) -> Option<&Record> {
        self.by_endpoint.get(&id)
    }

    pub(super) fn contains(&self, id: EndpointId) -> bool {
        self.by_endpoint.contains_key(&id)
    }

    pub(super) fn is_purged(&self, id: EndpointId) -> bool {
        self.get(id).is_some_and(|record| record.standing == SubscriptionState::Purged)
    }

    pub(super) fn len(&self) -> usize {
        self.by_endpoint.len()
    }

    pub(super) fn flagged(&self) -> u64 {
        self.flagged
    }

    pub(super) fn purged(&self) -> u64 {
        self.len() as u64 - self.flagged
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= RECORDS_MAX
    }

    pub(super) fn has_room_for(&self, id: EndpointId) -> bool {
        !self.is_full() || self.contains(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointId, &Record)> {
        self.by_endpoint.iter().map(|(id, record)| (*id, record))
    }

    pub(super) fn after(&self, after: Option<EndpointId>) -> impl Iterator<Item = (EndpointId, &Record)> {
        let from = (after.map_or(Unbounded, Excluded), Unbounded);
        self.by_endpoint.range(from).map(|(id, record)| (*id, record))
    }

    /// Endpoints purged at `since` or later.
    pub(super) fn purged_since(&self, since: Time) -> impl Iterator<Item = EndpointId> {
        let purged =
            move |record: &Record| record.standing == SubscriptionState::Purged && record.at >= since;
        self.iter().filter(move |(_, record)| purged(record)).map(|(id, _)| id)
    }
}

fn is_flag(record: Option<&Record>) -> u64 {
    u64::from(record.is_some_and(|record| record.standing == SubscriptionState::Flagged))
}

#[cfg(test)]
mod tests {
    use super::super::record::Cause;
    use super::*;

    #[test]
    fn flags_and_purges_are_counted_through_every_change() {
        let mut records = Records::default();
        let (one, other) = (EndpointId::from_number(1), EndpointId::from_number(2));
        let record = |standing| Some(Record::new(standing, Cause::Gone, "", Time::from_millis(5)));
        records.set(one, record(SubscriptionState::Flagged));
        records.set(other, record(SubscriptionState::Flagged));
        assert_eq!((records.flagged(), records.purged()), (2, 0));
        records.set(one, record(SubscriptionState::Purged));
        assert_eq!((records.flagged(), records.purged()), (1, 1));
        assert_eq!(records.purged_since(Time::from_millis(5)).collect::<Vec<_>>(), [one]);
        assert_eq!(records.purged_since(Time::from_millis(6)).count(), 0);
        records.set(one, None);
        records.set(one, None);
        assert_eq!((records.flagged(), records.purged()), (1, 0));
        assert_eq!(records.after(Some(one)).map(|(id, _)| id).collect::<Vec<_>>(), [other]);
    }
}
