//! How far a partition is done, as a note beside the committed offset and as bitmaps in `T.progress`.
//!
//! Only the number of repeats depends on it: what it omits is delivered again, and what it says stays true for as long
//! as the topic lives, because an offset is never reused.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use redrive::internal::engine::completion::CompletionSet;

use crate::crash::crashes::{Crashes, Named, read_alone, read_crashed};

/// Brokers accept 4,096 bytes of metadata by default.
pub const NOTE_BYTES_MAX: usize = 4_000;
/// Offsets in one bitmap.
pub const CHUNK: u64 = 65_536;

const VERSION: &str = "v1";
/// Longer runs are taken for damaged text.
const RUN_MAX: u64 = 1 << 26;

/// The note committed beside an offset.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CommitNote {
    /// Whether Redrive wrote it. Another tool that commits an offset says nothing about what was running.
    pub is_ours: bool,
    /// Whether the last owner ended cleanly, with nothing it had taken left undecided.
    pub clean: bool,
    /// One past the highest offset that may have been handed out.
    pub taken: u64,
    /// For a tier: messages due later than this were not handed out.
    pub until: Option<u64>,
    /// The run of the process, if its local file says exactly what was handed out.
    pub by: Option<u64>,
    /// The run of the process that wrote it.
    pub of: Option<u64>,
    /// Messages that ran alone when a process died, by offset.
    pub crashed: Vec<(u64, Crashes)>,
    /// Messages that were announced to run alone, one after the other.
    pub alone: BTreeSet<u64>,
    /// Whether more is done than `runs` says; the rest is in `T.progress`.
    pub more: bool,
    /// What is done beyond the committed offset, as (first, count).
    pub runs: Vec<(u64, u64)>,
    /// How many messages of the partition were being delivered. Only shown to people, by `status --members`.
    pub out: u64,
}

/// The state of a partition, besides what is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitStanding<'a> {
    pub clean: bool,
    pub taken: u64,
    pub until: Option<u64>,
    pub by: Option<u64>,
    pub of: Option<u64>,
    pub named: Option<Named<'a>>,
    /// How many are being delivered.
    pub out: usize,
}

impl CommitStanding<'_> {
    /// Returns the standing after a clean end: nothing was left undecided.
    pub fn clean(taken: u64) -> Self {
        Self { clean: true, taken, ..Self::default() }
    }
}

/// Returns the note for a partition with completions `done`, and whether it holds all of them.
pub fn note(standing: &CommitStanding<'_>, done: &CompletionSet) -> (String, bool) {
    let CommitStanding { clean, taken, until, by, of, named, out } = standing;
    let mut text = format!("{VERSION} {} taken={taken}", if *clean { "clean" } else { "open" });
    if let Some(until) = until {
        let _ = write!(text, " until={until}");
    }
    match (by, of) {
        (Some(by), _) => drop(write!(text, " by={by:x}")),
        (None, Some(of)) => drop(write!(text, " of={of:x}")),
        (None, None) => {}
    }
    if let Some(named) = named {
        named.write(&mut text);
    }
    if *out > 0 {
        let _ = write!(text, " out={out}");
    }
    let mut whole = true;
    let mut end = done.prefix();
    let mut separator = " done=";
    for (first, count) in DoneRuns::beyond_prefix(done) {
        let before = text.len();
        let _ = write!(text, "{separator}{}+{count}", first - end);
        if text.len() + " more".len() > NOTE_BYTES_MAX {
            text.truncate(before);
            whole = false;
            break;
        }
        separator = ",";
        end = first + count;
    }
    if !whole {
        text.push_str(" more");
    }
    (text, whole)
}

impl CommitNote {
    /// Reads the note beside the committed `offset`. Text of another tool, or of a later version, is ignored.
    pub fn read(text: &str, offset: u64) -> Self {
        let mut words = text.split(' ');
        let mut note = Self { taken: offset, ..Self::default() };
        if words.next() != Some(VERSION) {
            return note;
        }
        note.is_ours = true;
        for word in words {
            match word.split_once('=') {
                None => {
                    note.clean |= word == "clean";
                    note.more |= word == "more";
                }
                Some(("taken", value)) => note.taken = value.parse().unwrap_or(offset).max(offset),
                Some(("out", value)) => note.out = value.parse().unwrap_or(0),
                Some(("until", value)) => note.until = value.parse().ok(),
                Some(("by", value)) => {
                    note.by = u64::from_str_radix(value, 16).ok();
                    note.of = note.by;
                }
                Some(("of", value)) => note.of = u64::from_str_radix(value, 16).ok(),
                Some(("crashed", value)) => note.crashed = read_crashed(value),
                Some(("alone", value)) => note.alone = read_alone(value),
                Some(("done", value)) => note.runs = runs(value, offset),
                Some(_) => {}
            }
        }
        note
    }
}

fn runs(text: &str, offset: u64) -> Vec<(u64, u64)> {
    let mut end = offset;
    let mut runs = Vec::new();
    for run in text.split(',') {
        let Some((gap, count)) = run.split_once('+') else { break };
        let (Ok(gap), Ok(count)) = (gap.parse::<u64>(), count.parse::<u64>()) else { break };
        let Some(first) = end.checked_add(gap) else { break };
        // Damaged text must not cause hours of counting.
        let Some(last) = first.checked_add(count).filter(|_| count <= RUN_MAX) else { break };
        runs.push((first, count));
        end = last;
    }
    runs
}

/// Iterates over the completed runs beyond the prefix. It is lazy: there may be a million runs, and only a few fit.
struct DoneRuns<W> {
    words: W,
    word: u64,
    at: u64,
    from: u64,
}

impl<W: Iterator<Item = u64>> DoneRuns<W> {
    fn next_word(&mut self) -> Option<()> {
        self.word = self.words.next()?;
        Some(())
    }
}

impl DoneRuns<()> {
    fn beyond_prefix(done: &CompletionSet) -> DoneRuns<impl Iterator<Item = u64>> {
        let from = done.prefix();
        let first = from / 64 * 64;
        let mut words = done.words_from(first);
        let word = words.next().unwrap_or(0);
        DoneRuns { words, word, at: first, from }
    }
}

impl<W: Iterator<Item = u64>> Iterator for DoneRuns<W> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        // Advance to the first completed number at or after `from`.
        loop {
            let bit = self.from.saturating_sub(self.at).min(64);
            let left = if bit == 64 { 0 } else { self.word & (u64::MAX << bit) };
            if left != 0 {
                self.from = self.at + u64::from(left.trailing_zeros());
                break;
            }
            self.next_word()?;
            self.at += 64;
            self.from = self.from.max(self.at);
        }
        let first = self.from;
        loop {
            let bit = self.from - self.at;
            let ones = u64::from((self.word >> bit).trailing_ones());
            self.from += ones;
            if self.from - self.at < 64 {
                break;
            }
            if self.next_word().is_none() {
                self.word = 0;
            }
            self.at += 64;
        }
        Some((first, self.from - first))
    }
}

/// Returns the key of a bitmap in `T.progress`.
pub fn chunk_key(topic: &str, partition: i32, chunk: u64) -> String {
    format!("{topic}/{partition}/{chunk}")
}

/// Parses a key into topic, partition and number of a bitmap.
pub fn read_chunk_key(key: &str) -> Option<(&str, i32, u64)> {
    let mut parts = key.rsplitn(3, '/');
    let chunk = parts.next()?.parse().ok()?;
    let partition = parts.next()?.parse().ok()?;
    Some((parts.next()?, partition, chunk))
}

/// Returns the bitmap of a chunk, without trailing zeros.
pub fn chunk_bytes(done: &CompletionSet, chunk: u64) -> Vec<u8> {
    let words = done.words_from(chunk * CHUNK).take((CHUNK / 64) as usize);
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

/// Marks in `done` the offsets of a bitmap.
pub fn apply_chunk(done: &mut CompletionSet, chunk: u64, bytes: &[u8]) {
    for (at, byte) in bytes.iter().take((CHUNK / 8) as usize).enumerate() {
        for bit in (0..8).filter(|bit| byte >> bit & 1 != 0) {
            done.insert(chunk * CHUNK + at as u64 * 8 + bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(taken: u64) -> CommitStanding<'static> {
        CommitStanding { taken, ..CommitStanding::default() }
    }

    fn set(start: u64, numbers: &[u64]) -> CompletionSet {
        let mut done = CompletionSet::starting_at(start);
        for number in numbers {
            done.insert(*number);
        }
        done
    }

    #[test]
    fn the_text_is_readable() {
        let (text, whole) = note(&open(12), &set(3, &[5, 6, 9]));
        assert_eq!(text, "v1 open taken=12 done=2+2,2+1");
        assert!(whole);
        let read = CommitNote::read(&text, 3);
        let noted =
            CommitNote { is_ours: true, taken: 12, runs: vec![(5, 2), (9, 1)], ..CommitNote::default() };
        assert_eq!(read, noted);
        let (text, _) = note(&CommitStanding { out: 3, ..open(12) }, &set(3, &[5, 6, 9]));
        assert_eq!(CommitNote::read(&text, 3), CommitNote { out: 3, ..read });
        assert_eq!(note(&CommitStanding::clean(3), &set(3, &[])).0, "v1 clean taken=3");
        let tier = CommitStanding { until: Some(77), by: Some(171), ..open(3) };
        assert_eq!(note(&tier, &set(3, &[])).0, "v1 open taken=3 until=77 by=ab");
        let read = CommitNote::read("v1 open taken=3 until=77 by=ab", 3);
        assert_eq!((read.until, read.by, read.of), (Some(77), Some(171), Some(171)));
        let inexact = CommitStanding { of: Some(171), ..open(3) };
        let text = note(&inexact, &set(3, &[])).0;
        assert_eq!(text, "v1 open taken=3 of=ab");
        let read = CommitNote::read(&text, 3);
        assert_eq!((read.by, read.of), (None, Some(171)));
    }

    #[test]
    fn somebody_elses_text_says_nothing() {
        for text in ["", "hello", "v2 clean taken=99"] {
            assert_eq!(CommitNote::read(text, 7), CommitNote { taken: 7, ..CommitNote::default() }, "{text}");
        }
        let damaged = CommitNote::read("v1 open taken=x done=a+b,,", 7);
        assert_eq!(damaged, CommitNote { is_ours: true, taken: 7, ..CommitNote::default() });
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_elsewhere() {
        let every_second: Vec<u64> = (0..10_000).map(|n| n * 2 + 1).collect();
        let (text, whole) = note(&open(20_000), &set(0, &every_second));
        assert!(!whole && text.len() <= NOTE_BYTES_MAX);
        let read = CommitNote::read(&text, 0);
        assert!(read.more && read.runs.len() > 500);
        assert!(read.runs.iter().all(|(first, count)| first % 2 == 1 && *count == 1));
    }

    #[test]
    fn a_topic_may_have_slashes_in_no_name_but_dots() {
        assert_eq!(read_chunk_key(&chunk_key("orders.retry.5s", 7, 12)), Some(("orders.retry.5s", 7, 12)));
        assert_eq!(read_chunk_key("orders"), None);
    }

    proptest! {
        #[test]
        fn notes_and_bitmaps_bring_every_mark_back(
            start in 0u64..300, numbers in prop::collection::vec(0u64..200_000, 0..300)
        ) {
            let done = set(start, &numbers);
            let prefix = done.prefix();
            prop_assert_eq!(DoneRuns::beyond_prefix(&done).collect::<Vec<_>>(), done.runs());
            let (text, whole) = note(&open(1), &done);
            let mut again = CompletionSet::starting_at(prefix);
            for (first, count) in CommitNote::read(&text, prefix).runs {
                (first..first + count).for_each(|n| { again.insert(n); });
            }
            prop_assert!(!whole || again.runs() == done.runs());
            let mut chunked = CompletionSet::starting_at(prefix);
            for chunk in prefix / CHUNK..=done.end() / CHUNK {
                apply_chunk(&mut chunked, chunk, &chunk_bytes(&done, chunk));
            }
            prop_assert_eq!(chunked.runs(), done.runs());
        }
    }
}
