//! What is done of one partition, how much of that is committed, and bitmaps for what does not fit into a commit. No
//! I/O.

use std::collections::VecDeque;

use redrive::internal::engine::completion::CompletionSet;

use super::progress::{CHUNK, CommitStanding, chunk_bytes, note};

/// For this many commits with incomplete notes it is remembered what they covered.
const SHORT_NOTES_MAX: usize = 64;

/// The content of a commit, and what it covers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BegunCommit {
    pub offset: u64,
    pub note: String,
    pub covers: Covers,
}

/// What an accepted commit makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covers {
    /// Everything below this offset is done.
    prefix: u64,
    /// How many marks there were when it began.
    marks: u64,
    /// Whether its note has room for all of them.
    is_whole: bool,
}

/// Bitmaps that are being written to `T.progress`.
#[derive(Debug)]
struct Writing {
    /// How many are not acknowledged yet.
    open: usize,
    /// The marks they cover, together with everything below `prefix`.
    marks: u64,
    prefix: u64,
}

#[derive(Debug)]
pub(crate) struct DoneOffsets {
    done: CompletionSet,
    /// Number of marks so far, to tell which of them a commit covers.
    marks: u64,
    /// How many marks are committed, or in `T.progress`.
    durable: u64,
    /// One past the highest offset that was marked.
    marked_end: u64,
    /// For each commit with an incomplete note: the number of marks then, and one past the highest of them. They are
    /// durable once everything below that is committed, usually long before a bitmap is written.
    short_notes: VecDeque<(u64, u64)>,
    /// The offset that was committed last.
    committed: u64,
    /// Bitmaps that changed since they were written.
    dirty: Vec<u64>,
    /// The first and last bitmap that may be in `T.progress`.
    written: Option<(u64, u64)>,
    /// Whether the last note was incomplete, so that bitmaps are needed.
    overflows: bool,
    /// Bitmaps that are being written.
    writing: Option<Writing>,
}

impl DoneOffsets {
    /// Starts with what was done when the partition was assigned.
    pub fn starting_with(done: CompletionSet) -> Self {
        let committed = done.prefix();
        Self {
            done,
            marks: 0,
            durable: 0,
            marked_end: committed,
            short_notes: VecDeque::new(),
            committed,
            dirty: Vec::new(),
            written: None,
            overflows: false,
            writing: None,
        }
    }

    /// Sets the first and last bitmap that an earlier owner may have left in `T.progress`.
    pub fn with_bitmaps(self, left: Option<(u64, u64)>) -> Self {
        Self { written: left, ..self }
    }

    /// Returns the offset below which everything is done.
    pub fn prefix(&self) -> u64 {
        self.done.prefix()
    }

    pub fn contains(&self, offset: u64) -> bool {
        self.done.contains(offset)
    }

    /// Marks an offset as done. Returns whether it was not done before.
    pub fn mark(&mut self, offset: u64) -> bool {
        let before = self.done.prefix();
        if !self.done.insert(offset) {
            return false;
        }
        self.marks += 1;
        self.marked_end = self.marked_end.max(offset + 1);
        let chunk = offset / CHUNK;
        if offset > before && self.dirty.last() != Some(&chunk) && !self.dirty.contains(&chunk) {
            self.dirty.push(chunk);
        }
        true
    }

    /// Returns how many marks there are, which is also the number of the last one.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// Whether the mark with this number survives the process.
    pub fn is_durable(&self, mark: u64) -> bool {
        self.durable >= mark
    }

    /// Whether there are marks that are not durable.
    pub fn has_news(&self) -> bool {
        !self.is_durable(self.marks)
    }

    /// Begins a commit.
    pub fn begin_commit(&mut self, standing: &CommitStanding<'_>) -> BegunCommit {
        let (note, is_whole) = note(standing, &self.done);
        self.overflows = !is_whole;
        if !is_whole {
            if self.short_notes.len() == SHORT_NOTES_MAX {
                self.short_notes.pop_back();
            }
            self.short_notes.push_back((self.marks, self.marked_end));
        }
        let prefix = self.done.prefix();
        BegunCommit { offset: prefix, note, covers: Covers { prefix, marks: self.marks, is_whole } }
    }

    /// Returns the note of the last commit of an assignment, to which no answer arrives.
    pub fn last_note(&self, standing: &CommitStanding<'_>) -> String {
        note(standing, &self.done).0
    }

    /// Remembers for the next bitmaps whether a note with this standing would be incomplete.
    pub fn measure_note(&mut self, standing: &CommitStanding<'_>) {
        self.overflows = !note(standing, &self.done).1;
    }

    /// Notes that a commit was accepted.
    pub fn accepted(&mut self, Covers { prefix, marks, is_whole }: Covers) {
        self.committed = self.committed.max(prefix);
        if is_whole {
            self.durable = self.durable.max(marks);
        }
        while let Some((marks, _)) = self.short_notes.pop_front_if(|(_, end)| *end <= self.committed) {
            self.durable = self.durable.max(marks);
        }
        self.settle_bitmaps();
    }

    /// Returns the bitmaps to write to `T.progress`, and those to delete there because the committed offset has passed
    /// them.
    pub fn take_bitmaps(&mut self) -> Vec<(u64, Option<Vec<u8>>)> {
        let passed = self.committed / CHUNK;
        self.dirty.retain(|chunk| *chunk >= passed);
        let mut records: Vec<(u64, Option<Vec<u8>>)> = Vec::new();
        if self.overflows && self.writing.is_none() {
            for chunk in std::mem::take(&mut self.dirty) {
                records.push((chunk, Some(chunk_bytes(&self.done, chunk))));
                let (first, last) = self.written.unwrap_or((chunk, chunk));
                self.written = Some((first.min(chunk), last.max(chunk)));
            }
            self.writing =
                Some(Writing { open: records.len(), marks: self.marks, prefix: self.done.prefix() });
            self.settle_bitmaps();
        }
        if let Some((first, last)) = self.written
            && first < passed
        {
            records.extend((first..passed.min(last + 1)).map(|chunk| (chunk, None)));
            self.written = (passed <= last).then_some((passed, last));
        }
        records
    }

    /// Notes that one of the bitmaps was stored.
    pub fn bitmap_stored(&mut self) {
        if let Some(writing) = &mut self.writing {
            writing.open = writing.open.saturating_sub(1);
        }
        self.settle_bitmaps();
    }

    /// Once both the bitmaps and the offset they begin at are durable, so is every mark that existed by then.
    fn settle_bitmaps(&mut self) {
        if let Some(writing) = &self.writing
            && writing.open == 0
            && writing.prefix <= self.committed
        {
            self.durable = self.durable.max(writing.marks);
            self.writing = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starting_at(offset: u64) -> DoneOffsets {
        DoneOffsets::starting_with(CompletionSet::starting_at(offset))
    }

    /// Marks more runs beyond the prefix than fit into a note.
    fn overflowing() -> DoneOffsets {
        let mut done = starting_at(0);
        (1..=2_000).for_each(|n| assert!(done.mark(n * 2)));
        done
    }

    fn begin(done: &mut DoneOffsets) -> BegunCommit {
        done.begin_commit(&CommitStanding::default())
    }

    #[test]
    fn a_commit_makes_durable_what_was_marked_when_it_began() {
        let mut done = starting_at(0);
        assert!(done.mark(0) && done.mark(7) && !done.mark(7));
        let begun = begin(&mut done);
        assert_eq!(begun.offset, 1);
        done.mark(1);
        done.accepted(begun.covers);
        assert!(done.is_durable(2) && !done.is_durable(3) && done.has_news());
    }

    #[test]
    fn marks_that_no_note_has_room_for_are_durable_once_all_below_the_highest_of_them_is_committed() {
        let mut done = overflowing();
        let begun = begin(&mut done);
        done.accepted(begun.covers);
        assert!(!done.is_durable(1), "nothing says that they are done");
        (0..=2_000).for_each(|n| assert!(done.mark(n * 2 + 1) || n == 0));
        done.mark(0);
        let begun = begin(&mut done);
        assert_eq!(begun.offset, 4_002);
        done.accepted(begun.covers);
        assert!(!done.has_news());
    }

    #[test]
    fn marks_in_stored_bitmaps_are_durable_once_the_offset_they_begin_at_is_committed() {
        let mut done = overflowing();
        assert!(done.take_bitmaps().is_empty(), "no note was too short yet");
        let begun = begin(&mut done);
        let bitmaps = done.take_bitmaps();
        assert!(matches!(&bitmaps[..], [(0, Some(_))]), "{bitmaps:?}");
        done.mark(5);
        done.accepted(begun.covers);
        assert!(!done.is_durable(1));
        done.bitmap_stored();
        assert!(done.is_durable(2_000) && done.has_news(), "the mark since then is in no bitmap");
    }

    #[test]
    fn a_bitmap_that_the_commit_has_passed_is_deleted() {
        let mut done = overflowing();
        begin(&mut done);
        done.take_bitmaps();
        done.bitmap_stored();
        (0..CHUNK).for_each(|offset| {
            done.mark(offset);
        });
        let begun = begin(&mut done);
        done.accepted(begun.covers);
        assert_eq!(done.take_bitmaps(), [(0, None)]);
        assert!(done.take_bitmaps().is_empty());
    }

    #[test]
    fn only_marks_beyond_the_prefix_make_a_bitmap_dirty() {
        let mut done = starting_at(0);
        done.mark(0);
        assert!(done.dirty.is_empty());
        for offset in [CHUNK + 3, CHUNK + 4, 2] {
            done.mark(offset);
        }
        assert_eq!(done.dirty, [1, 0]);
    }
}
