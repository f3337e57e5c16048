//! Which keys had a success lately, and how late a message it was: a replay of an older message of such a key writes old
//! state over new.
//!
//! Bounded: two generations of keys. When the younger one is full the older one is forgotten, and [`KeySuccesses::since`]
//! says from when on the answers are complete.

use std::collections::HashMap;

use redrive_core::Time;

/// Keys of one generation.
const GENERATION_MAX: usize = 50_000;

#[derive(Clone, Debug, Default)]
pub struct KeySuccesses {
    /// The highest number of a message that succeeded, by the hash of its key.
    recent: HashMap<u64, u64>,
    older: HashMap<u64, u64>,
    recent_since: Option<Time>,
    since: Option<Time>,
}

impl KeySuccesses {
    /// A message of this key was delivered.
    pub(super) fn note(&mut self, key: &[u8], number: u64, now: Time) {
        let key = hash(key);
        if let Some(latest) = self.recent.get_mut(&key) {
            *latest = (*latest).max(number);
            return;
        }
        if self.recent.len() >= GENERATION_MAX {
            self.older = std::mem::take(&mut self.recent);
            self.since = self.recent_since.replace(now);
        }
        self.since.get_or_insert(now);
        self.recent_since.get_or_insert(now);
        self.recent.insert(key, number);
    }

    /// Whether a message of this key succeeded that came after the one with this number.
    pub fn is_superseded(&self, key: &[u8], number: u64) -> bool {
        let key = hash(key);
        [&self.recent, &self.older].iter().any(|known| known.get(&key).is_some_and(|latest| *latest > number))
    }

    /// Nothing was delivered before this moment that is not known. Has no effect once a success is known.
    pub(super) fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
        self.recent_since.get_or_insert(now);
    }

    /// From when on successes are known; `None` before the process began to deliver.
    pub fn since(&self) -> Option<Time> {
        self.since
    }
}

/// Two keys with one hash are reported as one; nothing is decided by it.
fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    #[test]
    fn only_a_later_message_of_the_key_supersedes_a_letter() {
        let mut successes = KeySuccesses::default();
        assert_eq!((successes.since(), successes.is_superseded(b"c-1", 0)), (None, false));
        successes.note(b"c-1", 7, at(1));
        successes.note(b"c-1", 5, at(2));
        assert!(successes.is_superseded(b"c-1", 6));
        assert!(!successes.is_superseded(b"c-1", 7), "its own replay does not supersede it");
        assert!(!successes.is_superseded(b"c-2", 0));
        assert_eq!(successes.since(), Some(at(1)));
    }

    #[test]
    fn a_process_that_has_delivered_nothing_knows_that_since_it_began() {
        let mut successes = KeySuccesses::default();
        successes.begin(at(3));
        successes.begin(at(4));
        successes.note(b"c-1", 7, at(5));
        assert_eq!(successes.since(), Some(at(3)));
    }

    #[test]
    fn it_is_bounded_and_says_from_when_on_it_knows() {
        let mut successes = KeySuccesses::default();
        let keys = 3 * GENERATION_MAX as u64;
        for n in 0..keys {
            successes.note(&n.to_le_bytes(), 9, at(n));
        }
        assert_eq!(successes.recent.len() + successes.older.len(), 2 * GENERATION_MAX);
        let since = successes.since().map_or(0, Time::as_millis) / 1000;
        assert_eq!(since, GENERATION_MAX as u64);
        assert!(!successes.is_superseded(&(since - 1).to_le_bytes(), 0), "forgotten");
        assert!((since..keys).all(|n| successes.is_superseded(&n.to_le_bytes(), 0)));
    }
}
