//! Decides which keys may start their next message: one message of a key at a time, in the order of acceptance.

use std::collections::{BTreeSet, HashSet, VecDeque};

use crate::engine::embedded::index::tables::Pointer;
use crate::engine::embedded::journal::record::Was;
use crate::engine::embedded::state::lines::LineKey;
use crate::engine::numbers::NumberMap;

/// A message passed over because its key is busy, until the record of that is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) key: u64,
    pub(crate) was: Was,
    pub(crate) pointer: Pointer,
}

#[derive(Debug, Default)]
pub(crate) struct KeyGate {
    /// Keys with a message in flight, and its number.
    running: NumberMap<u64, u64>,
    passed: NumberMap<u64, Passed>,
    /// Keys that must not start anything, and the number of messages that hold them: passed over, or claimed.
    held: NumberMap<u64, usize>,
    /// Blocked messages that are now first in line.
    released: VecDeque<LineKey>,
    released_keys: HashSet<u64>,
    /// Blocked messages, by number and key, that may start once all ready messages before them were looked at.
    unlooked: BTreeSet<(u64, u64)>,
}

impl KeyGate {
    /// Whether no key is busy.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.held.is_empty()
    }

    /// Whether no message of the key may start now.
    pub(crate) fn is_busy(&self, hash: u64) -> bool {
        self.running.contains_key(&hash) || self.held.contains_key(&hash)
    }

    /// Whether the first of the key's line is to be released.
    pub(crate) fn wants_release(&self, hash: u64) -> bool {
        !self.is_busy(hash) && !self.released_keys.contains(&hash)
    }

    pub(crate) fn start(&mut self, hash: u64, seq: u64) {
        self.running.insert(hash, seq);
    }

    /// The message of the key that is in flight.
    pub(crate) fn running(&self, hash: u64) -> Option<u64> {
        self.running.get(&hash).copied()
    }

    /// Records that the delivery of this message is over.
    pub(crate) fn end(&mut self, hash: u64, seq: u64) {
        if self.running.get(&hash) == Some(&seq) {
            self.running.remove(&hash);
        }
    }

    /// Holds the key: none of its messages starts until the hold is released.
    pub(crate) fn hold(&mut self, hash: u64) {
        *self.held.entry(hash).or_default() += 1;
    }

    /// Releases one hold of the key.
    pub(crate) fn unhold(&mut self, hash: u64) {
        if let Some(count) = self.held.get_mut(&hash) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&hash);
            }
        }
    }

    /// Records a message as passed over: it holds its key until the record of that is durable.
    pub(crate) fn pass(&mut self, seq: u64, passed: Passed) {
        self.passed.insert(seq, passed);
        self.hold(passed.key);
    }

    /// Records that a message is durably in its line, which ends its hold if it was passed over.
    pub(crate) fn in_line(&mut self, seq: u64, hash: u64) {
        if self.passed.remove(&seq).is_some() {
            self.unhold(hash);
        }
    }

    pub(crate) fn passed(&self, seq: u64) -> Option<&Passed> {
        self.passed.get(&seq)
    }

    pub(crate) fn is_passed(&self, seq: u64) -> bool {
        self.passed.contains_key(&seq)
    }

    /// All messages passed over, with their numbers.
    pub(crate) fn all_passed(&self) -> impl ExactSizeIterator<Item = (u64, &Passed)> {
        self.passed.iter().map(|(seq, passed)| (*seq, passed))
    }

    /// Releases the first message of a line, once ready messages before it were looked at: they may be of the same
    /// key.
    pub(crate) fn release(&mut self, (hash, seq): LineKey, next_ready: u64) {
        if next_ready <= seq {
            self.unlooked.insert((seq, hash));
        } else {
            self.released.push_back((hash, seq));
            self.released_keys.insert(hash);
        }
    }

    /// The next released message.
    pub(crate) fn pop_released(&mut self) -> Option<LineKey> {
        let (hash, seq) = self.released.pop_front()?;
        self.released_keys.remove(&hash);
        Some((hash, seq))
    }

    pub(crate) fn released(&self) -> usize {
        self.released.len()
    }

    /// The key of the next blocked message before which all ready ones were looked at.
    pub(crate) fn pop_looked_at(&mut self, next_ready: u64) -> Option<u64> {
        let (seq, hash) = self.unlooked.first().copied().filter(|(seq, _)| next_ready > *seq)?;
        self.unlooked.remove(&(seq, hash));
        Some(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_busy_while_a_message_is_out_or_holds_it() {
        let mut keys = KeyGate::default();
        keys.start(9, 1);
        let passed = Passed { key: 9, was: Was::Fresh, pointer: Pointer::new(0, 64) };
        keys.pass(2, passed);
        keys.pass(3, passed);
        keys.end(9, 2);
        assert!(keys.is_busy(9), "another message is out");
        keys.end(9, 1);
        keys.in_line(2, 9);
        keys.in_line(2, 9);
        assert!(keys.is_busy(9) && !keys.is_passed(2) && keys.is_passed(3));
        keys.in_line(3, 9);
        assert!(!keys.is_busy(9) && keys.is_idle() && keys.wants_release(9));
    }

    #[test]
    fn a_blocked_message_waits_until_ready_ones_before_it_were_looked_at() {
        let mut keys = KeyGate::default();
        keys.release((9, 5), 5);
        assert!(keys.released() == 0 && keys.pop_looked_at(5).is_none());
        assert_eq!(keys.pop_looked_at(6), Some(9));
        keys.release((9, 5), 6);
        assert!(!keys.wants_release(9));
        assert_eq!((keys.pop_released(), keys.pop_released()), (Some((9, 5)), None));
        assert!(keys.wants_release(9));
    }
}
