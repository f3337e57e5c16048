//! Duplicate records of one message in the tiers, and which of them counts.
//!
//! A process that dies between writing the copy of a record and marking the record leaves both. So a process that gets
//! partitions reads their tiers to the end before it starts anything, and of two records of a message, the one that has
//! progressed further counts. The other is marked as done without a delivery, so two copies do not become four at the
//! next crash.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use redrive::internal::engine::numbers::NumberMap;
use redrive_core::{Meta, Time};

use crate::record::Replaces;

/// How long starts are delayed for it. A tier whose backlog takes longer to read may keep some twins.
pub const READ_MAX: Duration = Duration::from_secs(5);

/// How far a message has progressed: by replays first, then by calls.
type Rank = (u32, u32);

#[derive(Debug)]
struct SeenRecord {
    /// Tells apart messages of a topic that was deleted and recreated, which have the same positions.
    created: Time,
    rank: Rank,
    lane: usize,
    offset: u64,
}

/// How a record compares with those read before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwinOrder {
    First,
    /// It has progressed further than the record at this lane and offset, which no longer counts.
    Further {
        lane: usize,
        offset: u64,
    },
    /// Another record of the message has progressed as far, or further.
    Behind,
}

#[derive(Debug, Default)]
pub struct Twins {
    seen: NumberMap<u64, SeenRecord>,
    /// Source records that copies replace although their number names another record: letters that were put back there.
    places: HashSet<Replaces>,
    /// Until when nothing is started.
    until: Option<Instant>,
}

impl Twins {
    /// Prepares for newly assigned partitions: everything that is read now may have duplicates.
    pub fn begin(&mut self, now: Instant) {
        self.seen.clear();
        self.places.clear();
        self.until = Some(now + READ_MAX);
    }

    pub fn is_reading(&self) -> bool {
        self.until.is_some()
    }

    pub fn is_late(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now > until)
    }

    /// Notes that the tiers were read. `is_ahead` tells whether the source record of a message is still to be read; its
    /// copy is remembered until then.
    pub fn end(&mut self, is_ahead: impl Fn(u64) -> bool) {
        self.until = None;
        self.seen.retain(|number, _| is_ahead(*number));
    }

    /// Whether there is anything to compare with.
    pub fn are_possible(&self) -> bool {
        self.is_reading() || !self.seen.is_empty() || !self.places.is_empty()
    }

    /// Notes that a copy replaces this record of the source.
    pub fn remember_place(&mut self, place: Replaces) {
        self.places.insert(place);
    }

    pub fn replaced(&self, place: Replaces) -> bool {
        self.places.contains(&place)
    }

    pub fn observe(&mut self, number: u64, meta: &Meta, lane: usize, offset: u64) -> TwinOrder {
        let created = meta.created;
        let rank = (meta.replays, meta.attempts.saturating_add(meta.uncounted));
        if !self.is_reading() {
            // Only source records arrive now, and a copy is never behind its source.
            let other = self.seen.remove(&number).filter(|other| other.created == meta.created);
            return if other.is_some() { TwinOrder::Behind } else { TwinOrder::First };
        }
        let Some(other) = self.seen.get_mut(&number) else {
            self.seen.insert(number, SeenRecord { created, rank, lane, offset });
            return TwinOrder::First;
        };
        if other.created != created {
            return TwinOrder::First;
        }
        if rank <= other.rank {
            return TwinOrder::Behind;
        }
        let SeenRecord { lane, offset, .. } =
            std::mem::replace(other, SeenRecord { created, rank, lane, offset });
        TwinOrder::Further { lane, offset }
    }

    /// Remembers a late copy whose source record is still to be read.
    pub fn expect_source(&mut self, number: u64, meta: &Meta, lane: usize, offset: u64) {
        let rank = (meta.replays, meta.attempts.saturating_add(meta.uncounted));
        self.seen.entry(number).or_insert(SeenRecord { created: meta.created, rank, lane, offset });
    }

    pub fn clear(&mut self) {
        self.seen.clear();
        self.places.clear();
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(replays: u32, attempts: u32) -> Meta {
        Meta { replays, attempts, ..Meta::default() }
    }

    #[test]
    fn whoever_has_come_further_counts() {
        let mut twins = Twins::default();
        twins.begin(Instant::now());
        assert_eq!(twins.observe(7, &meta(0, 0), 0, 7), TwinOrder::First);
        assert_eq!(twins.observe(8, &meta(0, 1), 1, 3), TwinOrder::First);
        assert_eq!(twins.observe(7, &meta(0, 1), 1, 4), TwinOrder::Further { lane: 0, offset: 7 });
        assert_eq!(twins.observe(7, &meta(0, 1), 1, 5), TwinOrder::Behind);
        assert_eq!(twins.observe(7, &meta(0, 2), 2, 0), TwinOrder::Further { lane: 1, offset: 4 });
        assert_eq!(twins.observe(7, &meta(1, 0), 3, 0), TwinOrder::Further { lane: 2, offset: 0 });
        assert_eq!(twins.observe(8, &meta(0, 0), 0, 8), TwinOrder::Behind);
    }

    #[test]
    fn a_copy_is_remembered_until_its_source_is_read() {
        let mut twins = Twins::default();
        twins.begin(Instant::now());
        twins.observe(7, &meta(0, 1), 1, 4);
        twins.observe(9, &meta(0, 1), 1, 5);
        twins.end(|number| number == 9);
        assert!(!twins.is_reading() && twins.are_possible());
        assert_eq!(twins.observe(7, &meta(0, 0), 0, 7), TwinOrder::First);
        assert_eq!(twins.observe(9, &meta(0, 0), 0, 9), TwinOrder::Behind);
        assert!(!twins.are_possible());
    }
}
