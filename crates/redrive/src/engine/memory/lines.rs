//! The key lines of the memory engine: the order in which messages of a key wait, and which keys are held.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

#[derive(Default)]
pub(super) struct KeyLines {
    /// The messages in each key line; only the first may run.
    lines: HashMap<Bytes, BTreeSet<u64>>,
    /// Claimed messages with their keys: no message of these keys starts until they are settled.
    claimed: BTreeMap<u64, Option<Bytes>>,
}

impl KeyLines {
    pub(super) fn join(&mut self, key: Bytes, seq: u64) {
        self.lines.entry(key).or_default().insert(seq);
    }

    pub(super) fn leave(&mut self, key: &Bytes, seq: u64) {
        if let Some(line) = self.lines.get_mut(key) {
            line.remove(&seq);
            if line.is_empty() {
                self.lines.remove(key);
            }
        }
    }

    /// The messages of a key, in order.
    pub(super) fn of(&self, key: &[u8]) -> Option<&BTreeSet<u64>> {
        self.lines.get(key)
    }

    pub(super) fn first(&self, key: &Bytes) -> Option<u64> {
        self.lines.get(key)?.first().copied()
    }

    /// Claims a message: its key is held until it is settled.
    pub(super) fn claim(&mut self, seq: u64, key: Option<Bytes>) {
        self.claimed.insert(seq, key);
    }

    /// Ends a claim; returns whether there was one.
    pub(super) fn unclaim(&mut self, seq: u64) -> bool {
        self.claimed.remove(&seq).is_some()
    }

    pub(super) fn is_held(&self, key: &Bytes) -> bool {
        self.claimed.values().flatten().any(|claimed| claimed == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_order_and_is_gone_when_it_is_empty() {
        let (mut lines, key) = (KeyLines::default(), Bytes::from_static(b"k"));
        [7, 3, 5].into_iter().for_each(|seq| lines.join(key.clone(), seq));
        assert_eq!(lines.first(&key), Some(3));
        [3, 5, 7].into_iter().for_each(|seq| lines.leave(&key, seq));
        assert_eq!((lines.first(&key), lines.of(b"k")), (None, None));
    }

    #[test]
    fn a_key_is_held_until_what_was_claimed_of_it_is_settled() {
        let (mut lines, key) = (KeyLines::default(), Bytes::from_static(b"k"));
        lines.claim(1, Some(key.clone()));
        lines.claim(2, None);
        assert!(lines.is_held(&key) && !lines.is_held(&Bytes::from_static(b"other")));
        assert!(lines.unclaim(1) && !lines.unclaim(1) && !lines.is_held(&key));
    }
}
