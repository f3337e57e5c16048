//! Messages between two records: their next record is written and not acknowledged, or acknowledged and not read.

use std::collections::BTreeSet;

use redrive::internal::engine::numbers::NumberMap;
use redrive_core::Time;

#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// Retries whose copies are not acknowledged, by due time and number.
    retries: BTreeSet<(u64, u64)>,
    /// Messages whose letters or successes are not acknowledged, so that they are not finished.
    finishing: BTreeSet<u64>,
    /// Copies that are acknowledged and not read yet, by due time, lane and offset.
    unread: BTreeSet<(u64, usize, u64)>,
    /// Replayed letters whose records have not been read yet, with their due times.
    replayed: NumberMap<u64, Time>,
}

/// How a record that was read had been expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// A copy that this assignment wrote, acknowledged before it was read.
    pub acknowledged: bool,
    /// A copy that this assignment wrote, read before its acknowledgement was handled.
    pub copied: bool,
    pub replayed: bool,
}

impl Transit {
    pub fn retry_sent(&mut self, due: Time, number: u64) {
        self.retries.insert((due.as_millis(), number));
    }

    /// Notes that a retry was acknowledged; `false` if its record was read already.
    pub fn retry_stored(&mut self, due: Time, number: u64) -> bool {
        self.retries.remove(&(due.as_millis(), number))
    }

    pub fn finish_sent(&mut self, number: u64) {
        self.finishing.insert(number);
    }

    pub fn finish_stored(&mut self, number: u64) {
        self.finishing.remove(&number);
    }

    /// Notes that a refused retry becomes a letter.
    pub fn retry_became_letter(&mut self, due: Time, number: u64) {
        self.retry_stored(due, number);
        self.finish_sent(number);
    }

    pub fn is_finishing(&self, number: u64) -> bool {
        self.finishing.contains(&number)
    }

    /// Expects an acknowledged copy to be read at this lane and offset.
    pub fn expect(&mut self, due: Time, lane: usize, offset: u64) {
        self.unread.insert((due.as_millis(), lane, offset));
    }

    /// Expects the record of a replayed letter to be read here.
    pub fn expect_replay(&mut self, number: u64, due: Time) {
        self.replayed.insert(number, due);
    }

    /// Notes that a record of the source, or (`is_copy`) of a tier or the replay topic, was read.
    pub fn read(
        &mut self,
        is_copy: bool,
        due: Option<Time>,
        lane: usize,
        offset: u64,
        number: u64,
    ) -> Expected {
        let due = due.unwrap_or_default().as_millis();
        Expected {
            acknowledged: is_copy && self.unread.remove(&(due, lane, offset)),
            copied: is_copy && self.retries.remove(&(due, number)),
            replayed: self.replayed.remove(&number).is_some(),
        }
    }

    pub fn next_due(&self) -> Option<Time> {
        let retry = self.retries.first().map(|(due, _)| Time::from_millis(*due));
        let unread = self.unread.first().map(|(due, ..)| Time::from_millis(*due));
        let replayed = self.replayed.values().min().copied();
        [retry, unread, replayed].into_iter().flatten().min()
    }

    /// Counts messages that wait for their due time without being in memory.
    pub fn delayed(&self) -> u64 {
        (self.retries.len() + self.replayed.len()) as u64
    }

    pub fn finishing(&self) -> u64 {
        self.finishing.len() as u64
    }

    /// Forgets everything, after the partitions are gone: copies that are acknowledged from now on are found when they
    /// are read.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Time = Time::from_millis(500);

    #[test]
    fn a_copy_is_expected_whether_it_is_read_before_or_after_its_acknowledgement() {
        let mut transit = Transit::default();
        transit.retry_sent(DUE, 7);
        assert_eq!((transit.delayed(), transit.next_due()), (1, Some(DUE)));
        assert!(transit.retry_stored(DUE, 7));
        transit.expect(DUE, 1, 30);
        let read = transit.read(true, Some(DUE), 1, 30, 7);
        assert_eq!(read, Expected { acknowledged: true, copied: false, replayed: false });
        transit.retry_sent(DUE, 8);
        assert!(transit.read(true, Some(DUE), 1, 31, 8).copied);
        assert!(!transit.retry_stored(DUE, 8), "it was read already");
        assert_eq!(transit.next_due(), None);
    }

    #[test]
    fn a_refused_retry_is_finishing_as_a_letter() {
        let mut transit = Transit::default();
        transit.retry_sent(DUE, 7);
        transit.retry_became_letter(DUE, 7);
        assert!(transit.is_finishing(7) && transit.delayed() == 0);
        transit.finish_stored(7);
        assert_eq!(transit.finishing(), 0);
    }

    #[test]
    fn a_record_of_the_source_is_no_copy() {
        let mut transit = Transit::default();
        transit.retry_sent(Time::ZERO, 7);
        transit.expect_replay(7, DUE);
        let read = transit.read(false, None, 0, 7, 7);
        assert_eq!(read, Expected { acknowledged: false, copied: false, replayed: true });
        assert_eq!(transit.delayed(), 1);
    }
}
