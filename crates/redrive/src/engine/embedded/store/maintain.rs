//! Maintains the store between deliveries: loading what comes due, checkpoints of the index, cleaning of the journal.

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

/// Changes of so many checkpoints may wait for the tables.
const CHECKPOINTS_BEHIND_MAX: usize = 4;
/// How often it is written down how much the store holds.
const COUNT_EVERY: Duration = Duration::from_mins(1);

/// The parts of a store that upkeep works on.
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
    /// The latest time known.
    fn latest(&self) -> Time {
        self.now.max(Time::from_millis(self.waiting.book.latest()))
    }
}

/// How far checkpoints and cleaning have come.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// A checkpoint is being written.
    checkpointing: Option<Checkpoint>,
    /// The journal position of the last checkpoint in the tables.
    checkpoint: u64,
    cleaning: Cleaning,
    /// When it was last written down how much the store holds.
    counted: Time,
    /// The end of the journal when cleaning was last considered.
    considered: u64,
    /// Informed now and then how much the store holds.
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
    /// Waiting for a checkpoint that knows everything that has left the segment.
    Preparing(Segment, u64),
    Scanning(Segment),
    /// Waiting until what was carried forward is durable; then the scan goes on, or the segment can go.
    Carrying(Segment, Ticket, Option<u64>),
    /// Waiting for a persisted checkpoint behind everything that was carried forward.
    Persisting(Segment, u64),
    /// Waiting until the writer has removed it. Until then it is still the oldest, and would be cleaned once more while
    /// its file goes away.
    Dropping(Segment),
}

impl Maintenance {
    /// The tables reflect the journal up to `checkpoint`.
    pub(crate) fn after(checkpoint: u64) -> Self {
        Self { checkpoint, ..Self::default() }
    }

    /// From now on, `reporter` records how much the store holds.
    pub(crate) fn report_holdings(&mut self, reporter: HoldingReporter) {
        self.reporter = Some(reporter);
    }

    /// Whether a checkpoint is being written.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpointing.is_some()
    }

    /// Whether changes pile up because the tables take none.
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

    /// Has it written down how much the store holds.
    pub(crate) fn tell_holding<D: Disk, S: IndexTables>(&mut self, parts: &mut Parts<'_, D, S>) {
        self.counted = parts.now;
        if let Some(reporter) = self.reporter.clone() {
            let holding = Holding::of(&parts.waiting.counts(), parts.now);
            parts.workers.task(Task::Report(reporter, holding));
        }
    }

    /// Starts a checkpoint unless one is under way.
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
            // What is being carried forward could be a copy of a letter that was erased meanwhile.
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

    /// Looks whether a segment is worth cleaning, once per quarter segment of growth.
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

    /// The cleaner has read a piece: carry forward what is left of it.
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

/// Has the next segment overwritten, unless one is being overwritten.
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

/// The oldest segment of the journal, if everything in it has left the ready state and it is worth it; with
/// whether it must be scanned.
fn journal_candidate<D: Disk, S: IndexTables>(parts: &mut Parts<'_, D, S>) -> Option<(Segment, bool)> {
    let segments = parts.waiting.contents.journal().segments();
    let (base, end) = (segments.first()?.0, segments.get(1)?.0);
    let ready_from = parts.waiting.ready.resume_from(parts.waiting.book.departed().prefix()).0;
    if end > ready_from || end > parts.waiting.book.position() {
        return None;
    }
    let total = parts.waiting.book.position() - base;
    // Ids are carried forward until they expire, and take about as much there as in their table. Without them a
    // journal that holds little else would be rewritten over and over.
    let live =
        parts.waiting.book.live().bytes_in(0..LETTER_LOG) + parts.waiting.book.tables().bytes_of(Space::Ids);
    let dead_as_a_whole =
        !parts.waiting.book.live().any_in(base..end) && !says_something_of_letters(parts.waiting);
    let needs_scan = !dead_as_a_whole || parts.options.dedup.is_some();
    let worth_it =
        total > parts.tuning.clean_above_bytes && total > 2 * live + 2 * parts.tuning.segment_bytes;
    (worth_it || !needs_scan).then_some((Segment { base, end, letters: false }, needs_scan))
}

/// Whether a segment without live frames may still hold state frames of letters in the letter log.
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

/// What the cleaner read in the tables may be over by now, or on its way to be: then it is not carried forward, or
/// an index that is built anew would bring it back. What only changed the place where it waits is carried there.
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
