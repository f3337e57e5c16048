//! Tending the store between deliveries: loading what comes due, checkpoints of the index, cleaning of the journal.

use std::time::Duration;

use redrive_core::{Message, Time};

use super::store::Store;
use crate::engine::embedded::directory::manifest::Holding;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexError, IndexTables, LineSlot, Reading, Space};
use crate::engine::embedded::journal::record::{FLAG_BLOCKED, Stored, Was};
use crate::engine::embedded::maintenance::clean::Piece;
use crate::engine::embedded::maintenance::keeper::Task;
use crate::engine::embedded::maintenance::progress::{Checkpoint, Cleaning, Segment};
use crate::engine::embedded::write::command::{Command, Relocation};
use crate::engine::embedded::write::writer::LETTER_LOG;
use crate::engine::seam::{Engine as _, EngineError};

/// Changes of so many checkpoints may wait for the tables.
const CHECKPOINTS_BEHIND_MAX: usize = 4;
/// How often it is written down how much the store holds.
const COUNT_EVERY: Duration = Duration::from_mins(1);

impl<D: Disk, S: IndexTables> Store<D, S> {
    pub(crate) fn tend(&mut self) -> Result<(), EngineError> {
        if let Some((from, limit)) = self.book.wants_load() {
            self.task(Task::Load { from, limit });
        }
        let grown = self.book.position().saturating_sub(self.tending.checkpoint);
        if grown > self.tuning.checkpoint_bytes || self.book.changes() > self.tuning.checkpoint_changes {
            self.checkpoint(false);
        }
        self.clean();
        if self.now.since(self.tending.counted) >= COUNT_EVERY {
            self.tell_holding();
        }
        self.wait_for_room()
    }

    /// Changes must not pile up while the tables take none: then nothing is delivered for a while, and ingest is refused.
    fn wait_for_room(&mut self) -> Result<(), EngineError> {
        let most = self.tuning.checkpoint_changes.saturating_mul(CHECKPOINTS_BEHIND_MAX);
        while self.tending.checkpointing.is_some() && self.book.changes() > most {
            self.wait_for_notes()?;
            self.absorb()?;
        }
        Ok(())
    }

    /// The latest time anybody has told of.
    fn latest(&self) -> Time {
        self.now.max(Time::from_millis(self.book.latest()))
    }

    /// Has it written down how much the store holds.
    pub(crate) fn tell_holding(&mut self) {
        self.tending.counted = self.now;
        if let Some(census) = self.census.clone() {
            let holding = Holding::of(&self.counts(), self.now);
            self.task(Task::Tell(census, holding));
        }
    }

    /// Starts a checkpoint unless one is under way.
    pub(crate) fn checkpoint(&mut self, persist: bool) {
        if self.tending.checkpointing.is_some() {
            return;
        }
        let ready = self.ready.resume_from(self.book.departed().prefix());
        let checkpoint =
            Checkpoint { position: self.book.position(), next_seq: self.book.next_seq(), persist };
        self.tending.checkpointing = Some(checkpoint);
        let frozen = self.book.freeze(ready);
        if let Some(window) = self.options.dedup {
            self.book
                .tables()
                .forget_ids_before(self.latest().as_millis().saturating_sub(window.as_millis() as u64));
        }
        self.task(Task::Apply { frozen, persist });
    }

    pub(crate) fn applied(&mut self) {
        let Some(checkpoint) = self.tending.checkpointing.take() else { return };
        self.tending.checkpoint = checkpoint.position;
        let frozen = self.book.thaw();
        self.task(Task::Forget(frozen));
        self.upkeep.post((), 0);
        if self.options.dedup.is_some() {
            self.post(Command::ForgetIds { below: checkpoint.next_seq });
        }
        match self.tending.cleaning {
            Cleaning::Preparing(segment, after) if checkpoint.position >= after => {
                self.scan(segment, segment.base);
            }
            Cleaning::Persisting(segment, after) if checkpoint.persist && checkpoint.position >= after => {
                let (journal, letters) =
                    if segment.letters { (None, Some(segment.end)) } else { (Some(segment.end), None) };
                self.post(Command::Drop { journal, letters });
                self.tending.cleaning = Cleaning::Dropping(segment);
            }
            _ => {}
        }
    }

    fn clean(&mut self) {
        if self.book.tables().is_broken() {
            // Whoever builds them anew needs all segments.
            return;
        }
        match self.tending.cleaning {
            Cleaning::Idle => self.consider(),
            Cleaning::Preparing(..) => self.checkpoint(false),
            Cleaning::Persisting(..) => self.checkpoint(true),
            Cleaning::Carrying(segment, ticket, next) if self.tickets.is_durable(ticket) => match next {
                Some(next) => self.scan(segment, next),
                None => self.tending.cleaning = Cleaning::Persisting(segment, self.book.position()),
            },
            Cleaning::Dropping(segment) => {
                let log = if segment.letters { self.contents.letter_log() } else { self.contents.journal() };
                if log.start() >= segment.end {
                    self.tending.cleaning = Cleaning::Idle;
                    self.tending.considered = 0;
                }
            }
            Cleaning::Scanning(_) | Cleaning::Carrying(..) => {}
        }
    }

    /// Looks whether a segment is worth cleaning, once per quarter segment of growth.
    fn consider(&mut self) {
        if self.book.position() < self.tending.considered + self.tuning.segment_bytes / 4 {
            return;
        }
        self.tending.considered = self.book.position();
        if let Some(segment) = self.journal_candidate().or_else(|| self.letter_candidate()) {
            self.tending.cleaning = match segment {
                (segment, true) => Cleaning::Preparing(segment, self.book.position()),
                (segment, false) => Cleaning::Persisting(segment, self.book.position()),
            };
        }
    }

    /// The oldest segment of the journal, if everything in it has left the ready state and it is worth it; with
    /// whether it must be scanned.
    fn journal_candidate(&mut self) -> Option<(Segment, bool)> {
        let segments = self.contents.journal().segments();
        let (base, end) = (segments.first()?.0, segments.get(1)?.0);
        let ready_from = self.ready.resume_from(self.book.departed().prefix()).0;
        if end > ready_from || end > self.book.position() {
            return None;
        }
        let total = self.book.position() - base;
        // Ids are carried forward until they expire, and take about as much there as in their table. Without them a
        // journal that holds little else would be rewritten over and over.
        let live = self.book.live().bytes_in(0..LETTER_LOG) + self.book.tables().bytes_of(Space::Ids);
        let dead_as_a_whole = !self.book.live().any_in(base..end) && !self.says_something_of_letters();
        let needs_scan = !dead_as_a_whole || self.options.dedup.is_some();
        let worth_it =
            total > self.tuning.clean_above_bytes && total > 2 * live + 2 * self.tuning.segment_bytes;
        (worth_it || !needs_scan).then_some((Segment { base, end, letters: false }, needs_scan))
    }

    /// Whether a segment without live frames may still hold state frames of letters in the letter log.
    fn says_something_of_letters(&self) -> bool {
        self.book.live().any_in(LETTER_LOG..u64::MAX) || self.contents.letter_log().segments().len() > 1
    }

    /// The oldest segment of the letter log, if more than half of the log is dead.
    fn letter_candidate(&mut self) -> Option<(Segment, bool)> {
        let segments = self.contents.letter_log().segments();
        let (base, end) = (segments.first()?.0, segments.get(1)?.0);
        let total: u64 = segments.iter().map(|(_, len)| len).sum();
        let live = self.book.live().bytes_in(LETTER_LOG..u64::MAX);
        (total > 2 * live + self.tuning.segment_bytes).then_some((Segment { base, end, letters: true }, true))
    }

    fn scan(&mut self, segment: Segment, from: u64) {
        self.tending.cleaning = Cleaning::Scanning(segment);
        let piece = Piece { from, to: segment.end, letters: segment.letters, now: self.latest() };
        self.task(Task::Scan(piece));
    }

    /// The cleaner has read a piece: carry forward what is left of it.
    pub(crate) fn scanned(
        &mut self,
        mut relocation: Relocation,
        next: Option<u64>,
    ) -> Result<(), IndexError> {
        let Cleaning::Scanning(segment) = self.tending.cleaning else { return Ok(()) };
        let mut moves = Vec::with_capacity(relocation.moves.len());
        for (_, seq, stored) in relocation.moves {
            moves.extend(self.still_waits(seq, stored)?);
        }
        relocation.moves = moves;
        let ticket = self.tickets.issue();
        self.post(Command::Relocate { ticket, relocation });
        self.tending.cleaning = Cleaning::Carrying(segment, ticket, next);
        Ok(())
    }

    /// What the cleaner read in the tables may be over by now, or on its way to be: then it is not carried forward, or
    /// an index that is built anew would bring it back. What only changed the place where it waits is carried there.
    fn still_waits(&self, seq: u64, stored: Stored) -> Result<Option<(u8, u64, Stored)>, IndexError> {
        if self.in_flight.get(seq).is_some_and(|held| held.goes.is_some()) {
            return Ok(None);
        }
        let due = stored.due.unwrap_or(0);
        if let Some(passed) = self.keys.passed(seq)
            && passed.was == (Was::Waiting { due })
        {
            return Ok(Some((FLAG_BLOCKED, seq, Stored { key: Some(passed.key), ..stored })));
        }
        let from = stored.moved_from;
        let delayed = self.book.delay().get(&(due, seq), &self.book.table(Space::Delay))?;
        if delayed.is_some_and(|pointer| pointer.at == from) {
            return Ok(Some((0, seq, stored)));
        }
        let Ok(message) = Message::from_wire(stored.wire.clone()) else { return Ok(None) };
        let Some(hash) = self.book.hash_of(&message) else { return Ok(None) };
        let slot = self.book.lines().get(&(hash, seq), &self.book.table(Space::Lines))?;
        let here = matches!(slot, Some(LineSlot::Blocked(pointer)) if pointer.at == from);
        Ok(here.then(|| (FLAG_BLOCKED, seq, Stored { key: Some(hash), ..stored })))
    }
}

impl<D: Disk, S: IndexTables> Store<D, S> {
    /// The whole of the index as text, for comparing a running one with one that was built anew.
    pub fn dump_index(&self) -> Result<Vec<String>, IndexError> {
        let book = &self.book;
        let (prefix, runs) = (book.departed().prefix(), book.departed().runs());
        let letters = book.letters().counts();
        let mut lines = vec![
            format!("next {} prefix {prefix} runs {runs:?}", book.next_seq()),
            format!("waiting {} held {} blocked {}", book.delay().len(), book.held(), book.blocked()),
            format!(
                "letters open {} replaying {} succeeded {} discarded {}",
                letters.open, letters.replaying, letters.succeeded, letters.discarded
            ),
            format!("live {:?}", book.live()),
        ];
        let all = usize::MAX / 4;
        lines.extend(
            book.delay().dump(&book.table(Space::Delay))?.iter().map(|entry| format!("delay {entry:?}")),
        );
        let slots = book.lines().range(&(0, 0), all, &book.table(Space::Lines))?;
        lines.extend(slots.iter().map(|entry| format!("line {entry:?}")));
        let reading = Reading::patiently(&**book.tables());
        let doors = book.letters().blocking_from((0, 0), all, reading)?;
        lines.extend(doors.iter().map(|entry| format!("door {entry:?}")));
        let letters = book.letters().range(0, all, reading)?;
        lines.extend(letters.iter().map(|entry| format!("letter {entry:?}")));
        lines.extend(book.letters().groups().dump(reading)?);
        let ids = book.letters().all_ids(all, reading)?;
        lines.extend(ids.iter().map(|entry| format!("letter id {entry:?}")));
        let places = book.places().range(&0, all, &book.table(Space::Places))?;
        lines.extend(places.iter().map(|entry| format!("place {entry:?}")));
        Ok(lines)
    }
}
