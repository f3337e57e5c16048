//! The latest success of each recent key: replaying an older message of such a key would overwrite newer state.
//!
//! Bounded to two generations of keys. When the younger one is full, the older one is forgotten, and
//! [`KeySuccesses::since`] says from when on the answers are complete. The keys are saved periodically and at the
//! end, so that a restart does not forget them. Successes that a killed process had not saved are a gap, which is
//! reported.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use redrive_core::Time;

/// Maximum keys per generation.
const GENERATION_MAX: usize = 50_000;
/// Gaps that are remembered. With one more, everything before the end of the oldest gap is forgotten.
const GAPS_MAX: usize = 8;
/// How often they are saved, and so how much a killed process can lose.
const SAVE_EVERY: Duration = Duration::from_secs(20);
/// The first word of the saved form. A different word means a different version, which is not read.
const MAGIC: u64 = u64::from_le_bytes(*b"keysucc1");

#[derive(Clone, Debug, Default)]
pub struct KeySuccesses {
    /// The highest number of a message that succeeded, by the hash of its key.
    recent: HashMap<u64, u64>,
    older: HashMap<u64, u64>,
    recent_since: Time,
    /// From when on successes are known; `None` before the process began to deliver.
    since: Option<Time>,
    /// Spans in which successes are unknown.
    gaps: Vec<Range<Time>>,
    is_unsaved: bool,
    saved_at: Option<Time>,
}

/// Whether the process continued after the save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    WhileRunning,
    AtEnd,
}

impl KeySuccesses {
    /// Begins to deliver, with the state saved by the previous process. Unreadable state is ignored.
    pub(super) fn begin(saved: &[u8], now: Time) -> Self {
        let mut known = Self::read(saved, now).unwrap_or_default();
        if known.since.is_none() {
            (known.since, known.recent_since) = (Some(now), now);
        }
        // The saved state may be marked as final, which is no longer true.
        known.is_unsaved = true;
        known
    }

    /// A message of this key was delivered.
    pub(super) fn note(&mut self, key: &[u8], number: u64, now: Time) {
        self.is_unsaved = true;
        let key = hash(key);
        if let Some(latest) = self.recent.get_mut(&key) {
            *latest = (*latest).max(number);
            return;
        }
        if self.recent.len() >= GENERATION_MAX {
            self.older = std::mem::take(&mut self.recent);
            let forgotten_before = std::mem::replace(&mut self.recent_since, now);
            self.since = Some(forgotten_before);
            self.gaps.retain(|gap| gap.end > forgotten_before);
        }
        self.recent.insert(key, number);
    }

    /// Whether a later message of this key than the one with this number succeeded.
    pub fn is_superseded(&self, key: &[u8], number: u64) -> bool {
        let key = hash(key);
        [&self.recent, &self.older].iter().any(|known| known.get(&key).is_some_and(|latest| *latest > number))
    }

    /// From when on successes are known; `None` before the process began to deliver.
    pub fn since(&self) -> Option<Time> {
        self.since
    }

    /// Spans since then in which successes are unknown, in order.
    pub fn gaps(&self) -> &[Range<Time>] {
        &self.gaps
    }

    /// The state to save, if it has changed and a save is due.
    pub(super) fn save_if_due(&mut self, now: Time) -> Option<Vec<u8>> {
        let is_due = self.is_unsaved && self.saved_at.is_none_or(|at| now.since(at) >= SAVE_EVERY);
        is_due.then(|| self.save(Saved::WhileRunning, now))
    }

    /// Encodes the state as words of eight bytes and a checksum.
    pub(super) fn save(&mut self, saved: Saved, now: Time) -> Vec<u8> {
        (self.is_unsaved, self.saved_at) = (false, Some(now));
        let mut words = vec![MAGIC, u64::from(saved == Saved::AtEnd), now.as_millis()];
        words.extend([self.since.unwrap_or(now).as_millis(), self.recent_since.as_millis()]);
        words.extend([self.gaps.len(), self.recent.len(), self.older.len()].map(|len| len as u64));
        words.extend(self.gaps.iter().flat_map(|gap| [gap.start.as_millis(), gap.end.as_millis()]));
        words.extend(self.recent.iter().chain(&self.older).flat_map(|(key, number)| [*key, *number]));
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(u64::from(crc32fast::hash(&bytes)).to_le_bytes());
        bytes
    }

    fn read(saved: &[u8], now: Time) -> Option<Self> {
        let (content, checksum) = saved.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*checksum) != u64::from(crc32fast::hash(content)) {
            return None;
        }
        let (chunks, []) = content.as_chunks::<8>() else { return None };
        let words: Vec<u64> = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        let (head, rest) = words.split_first_chunk::<8>()?;
        let [MAGIC, at_end, saved_at, since, recent_since, gaps, recent, older] = *head else { return None };
        let (pairs, []) = rest.as_chunks::<2>() else { return None };
        let (gaps, pairs) = pairs.split_at_checked(usize::try_from(gaps).ok()?)?;
        let (recent, older_pairs) = pairs.split_at_checked(usize::try_from(recent).ok()?)?;
        if older_pairs.len() as u64 != older {
            return None;
        }
        let time = Time::from_millis;
        let map = |pairs: &[[u64; 2]]| pairs.iter().map(|[key, number]| (*key, *number)).collect();
        let span = |[from, until]: &[u64; 2]| time(*from)..time(*until);
        let mut known = Self {
            recent: map(recent),
            older: map(older_pairs),
            recent_since: time(recent_since),
            since: Some(time(since)),
            gaps: gaps.iter().map(span).collect(),
            ..Self::default()
        };
        if at_end == 0 {
            known.gaps.push(time(saved_at)..now.max(time(saved_at)));
        }
        if known.gaps.len() > GAPS_MAX {
            known.since = Some(known.gaps.remove(0).end);
        }
        Some(known)
    }
}

/// Keys with equal hashes are reported as one, which is tolerable because nothing is decided by it.
fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    fn fresh(now: Time) -> KeySuccesses {
        KeySuccesses::begin(&[], now)
    }

    #[test]
    fn only_a_later_message_of_the_key_supersedes_a_letter() {
        let mut successes = KeySuccesses::default();
        assert_eq!((successes.since(), successes.is_superseded(b"c-1", 0)), (None, false));
        successes = fresh(at(1));
        successes.note(b"c-1", 7, at(1));
        successes.note(b"c-1", 5, at(2));
        assert!(successes.is_superseded(b"c-1", 6));
        assert!(!successes.is_superseded(b"c-1", 7), "its own replay does not supersede it");
        assert!(!successes.is_superseded(b"c-2", 0));
        assert_eq!(successes.since(), Some(at(1)));
    }

    #[test]
    fn it_is_bounded_and_says_from_when_on_it_knows() {
        let mut successes = fresh(at(0));
        let keys = 3 * GENERATION_MAX as u64;
        for n in 0..keys {
            successes.note(&n.to_le_bytes(), 9, at(n));
        }
        assert_eq!(successes.recent.len() + successes.older.len(), 2 * GENERATION_MAX);
        let since = successes.since().map_or(0, Time::as_millis) / 1000;
        assert_eq!(since, GENERATION_MAX as u64);
        assert!(!successes.is_superseded(&(since - 1).to_le_bytes(), 0), "forgotten");
        assert!((since..keys).all(|n| successes.is_superseded(&n.to_le_bytes(), 0)));
        let saved = successes.save(Saved::AtEnd, at(keys));
        assert!(saved.len() < 2 * 1024 * 1024, "{} bytes", saved.len());
        let next = KeySuccesses::begin(&saved, at(keys + 1));
        assert!((since..keys).all(|n| next.is_superseded(&n.to_le_bytes(), 0)), "both generations");
    }

    #[test]
    fn after_a_clean_end_the_next_process_knows_all_of_it() {
        let mut first = fresh(at(10));
        first.note(b"c-1", 7, at(11));
        let saved = first.save(Saved::AtEnd, at(20));
        let mut next = KeySuccesses::begin(&saved, at(500));
        assert_eq!((next.since(), next.gaps()), (Some(at(10)), &[][..]));
        assert!(next.is_superseded(b"c-1", 6));
        // It saves at once that it has begun: if it is killed a moment later, there is a gap.
        let saved = next.save_if_due(at(500)).unwrap();
        let third = KeySuccesses::begin(&saved, at(501));
        assert_eq!(third.gaps(), [at(500)..at(501)]);
    }

    #[test]
    fn what_a_killed_process_had_not_saved_is_a_gap() {
        let mut first = fresh(at(10));
        assert!(first.save_if_due(at(10)).is_some(), "that it runs");
        assert_eq!(first.save_if_due(at(60)), None, "nothing is new");
        first.note(b"c-1", 7, at(61));
        let saved = first.save_if_due(at(62)).unwrap();
        first.note(b"c-2", 8, at(63));
        assert_eq!(first.save_if_due(at(64)), None, "too early");
        let mut next = KeySuccesses::begin(&saved, at(70));
        assert!(next.is_superseded(b"c-1", 6) && !next.is_superseded(b"c-2", 6));
        assert_eq!((next.since(), next.gaps()), (Some(at(10)), &[at(62)..at(70)][..]));
        for life in 0..GAPS_MAX as u64 {
            let saved = next.save(Saved::WhileRunning, at(100 + 10 * life));
            next = KeySuccesses::begin(&saved, at(105 + 10 * life));
        }
        assert_eq!(
            (next.gaps().len(), next.since()),
            (GAPS_MAX, Some(at(70))),
            "the oldest gap is the new beginning"
        );
    }

    #[test]
    fn what_is_damaged_or_cut_off_says_nothing() {
        let mut first = fresh(at(10));
        first.note(b"c-1", 7, at(11));
        first.gaps.push(at(3)..at(4));
        let saved = first.save(Saved::AtEnd, at(20));
        for len in 0..saved.len() {
            assert_eq!(
                KeySuccesses::begin(&saved[..len], at(30)).since(),
                Some(at(30)),
                "the first {len} bytes"
            );
        }
        for byte in 0..saved.len() {
            let mut damaged = saved.clone();
            damaged[byte] ^= 0x40;
            assert_eq!(KeySuccesses::begin(&damaged, at(30)).since(), Some(at(30)), "byte {byte}");
        }
    }
}
