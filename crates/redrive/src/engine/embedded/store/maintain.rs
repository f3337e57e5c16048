//! Maintains the store between deliveries: loads messages coming due, writes checkpoints of the index, cleans the
//! journal.

use std::time::Duration;

use redrive_core::{Message, Time};

use super::letters::erase::{Erasing, LogExtent, Segment};
use super::tickets::Tickets;
use super::waiting::Waiting;
use super::workers::Workers;
use crate::engine::embedded::directory::manifest::Holding;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexError, IndexTables, LineSlot, Space};
use crate::engine::embedded::journal::reader::Reader;
use crate::engine::embedded::journal::record::{FLAG_BLOCKED, Stored, Was};
use crate::engine::embedded::maintenance::clean::Piece;
use crate::engine::embedded::maintenance::maintainer::{HoldingReporter, Task};
use crate::engine::embedded::tuning::Tuning;
use crate::engine::embedded::write::command::{Command, Relocation};
use crate::engine::embedded::write::writer::LETTER_LOG;
use crate::engine::seam::{EngineError, StoreOptions, Ticket};

/// How many checkpoints' worth of changes may wait for the tables.
const CHECKPOINTS_BEHIND_MAX: usize = 4;
/// How often the holdings of the store are recorded.
const COUNT_EVERY: Duration = Duration::from_mins(1);

/// The parts of a store that maintenance works on.
pub(crate) struct Parts<'a, D: Disk, S: IndexTables> {
    pub(crate) options: &'a StoreOptions,
    pub(crate) tuning: Tuning,
    pub(crate) waiting: &'a mut Waiting<D, S>,
    pub(crate) workers: &'a Workers<D, S>,
    pub(crate) tickets: &'a mut Tickets,
    pub(crate) erasing: &'a mut Erasing<D>,
    pub(crate) now: Time,
}

impl<D: Disk, S: IndexTables> Parts<'_, D, S> {
    /// The latest known time.
    fn latest(&self) -> Time {
        self.now.max(Time::from_millis(self.waiting.book.latest()))
    }
}

/// The state of checkpoints and cleaning.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// The checkpoint being written.
    checkpointing: Option<Checkpoint>,
    /// The journal position of the last checkpoint in the tables.
    checkpoint: u64,
    cleaning: Cleaning,
    /// When the holdings were last recorded.
    counted: Time,
    /// The end of the journal when cleaning was last considered.
    considered: u64,
    /// Gets the holdings of the store from time to time.
    reporter: Option<HoldingReporter>,
}

#[derive(Debug, Clone, Copy)]
struct Checkpoint {
    position: u64,
    next_seq: u64,
    persist: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum Cleaning {
    #[default]
    Idle,
    /// Waits for a checkpoint that includes everything that has left the segment.
    Preparing(Segment, u64),
    Scanning(Segment),
    /// Waits until the copied data is durable; then the scan goes on, or the segment can be dropped.
    Carrying(Segment, Ticket, Option<u64>),
    /// Waits for a persisted checkpoint after everything that was copied.
    Persisting(Segment, u64),
    /// Waits until the writer has removed the segment. Until then it is still the oldest, and would be cleaned once
    /// more while its file is being removed.
    Dropping(Segment),
}

impl Maintenance {
    /// The initial state if the tables reflect the journal up to `checkpoint`.
    pub(crate) fn after(checkpoint: u64) -> Self {
        Self { checkpoint, ..Self::default() }
    }

    /// Sets the reporter for the holdings of the store.
    pub(crate) fn report_holdings(&mut self, reporter: HoldingReporter) {
        self.reporter = Some(reporter);
    }

    /// Whether a checkpoint is being written.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpointing.is_some()
    }

    /// Whether changes pile up because a checkpoint is taking too long.
    pub(crate) fn is_behind<D: Disk, S: IndexTables>(&self, parts: &Parts<'_, D, S>) -> bool {
        let most = parts.tuning.checkpoint_changes.saturating_mul(CHECKPOINTS_BEHIND_MAX);
        self.is_checkpointing() && parts.waiting.book.changes() > most
    }

    pub(crate) fn run<D: Disk, S: IndexTables>(
        &mut self,
        parts: &mut Parts<'_, D, S>,
    ) -> Result<(), EngineError> {
        if let Some((from, limit)) = parts.waiting.book.wants_load() {
            parts.workers.task(Task::Load { from, limit });
        }
        let grown = parts.waiting.book.position().saturating_sub(self.checkpoint);
        if grown > parts.tuning.checkpoint_bytes
            || parts.waiting.book.changes() > parts.tuning.checkpoint_changes
        {
            self.checkpoint(parts, false);
        }
        self.clean(parts)?;
        if parts.now.since(self.counted) >= COUNT_EVERY {
            self.tell_holding(parts);
        }
        Ok(())
    }

    /// Sends the holdings of the store to the reporter.
    pub(crate) fn tell_holding<D: Disk, S: IndexTables>(&mut self, parts: &mut Parts<'_, D, S>) {
        self.counted = parts.now;
        if let Some(reporter) = self.reporter.clone() {
            let holding = Holding::of(&parts.waiting.counts(), parts.now);
            parts.workers.task(Task::Report(reporter, holding));
        }
    }

    /// Starts a checkpoint, unless one is being written.
    pub(crate) fn checkpoint<D: Disk, S: IndexTables>(&mut self, parts: &mut Parts<'_, D, S>, persist: bool) {
        if self.checkpointing.is_some() {
            return;
        }
        let ready = parts.waiting.ready.resume_from(parts.waiting.book.departed().prefix());
        let checkpoint = Checkpoint {
            position: parts.waiting.book.position(),
            next_seq: parts.waiting.book.next_seq(),
            persist,
        };
        self.checkpointing = Some(checkpoint);
        let frozen = parts.waiting.book.freeze(ready);
        if let Some(window) = parts.options.dedup {
            parts
                .waiting
                .book
                .tables()
                .forget_ids_before(parts.latest().as_millis().saturating_sub(window.as_millis() as u64));
        }
        parts.workers.task(Task::Apply { frozen, persist });
    }

    pub(crate) fn applied<D: Disk, S: IndexTables>(&mut self, parts: &mut Parts<'_, D, S>) {
        let Some(checkpoint) = self.checkpointing.take() else { return };
        self.checkpoint = checkpoint.position;
        let frozen = parts.waiting.book.thaw();
        parts.workers.task(Task::Forget(frozen));
        parts.workers.call_for_upkeep();
        if parts.options.dedup.is_some() {
            parts.workers.post(Command::ForgetIds { below: checkpoint.next_seq });
        }
        match self.cleaning {
            Cleaning::Preparing(segment, after) if checkpoint.position >= after => {
                self.scan(parts, segment, segment.base);
            }
            Cleaning::Persisting(segment, after) if checkpoint.persist && checkpoint.position >= after => {
                let (journal, letters) =
                    if segment.letters { (None, Some(segment.end)) } else { (Some(segment.end), None) };
                parts.workers.post(Command::Drop { journal, letters });
                self.cleaning = Cleaning::Dropping(segment);
            }
            _ => {}
        }
    }

    fn clean<D: Disk, S: IndexTables>(&mut self, parts: &mut Parts<'_, D, S>) -> Result<(), EngineError> {
        if parts.waiting.book.tables().is_broken() {
            // A rebuild needs all segments.
            return Ok(());
        }
        match self.cleaning {
            // Only while idle: data being copied could be a letter that was erased meanwhile.
            Cleaning::Idle if parts.erasing.is_wanted() => wipe_next(parts)?,
            Cleaning::Idle => self.consider(parts),
            Cleaning::Preparing(..) => self.checkpoint(parts, false),
            Cleaning::Persisting(..) => self.checkpoint(parts, true),
            Cleaning::Carrying(segment, ticket, next) if parts.tickets.is_durable(ticket) => match next {
                Some(next) => self.scan(parts, segment, next),
                None => self.cleaning = Cleaning::Persisting(segment, parts.waiting.book.position()),
            },
            Cleaning::Dropping(segment) => {
                let log = if segment.letters {
                    parts.waiting.contents.letter_log()
                } else {
                    parts.waiting.contents.journal()
                };
                if log.start() >= segment.end {
                    self.cleaning = Cleaning::Idle;
                    self.considered = 0;
                }
            }
            Cleaning::Scanning(_) | Cleaning::Carrying(..) => {}
        }
        Ok(())
    }

    /// Checks whether a segment is worth cleaning, once per quarter segment of growth.
    fn consider<D: Disk, S: IndexTables>(&mut self, parts: &mut Parts<'_, D, S>) {
        if parts.waiting.book.position() < self.considered + parts.tuning.segment_bytes / 4 {
            return;
        }
        self.considered = parts.waiting.book.position();
        if let Some(segment) = journal_candidate(parts).or_else(|| letter_candidate(parts)) {
            self.cleaning = match segment {
                (segment, true) => Cleaning::Preparing(segment, parts.waiting.book.position()),
                (segment, false) => Cleaning::Persisting(segment, parts.waiting.book.position()),
            };
        }
    }

    fn scan<D: Disk, S: IndexTables>(&mut self, parts: &mut Parts<'_, D, S>, segment: Segment, from: u64) {
        self.cleaning = Cleaning::Scanning(segment);
        let piece = Piece { from, to: segment.end, letters: segment.letters, now: parts.latest() };
        parts.workers.task(Task::Scan(piece));
    }

    /// Copies forward what is still needed of a piece that the cleaner has read.
    pub(crate) fn scanned<D: Disk, S: IndexTables>(
        &mut self,
        parts: &mut Parts<'_, D, S>,
        mut relocation: Relocation,
        next: Option<u64>,
    ) -> Result<(), IndexError> {
        let Cleaning::Scanning(segment) = self.cleaning else { return Ok(()) };
        let mut moves = Vec::with_capacity(relocation.moves.len());
        for (_, seq, stored) in relocation.moves {
            moves.extend(still_waits(parts.waiting, seq, stored)?);
        }
        relocation.moves = moves;
        let ticket = parts.tickets.issue();
        parts.workers.post(Command::Relocate { ticket, relocation });
        self.cleaning = Cleaning::Carrying(segment, ticket, next);
        Ok(())
    }
}

/// Starts overwriting the next segment, unless one is being overwritten.
fn wipe_next<D: Disk, S: IndexTables>(parts: &mut Parts<'_, D, S>) -> Result<(), EngineError> {
    let segments = |log: &Reader<D>, letters: bool| {
        let segment = move |(base, len)| Segment { base, end: base + len, letters };
        log.segments().into_iter().map(segment).collect::<Vec<_>>()
    };
    let contents = &parts.waiting.contents;
    let (journal, letter_log) = (contents.journal(), contents.letter_log());
    let logs = || LogExtent {
        segments: [segments(journal, false), segments(letter_log, true)].concat(),
        journal_end: journal.end(),
        letter_log_end: letter_log.end(),
    };
    if let Some(part) = parts.erasing.next(logs)? {
        parts.workers.task(Task::Wipe(part));
    }
    Ok(())
}

/// The oldest segment of the journal, if everything in it has left the ready state and cleaning it pays; and whether it
/// must be scanned.
fn journal_candidate<D: Disk, S: IndexTables>(parts: &mut Parts<'_, D, S>) -> Option<(Segment, bool)> {
    let segments = parts.waiting.contents.journal().segments();
    let (base, end) = (segments.first()?.0, segments.get(1)?.0);
    let ready_from = parts.waiting.ready.resume_from(parts.waiting.book.departed().prefix()).0;
    if end > ready_from || end > parts.waiting.book.position() {
        return None;
    }
    let total = parts.waiting.book.position() - base;
    // Ids are copied forward until they expire, and take about as much space there as in their table. If they did not
    // count as live, a journal that holds little else would be rewritten over and over.
    let live =
        parts.waiting.book.live().bytes_in(0..LETTER_LOG) + parts.waiting.book.tables().bytes_of(Space::Ids);
    let dead_as_a_whole =
        !parts.waiting.book.live().any_in(base..end) && !says_something_of_letters(parts.waiting);
    let needs_scan = !dead_as_a_whole || parts.options.dedup.is_some();
    let worth_it =
        total > parts.tuning.clean_above_bytes && total > 2 * live + 2 * parts.tuning.segment_bytes;
    (worth_it || !needs_scan).then_some((Segment { base, end, letters: false }, needs_scan))
}

/// Whether a segment without live frames may still have state frames of letters in the letter log.
fn says_something_of_letters<D: Disk, S: IndexTables>(waiting: &Waiting<D, S>) -> bool {
    waiting.book.live().any_in(LETTER_LOG..u64::MAX) || waiting.contents.letter_log().segments().len() > 1
}

/// The oldest segment of the letter log, if more than half of the log is dead.
fn letter_candidate<D: Disk, S: IndexTables>(parts: &Parts<'_, D, S>) -> Option<(Segment, bool)> {
    let segments = parts.waiting.contents.letter_log().segments();
    let (base, end) = (segments.first()?.0, segments.get(1)?.0);
    let total: u64 = segments.iter().map(|(_, len)| len).sum();
    let live = parts.waiting.book.live().bytes_in(LETTER_LOG..u64::MAX);
    (total > 2 * live + parts.tuning.segment_bytes).then_some((Segment { base, end, letters: true }, true))
}

/// A copy to be written for a message that the cleaner found in the tables; `None` if it has finished meanwhile or is
/// about to: otherwise a rebuild would bring it back. If only its place has changed, the copy gets the new one.
fn still_waits<D: Disk, S: IndexTables>(
    waiting: &Waiting<D, S>,
    seq: u64,
    stored: Stored,
) -> Result<Option<(u8, u64, Stored)>, IndexError> {
    if waiting.in_flight.get(seq).is_some_and(|held| held.goes.is_some()) {
        return Ok(None);
    }
    let due = stored.due.unwrap_or(0);
    if let Some(passed) = waiting.keys.passed(seq)
        && passed.was == (Was::Waiting { due })
    {
        return Ok(Some((FLAG_BLOCKED, seq, Stored { key: Some(passed.key), ..stored })));
    }
    let from = stored.moved_from;
    let delayed = waiting.book.delay().get(&(due, seq), &waiting.book.table(Space::Delay))?;
    if delayed.is_some_and(|pointer| pointer.at == from) {
        return Ok(Some((0, seq, stored)));
    }
    let Ok(message) = Message::from_wire(stored.wire.clone()) else { return Ok(None) };
    let Some(hash) = waiting.book.hash_of(&message) else { return Ok(None) };
    let slot = waiting.book.lines().get(&(hash, seq), &waiting.book.table(Space::Lines))?;
    let here = matches!(slot, Some(LineSlot::Blocked(pointer)) if pointer.at == from);
    Ok(here.then(|| (FLAG_BLOCKED, seq, Stored { key: Some(hash), ..stored })))
}
