//! Bounds how much of a partition may be in memory: the polling thread checks before it reads, and the engine frees
//! room again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug)]
pub struct LookAheadLimit {
    records_max: usize,
    bytes_max: usize,
    records: AtomicUsize,
    bytes: AtomicUsize,
    /// Set by the reader when it found no room.
    waited_for: AtomicBool,
    /// While it is set, there is room for everything.
    lifted: AtomicBool,
}

impl LookAheadLimit {
    pub fn new(records_max: usize, bytes_max: usize) -> Self {
        Self {
            records_max,
            bytes_max,
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            waited_for: AtomicBool::new(false),
            lifted: AtomicBool::new(false),
        }
    }

    /// Lifts the limit until [`Self::bind`]. With key order nothing starts before all waiting messages are known, so a
    /// limit would deadlock.
    #[must_use]
    pub fn lifted(self) -> Self {
        self.lifted.store(true, Ordering::SeqCst);
        self
    }

    pub fn bind(&self) {
        self.lifted.store(false, Ordering::SeqCst);
    }

    /// Returns how many records may be read now. If none, the next [`Self::free`] that makes room reports it.
    pub fn left(&self) -> usize {
        let left = self.look();
        if left > 0 {
            return left;
        }
        self.waited_for.store(true, Ordering::SeqCst);
        self.look()
    }

    /// Returns the number of records in memory.
    pub fn records(&self) -> usize {
        self.records.load(Ordering::SeqCst)
    }

    fn look(&self) -> usize {
        if self.lifted.load(Ordering::SeqCst) {
            return usize::MAX;
        }
        if self.bytes.load(Ordering::SeqCst) >= self.bytes_max {
            return 0;
        }
        self.records_max.saturating_sub(self.records.load(Ordering::SeqCst))
    }

    /// Counts bytes only if they have a bound.
    fn counted(&self, bytes: usize) -> usize {
        if self.bytes_max == usize::MAX { 0 } else { bytes }
    }

    pub fn fill(&self, records: usize, bytes: usize) {
        let bytes = self.counted(bytes);
        self.records.fetch_add(records, Ordering::SeqCst);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Frees room. Returns whether the reader waits for it and there is enough to be worth a wake-up.
    pub fn free(&self, records: usize, bytes: usize) -> bool {
        let bytes = self.counted(bytes);
        let records = self.records.fetch_sub(records, Ordering::SeqCst) - records;
        let bytes = self.bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
        records <= self.records_max / 2
            && bytes <= self.bytes_max / 2
            && self.waited_for.load(Ordering::SeqCst)
            && self.waited_for.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_found_no_room_is_called_once_half_of_it_is_free() {
        let room = LookAheadLimit::new(4, 1000);
        assert_eq!(room.left(), 4);
        room.fill(4, 40);
        assert_eq!(room.left(), 0);
        assert!(!room.free(1, 10), "not worth it yet");
        assert!(room.free(1, 10));
        assert!(!room.free(1, 10), "it was called already");
    }

    #[test]
    fn few_large_records_fill_it_too() {
        let room = LookAheadLimit::new(100, 1000);
        room.fill(1, 1000);
        assert_eq!(room.left(), 0);
        assert!(room.free(1, 1000));
        assert_eq!(room.left(), 100);
    }
}
