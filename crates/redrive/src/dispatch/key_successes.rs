//! The latest success of each recent key: replaying an older message of such a key would overwrite newer state.
//!
//! How late a message is says its number, in the order in which the pipeline took messages. An imported letter has a number
//! that says nothing of the kind, and what is replayed may be one; so these are compared by when they were created.
//!
//! Bounded: two generations of keys. When the younger one is full the older one is forgotten, and [`KeySuccesses::since`]
//! says from when on the answers are complete. They are saved now and then and at the end, so that a restart does not forget
//! them; what a killed process had not saved is a gap, which is reported.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use redrive_core::Time;

use crate::engine::OwnShare;
use crate::engine::position::PartitionOffset;

/// Keys of one generation.
const GENERATION_MAX: usize = 50_000;
/// Gaps that are remembered. With one more, everything before the end of the oldest gap is forgotten.
const GAPS_MAX: usize = 8;
/// How often they are saved, and so how much a killed process can lose.
const SAVE_EVERY: Duration = Duration::from_secs(20);
/// The first word of what is saved; another one is another version, and not understood.
const MAGIC: u64 = u64::from_le_bytes(*b"keysucc2");

#[derive(Clone, Debug, Default)]
pub struct KeySuccesses {
    /// The latest that succeeded, by the hash of its key.
    recent: HashMap<u64, Latest>,
    older: HashMap<u64, Latest>,
    recent_since: Time,
    /// From when on successes are known; `None` before the process began to deliver.
    since: Option<Time>,
    /// Spans in which successes are unknown.
    gaps: Vec<Range<Time>>,
    is_unsaved: bool,
    saved_at: Option<Time>,
    /// Where other processes deliver too, what of the pipeline is this one's.
    share: Option<OwnShare>,
}

/// The latest message of a key that succeeded.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    /// The highest number of one that was delivered without a replay; 0 if there was none, since nothing comes before it.
    number: u64,
    created: Time,
}

/// Whether a later message of a key has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterSuccess {
    Yes,
    No,
    /// This process does not know of all that succeeded since the message was created.
    Unknown,
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

    /// A message of this key was delivered; one that was replayed has no number that counts.
    pub(super) fn note(&mut self, key: &[u8], number: Option<u64>, created: Time, now: Time) {
        self.is_unsaved = true;
        let key = hash(key);
        let number = number.unwrap_or(0);
        if let Some(latest) = self.recent.get_mut(&key) {
            *latest = Latest { number: latest.number.max(number), created: latest.created.max(created) };
            return;
        }
        if self.recent.len() >= GENERATION_MAX {
            self.older = std::mem::take(&mut self.recent);
            let forgotten_before = std::mem::replace(&mut self.recent_since, now);
            self.since = Some(forgotten_before);
            self.gaps.retain(|gap| gap.end > forgotten_before);
        }
        self.recent.insert(key, Latest { number, created });
    }

    /// These successes are only of this part of the pipeline.
    #[must_use]
    pub fn of_share(self, share: Option<OwnShare>) -> Self {
        Self { share, ..self }
    }

    /// Whether a message of this key is known to have succeeded that came after the one with this number.
    pub fn is_superseded(&self, key: &[u8], number: u64, created: Time) -> bool {
        let key = hash(key);
        let is_later = |latest: &Latest| latest.number > number || latest.created > created;
        [&self.recent, &self.older].iter().any(|known| known.get(&key).is_some_and(is_later))
    }

    /// The same, and whether that is all there is to know.
    pub fn later(&self, key: &[u8], number: u64, created: Time) -> LaterSuccess {
        let in_gap = self.gaps.iter().any(|gap| created < gap.end);
        if self.is_superseded(key, number, created) {
            LaterSuccess::Yes
        } else if in_gap || self.is_older(number, created) {
            LaterSuccess::Unknown
        } else {
            LaterSuccess::No
        }
    }

    /// Whether a message was created before successes of its part of the pipeline are known.
    pub fn is_older(&self, number: u64, created: Time) -> bool {
        let own_since = |share: &OwnShare| {
            share.partitions.contains(&PartitionOffset::of(number).partition).then_some(share.since)
        };
        let is_known = self.since.is_some_and(|since| since <= created)
            && self.share.as_ref().is_none_or(|share| own_since(share).is_some_and(|since| since <= created));
        !is_known
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
        let latest = self.recent.iter().chain(&self.older);
        words.extend(latest.flat_map(|(key, latest)| [*key, latest.number, latest.created.as_millis()]));
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
        let (gaps, rest) = rest.split_at_checked(usize::try_from(gaps).ok()?.checked_mul(2)?)?;
        let (gaps, []) = gaps.as_chunks::<2>() else { return None };
        let (latest, []) = rest.as_chunks::<3>() else { return None };
        let (recent, older_latest) = latest.split_at_checked(usize::try_from(recent).ok()?)?;
        if older_latest.len() as u64 != older {
            return None;
        }
        let time = Time::from_millis;
        let latest =
            |[key, number, created]: &[u64; 3]| (*key, Latest { number: *number, created: time(*created) });
        let map = |latest_of: &[[u64; 3]]| latest_of.iter().map(latest).collect();
        let span = |[from, until]: &[u64; 2]| time(*from)..time(*until);
        let mut known = Self {
            recent: map(recent),
            older: map(older_latest),
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
    use std::collections::HashSet;

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
        assert_eq!((successes.since(), successes.is_superseded(b"c-1", 0, at(0))), (None, false));
        successes = fresh(at(1));
        successes.note(b"c-1", Some(7), at(0), at(1));
        successes.note(b"c-1", Some(5), at(0), at(2));
        assert!(successes.is_superseded(b"c-1", 6, at(0)));
        assert!(!successes.is_superseded(b"c-1", 7, at(0)), "its own replay does not supersede it");
        assert!(!successes.is_superseded(b"c-2", 0, at(0)));
        assert_eq!(successes.since(), Some(at(1)));
    }

    /// An imported letter has a number behind all others, whenever its message was created.
    #[test]
    fn imported_letters_and_replays_are_compared_by_when_they_were_created() {
        let mut successes = fresh(at(0));
        successes.note(b"c-1", Some(7), at(20), at(21));
        assert!(successes.is_superseded(b"c-1", 90, at(10)), "it was created before");
        assert!(!successes.is_superseded(b"c-1", 90, at(30)));
        // The replay of one that was created long ago.
        successes.note(b"c-2", None, at(10), at(22));
        assert!(!successes.is_superseded(b"c-2", 5, at(15)), "its number says nothing");
        assert!(successes.is_superseded(b"c-2", 5, at(5)));
        let next = KeySuccesses::begin(&successes.save(Saved::AtEnd, at(30)), at(31));
        assert!(next.is_superseded(b"c-1", 90, at(10)) && !next.is_superseded(b"c-2", 5, at(15)));
    }

    #[test]
    fn what_cannot_be_known_is_said_to_be_unknown() {
        let later = |successes: &KeySuccesses, number, created| successes.later(b"c-1", number, at(created));
        assert_eq!(later(&KeySuccesses::default(), 6, 50), LaterSuccess::Unknown, "nothing is delivered yet");
        let mut successes = fresh(at(10));
        successes.gaps.push(at(20)..at(30));
        assert_eq!(later(&successes, 6, 9), LaterSuccess::Unknown, "of before this process");
        assert_eq!(later(&successes, 6, 29), LaterSuccess::Unknown, "of before the end of a gap");
        assert_eq!(later(&successes, 6, 30), LaterSuccess::No);
        successes.note(b"c-1", Some(7), at(40), at(41));
        assert_eq!(later(&successes, 6, 9), LaterSuccess::Yes, "what is known counts");
        // One member of several: partition 1 is another's, and so is whatever has no partition.
        let share = OwnShare { partitions: HashSet::from([0]), since: at(50) };
        let member = fresh(at(10)).of_share(Some(share));
        let number = |partition| PartitionOffset { partition, offset: 7 }.number();
        assert_eq!(later(&member, number(0), 50), LaterSuccess::No);
        assert_eq!(later(&member, number(0), 49), LaterSuccess::Unknown, "another member had it then");
        assert_eq!(later(&member, number(1), 60), LaterSuccess::Unknown);
        assert_eq!(later(&member, PartitionOffset::made(7).number(), 60), LaterSuccess::Unknown);
    }

    #[test]
    fn it_is_bounded_and_says_from_when_on_it_knows() {
        let mut successes = fresh(at(0));
        let keys = 3 * GENERATION_MAX as u64;
        for n in 0..keys {
            successes.note(&n.to_le_bytes(), Some(9), at(0), at(n));
        }
        assert_eq!(successes.recent.len() + successes.older.len(), 2 * GENERATION_MAX);
        let since = successes.since().map_or(0, Time::as_millis) / 1000;
        assert_eq!(since, GENERATION_MAX as u64);
        assert!(!successes.is_superseded(&(since - 1).to_le_bytes(), 0, at(0)), "forgotten");
        assert!((since..keys).all(|n| successes.is_superseded(&n.to_le_bytes(), 0, at(0))));
        let saved = successes.save(Saved::AtEnd, at(keys));
        assert!(saved.len() < 3 * 1024 * 1024, "{} bytes", saved.len());
        let next = KeySuccesses::begin(&saved, at(keys + 1));
        assert!((since..keys).all(|n| next.is_superseded(&n.to_le_bytes(), 0, at(0))), "both generations");
    }

    #[test]
    fn after_a_clean_end_the_next_process_knows_all_of_it() {
        let mut first = fresh(at(10));
        first.note(b"c-1", Some(7), at(0), at(11));
        let saved = first.save(Saved::AtEnd, at(20));
        let mut next = KeySuccesses::begin(&saved, at(500));
        assert_eq!((next.since(), next.gaps()), (Some(at(10)), &[][..]));
        assert!(next.is_superseded(b"c-1", 6, at(0)));
        // And says at once that it has begun: who is killed a moment later has left a gap.
        let saved = next.save_if_due(at(500)).unwrap();
        let third = KeySuccesses::begin(&saved, at(501));
        assert_eq!(third.gaps(), [at(500)..at(501)]);
    }

    #[test]
    fn what_a_killed_process_had_not_saved_is_a_gap() {
        let mut first = fresh(at(10));
        assert!(first.save_if_due(at(10)).is_some(), "that it runs");
        assert_eq!(first.save_if_due(at(60)), None, "nothing is new");
        first.note(b"c-1", Some(7), at(0), at(61));
        let saved = first.save_if_due(at(62)).unwrap();
        first.note(b"c-2", Some(8), at(0), at(63));
        assert_eq!(first.save_if_due(at(64)), None, "too early");
        let mut next = KeySuccesses::begin(&saved, at(70));
        assert!(next.is_superseded(b"c-1", 6, at(0)) && !next.is_superseded(b"c-2", 6, at(0)));
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
        first.note(b"c-1", Some(7), at(0), at(11));
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
