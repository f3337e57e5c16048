//! Builds the index from the logs: all of it, or only the part it does not reflect yet.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::tables::{IndexError, IndexTables};
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::journal::reader::{Reader, Scanned};
use crate::engine::embedded::journal::record::kind;
use crate::engine::embedded::maintenance::maintainer::write_checkpoint;
use crate::engine::embedded::state::book::Book;
use crate::engine::embedded::tuning::Tuning;
use crate::engine::embedded::write::writer::LETTER_LOG;
use crate::engine::seam::{EngineError, StoreOptions};

/// Rebuilds tables while the store runs.
pub(crate) struct Rebuilder<D: Disk, S> {
    pub(crate) journal: Reader<D>,
    pub(crate) letters: Reader<D>,
    pub(crate) options: StoreOptions,
    pub(crate) tuning: Tuning,
    pub(crate) seed: u64,
    pub(crate) open: Arc<dyn Fn(bool) -> Result<Arc<S>, IndexError> + Send + Sync>,
}

impl<D: Disk, S: IndexTables> Rebuilder<D, S> {
    /// Builds tables that reflect the journal up to `to`, the end of a batch. Also returns the number of frames read.
    pub(crate) fn rebuild(&self, to: u64) -> Result<(Arc<S>, u64), EngineError> {
        let tables = (self.open)(true)?;
        let start = self.journal.start();
        let mut book = Book::new(self.options.clone(), self.seed, Arc::clone(&tables), self.tuning.near_max);
        book.begin_at(start);
        fold_letters(&mut book, &self.letters)?;
        let folded = fold_journal(&mut book, &self.journal, (start, to), true, &self.tuning)?;
        let frozen = book.freeze((start, folded.first_seq.unwrap_or(0)));
        write_checkpoint(&*tables, &frozen)?;
        Ok((tables, folded.frames))
    }
}

/// Folds the letter log; returns whether something in it is damaged.
pub(crate) fn fold_letters<D: Disk, S: IndexTables>(
    book: &mut Book<S>,
    letters: &Reader<D>,
) -> Result<bool, EngineError> {
    let Some((start, _)) = letters.segments().first().copied() else { return Ok(false) };
    let (mut failed, mut met_rot) = (None, false);
    letters.scan(start, letters.end(), |scanned| match scanned {
        Scanned::Frame(frame) => match book.fold_letter(&frame, frame.position | LETTER_LOG) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        },
        Scanned::Rot(rot) => {
            met_rot |= rot.is_of_somebody();
            ControlFlow::Continue(())
        }
        Scanned::Batch(_) => ControlFlow::Continue(()),
    })?;
    failed.map_or(Ok(met_rot), |error| Err(error.into()))
}

/// The result of folding the journal.
pub(crate) struct Folding {
    pub(crate) frames: u64,
    /// After a rebuild from the start of the journal, the number of the first message that the journal still holds.
    pub(crate) first_seq: Option<u64>,
    pub(crate) met_rot: bool,
}

/// Folds the journal from the book's position up to `to`. `start` is the beginning of the journal.
pub(crate) fn fold_journal<D: Disk, S: IndexTables>(
    book: &mut Book<S>,
    journal: &Reader<D>,
    (start, to): (u64, u64),
    anew: bool,
    tuning: &Tuning,
) -> Result<Folding, EngineError> {
    book.set_catching_up(true);
    let (mut frames, mut met_rot) = (0, false);
    let mut failed: Option<EngineError> = None;
    // A batch header has the number that follows its batch. Messages before the first one in the journal are
    // finished.
    let mut begun = !anew;
    let mut first_seq = None;
    // That number, and where its batch ends. The header of a torn batch counts messages that do not exist.
    let mut note: Option<(u64, u64)> = None;
    let begin = |book: &mut Book<S>, seq: u64| {
        book.begin_with(seq);
        book.reserve_numbers(seq);
        Some(seq)
    };
    let end = journal.scan(book.position(), to, |scanned| {
        match scanned {
            Scanned::Batch(header) => {
                if let Some((seq, _)) = note.filter(|(_, end)| !begun && *end <= header.position) {
                    first_seq = begin(book, seq);
                    begun = true;
                }
                note = Some((header.note, header.end()));
            }
            Scanned::Frame(frame) => {
                frames += 1;
                if frame.kind == kind::ACCEPTED && !begun {
                    first_seq = begin(book, frame.tag);
                    begun = true;
                }
                if let Err(error) = book.fold(&frame, &mut |_| {}) {
                    failed = Some(error.into());
                    return ControlFlow::Break(());
                }
                if book.changes() > tuning.checkpoint_changes {
                    let resume = (start, first_seq.unwrap_or(0));
                    let frozen = book.freeze(resume);
                    if let Err(error) = write_checkpoint(&**book.tables(), &frozen) {
                        failed = Some(error.into());
                        return ControlFlow::Break(());
                    }
                    drop(book.thaw());
                }
            }
            Scanned::Rot(rot) => {
                book.set_damaged(true);
                met_rot |= rot.is_of_somebody();
                if let Some(header) = rot.header.filter(|header| header.kind == kind::ACCEPTED) {
                    if !begun {
                        first_seq = begin(book, header.tag);
                        begun = true;
                    }
                    book.reserve_numbers(header.tag + 1);
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some((seq, _)) = note.filter(|(_, batch_end)| *batch_end <= end) {
        if !begun {
            first_seq = begin(book, seq);
        }
        book.reserve_numbers(seq);
    }
    book.followed_to(book.position().max(end));
    book.set_damaged(false);
    book.set_catching_up(false);
    Ok(Folding { frames, first_seq, met_rot })
}
