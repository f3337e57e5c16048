//! Erasing letters: each frame is replaced by a tombstone, then every other copy is overwritten, segment by segment.

use std::collections::HashSet;
use std::io;

use redrive_core::{Message, Meta, Time};

use super::wiping::Wiping;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LetterSlot};
use crate::engine::embedded::journal::record::{Stored, Was};
use crate::engine::embedded::maintenance::erasures::Erasures;
use crate::engine::embedded::maintenance::maintainer::WipePart;
use crate::engine::embedded::store::contents::damaged_message;
use crate::engine::embedded::store::find::Lookup;
use crate::engine::erase::{EraseAnswer, EraseOrder, tombstone, untitled};
use crate::engine::history::History;
use crate::engine::letter::LetterState;
use crate::engine::seam::EngineError;

/// The answers for letters to be erased, and the tombstones to be written.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    pub(crate) answers: Vec<EraseAnswer>,
    pub(crate) letters: Vec<(u64, Stored)>,
}

/// Plans tombstones for letters, each at most once.
pub(crate) fn plan<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    order: &EraseOrder,
    ids: &[u64],
    now: Time,
) -> Result<Tombstones, EngineError> {
    let (mut stones, mut chosen) = (Tombstones::default(), HashSet::new());
    for seq in ids {
        let answer = match lookup.book.asked_letter(*seq)? {
            None => EraseAnswer::NotFound,
            Some(_) if chosen.contains(seq) => EraseAnswer::Already,
            Some(slot) => {
                if let Some(refusal) = EraseAnswer::refusal(slot.state) {
                    refusal
                } else {
                    stones.letters.push((*seq, tombstone_of(lookup, *seq, slot, order, now)?));
                    chosen.insert(*seq);
                    EraseAnswer::Done
                }
            }
        };
        stones.answers.push(answer);
    }
    Ok(stones)
}

/// The tombstone of a letter, ready to be written.
fn tombstone_of<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    seq: u64,
    slot: LetterSlot,
    order: &EraseOrder,
    now: Time,
) -> Result<Stored, EngineError> {
    let grouping = &lookup.options.grouping;
    let stored = lookup.contents.stored_letter(&slot)?;
    let message = stored.as_ref().and_then(|stored| Message::from_wire(stored.wire.clone()).ok());
    let message = message.map_or_else(|| damaged_message(seq), Ok)?;
    let stone = tombstone(&message, order, now).map_err(|error| EngineError::Damaged(error.to_string()))?;
    let history = stored.as_ref().map(|stored| History::from_raw(stored.history.clone()));
    let group = match &stored {
        Some(stored) => stored.fingerprint(grouping, slot.reason),
        None => grouping.of(slot.reason, None),
    };
    let meta = stored.as_ref().map(|stored| stored.meta).unwrap_or_default();
    Ok(Stored {
        was: Was::Letter,
        key: slot.key,
        due: None,
        jobs: slot.jobs,
        reason: Some(slot.reason),
        state: Some(LetterState::Erased),
        dead_at: slot.dead_at.as_millis(),
        moved_from: 0,
        meta: Meta { replays: slot.replays, ..meta },
        history: history.unwrap_or_default().without_texts().raw().clone(),
        group: Some(untitled(group)),
        options: stored.and_then(|stored| stored.options),
        replaced: Vec::new(),
        wire: stone.wire().clone(),
    })
}

/// A segment of one of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) end: u64,
    /// Whether it belongs to the letter log.
    pub(crate) letters: bool,
}

/// Both logs as they are when a pass over them begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogExtent {
    pub(crate) segments: Vec<Segment>,
    pub(crate) journal_end: u64,
    pub(crate) letter_log_end: u64,
}

/// The erased letters that are not overwritten everywhere yet, in memory and in a file that survives a crash.
#[derive(Debug)]
pub(crate) struct Erasing<D: Disk> {
    file: Erasures<D>,
    wiping: Wiping<Segment>,
}

impl<D: Disk> Erasing<D> {
    /// Continues the erasures of an earlier run. Of these, `unwiped` have tombstones and are to be overwritten.
    pub(crate) fn resume(
        mut file: Erasures<D>,
        recorded: impl IntoIterator<Item = u64>,
        unwiped: &[u64],
    ) -> io::Result<Self> {
        let settled: Vec<u64> = recorded.into_iter().filter(|seq| !unwiped.contains(seq)).collect();
        file.settle(&settled)?;
        let mut wiping = Wiping::default();
        wiping.want(unwiped.iter().copied());
        Ok(Self { file, wiping })
    }

    /// Records letters, durably, before their tombstones are written. After a crash in between, the record lists
    /// unchanged letters; without it, copies could stay that are never overwritten.
    pub(crate) fn record(&mut self, letters: &[u64]) -> Result<(), EngineError> {
        self.file.record(letters).map_err(|error| recording(&error))
    }

    /// Requests overwriting of the other copies of these letters, whose tombstones are durable.
    pub(crate) fn want(&mut self, letters: Vec<u64>) {
        self.wiping.want(letters);
    }

    /// Whether copies are still to be overwritten.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wiping.is_wanted()
    }

    /// The number of segments left until all erased letters are overwritten.
    pub(crate) fn parts_left(&self) -> u64 {
        self.wiping.parts_left()
    }

    /// The next segment to overwrite; `None` while one is being overwritten. Before the first one of a pass, the file
    /// records durably how far the pass will go.
    pub(crate) fn next(&mut self, logs: impl FnOnce() -> LogExtent) -> Result<Option<WipePart>, EngineError> {
        let logs = if self.wiping.begins() { logs() } else { LogExtent::default() };
        if self.wiping.begins() {
            let confirmed = self.file.confirm(logs.journal_end, logs.letter_log_end);
            confirmed.map_err(|error| recording(&error))?;
        }
        let next = self.wiping.next(|| logs.segments);
        Ok(next.map(|(Segment { base, end, letters }, erased)| WipePart { base, end, letters, erased }))
    }

    /// Records that a segment was overwritten. After the last one, its letters are removed from the file.
    pub(crate) fn wiped(&mut self) -> Result<(), EngineError> {
        let Some(wiped) = self.wiping.wiped() else { return Ok(()) };
        self.file.settle(&*wiped).map_err(|error| recording(&error))
    }
}

fn recording(error: &io::Error) -> EngineError {
    EngineError::Storage(format!("recording which letters are erased: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;
    use crate::engine::embedded::maintenance::erasures::FoundErasures;

    fn begin(disk: &SimDisk) -> Erasing<SimDisk> {
        let (file, found) = Erasures::open(disk).unwrap();
        Erasing::resume(file, found.recorded, &[]).unwrap()
    }

    fn found(disk: &SimDisk) -> FoundErasures {
        Erasures::open(disk).unwrap().1
    }

    fn two_segments() -> LogExtent {
        let segment = |base, letters| Segment { base, end: base + 10, letters };
        LogExtent {
            segments: vec![segment(20, true), segment(0, false)],
            journal_end: 10,
            letter_log_end: 30,
        }
    }

    #[test]
    fn the_file_confirms_a_pass_before_its_first_segment_and_forgets_its_letters_after_the_last() {
        let disk = SimDisk::new();
        let mut erasing = begin(&disk);
        erasing.record(&[7, 9]).unwrap();
        assert_eq!(found(&disk).confirmed, HashSet::new(), "no copy is overwritten yet");
        assert!(!erasing.is_wanted(), "the tombstones are not durable yet");
        erasing.want(vec![7, 9]);
        let part = erasing.next(two_segments).unwrap().unwrap();
        assert_eq!((part.base, part.end, part.letters, part.erased.len()), (0, 10, false, 2));
        let now = found(&disk);
        assert_eq!((now.confirmed, now.journal_end, now.letter_log_end), ([7, 9].into(), 10, 30));
        assert!(erasing.next(two_segments).unwrap().is_none(), "one at a time");
        erasing.wiped().unwrap();
        assert_eq!((found(&disk).recorded.len(), erasing.parts_left()), (2, 1));
        assert!(erasing.next(LogExtent::default).unwrap().unwrap().letters);
        erasing.wiped().unwrap();
        assert_eq!((found(&disk), erasing.parts_left()), (FoundErasures::default(), 0));
        assert!(!erasing.is_wanted());
    }

    #[test]
    fn letters_without_a_tombstone_are_forgotten_at_the_next_start_and_the_others_overwritten() {
        let disk = SimDisk::new();
        begin(&disk).record(&[7, 9]).unwrap();
        let (file, found) = Erasures::open(&disk).unwrap();
        let mut erasing = Erasing::resume(file, found.recorded, &[9]).unwrap();
        let part = erasing.next(two_segments).unwrap().unwrap();
        assert_eq!(*part.erased, HashSet::from([9]));
        assert_eq!(Erasures::open(&disk).unwrap().1.recorded, [9].into());
    }
}
