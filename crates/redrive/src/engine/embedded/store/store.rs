//! The store of one pipeline: its messages, its threads, and its maintenance.

use std::sync::Arc;

use bytes::Bytes;
use redrive_core::{Fingerprint, Time};

use super::crash_marks::CrashMarks;
use super::dump::dump;
use super::find::Lookup;
use super::in_flight::{Goes, Held};
use super::letters::erase::Erasing;
use super::maintain::{Maintenance, Parts};
use super::take::Taking;
use super::tickets::Tickets;
use super::waiting::Waiting;
use super::workers::{Scrubbing, Workers};
use crate::engine::embedded::crash::reminder::Reminders;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexError, IndexTables};
use crate::engine::embedded::journal::log::ReadError;
use crate::engine::embedded::journal::record::{Blocked, Was};
use crate::engine::embedded::maintenance::maintainer::HoldingReporter;
use crate::engine::embedded::maintenance::scrub::Scrubbed;
use crate::engine::embedded::tuning::Tuning;
use crate::engine::embedded::write::command::{Closing, Command, Note};
use crate::engine::history::Attempt;
use crate::engine::seam::{Delivery, EngineError, Settlement, StoreOptions, Ticket, Verdict};

/// How many messages may be handed out, and which.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    All(usize),
    /// Due messages only.
    Due(usize),
}

pub struct Store<D: Disk, S: IndexTables> {
    pub(super) options: StoreOptions,
    /// The part of the options that is stored with every letter.
    pub(super) letter_options: Option<Bytes>,
    pub(super) tuning: Tuning,
    pub(super) waiting: Waiting<D, S>,
    pub(super) marks: CrashMarks<D::File>,
    pub(super) reminders: Reminders<D::File>,
    pub(super) workers: Workers<D, S>,
    pub(super) tickets: Tickets,
    pub(super) maintenance: Maintenance,
    pub(super) erasing: Erasing<D>,
    pub(super) gated: bool,
    pub(super) odd_to_due: bool,
    pub(super) now: Time,
    pub(super) failed: Option<EngineError>,
    /// Data of messages below this number was lost, so one without a trace need not have succeeded.
    pub(super) doubtful_below: u64,
    pub(super) scrubbed: Arc<Scrubbed>,
    /// Dropped last, after the threads have ended.
    pub(super) kept: Option<Box<dyn std::fmt::Debug + Send>>,
}

impl<D: Disk, S: IndexTables> std::fmt::Debug for Store<D, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let position = self.waiting.book.position();
        f.debug_struct("Store").field("position", &position).finish_non_exhaustive()
    }
}

impl From<IndexError> for EngineError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Rebuilding => Self::Unavailable(error.to_string()),
            IndexError::Damaged(_) | IndexError::Failed(_) => Self::Storage(error.to_string()),
        }
    }
}

impl From<ReadError> for EngineError {
    fn from(error: ReadError) -> Self {
        Self::Storage(error.to_string())
    }
}

impl<D: Disk, S: IndexTables> Store<D, S> {
    /// Starts the threads.
    pub(super) fn spawn(&mut self) -> std::io::Result<()> {
        let (contents, scrubbed) = (&self.waiting.contents, &self.scrubbed);
        self.workers.spawn(self.tuning.scrub.map(|every| Scrubbing { contents, scrubbed, every }))
    }

    pub(super) fn hand_out(
        &mut self,
        now: Time,
        room: Room,
        out: &mut Vec<Delivery>,
    ) -> Result<(), EngineError> {
        self.now = now;
        if self.gated || matches!(room, Room::All(0)) {
            return Ok(());
        }
        let first = out.len();
        let mut taking = Taking::new(&mut self.waiting, &mut self.marks, now);
        let taken = match room {
            Room::All(room) => {
                let taken = taking.take(room, self.odd_to_due, out);
                self.odd_to_due = !self.odd_to_due;
                taken
            }
            Room::Due(room) => taking.take_due(room, out),
        };
        let passed = taking.into_passed();
        self.pass_over(passed);
        taken?;
        self.marks.started(&out[first..], &self.waiting.in_flight)
    }

    fn pass_over(&self, passed: Vec<Blocked>) {
        if !passed.is_empty() {
            self.workers.post(Command::Block(passed));
        }
    }

    /// Processes what the writer and the maintainer have done.
    pub(super) fn apply_notes(&mut self) -> Result<(), EngineError> {
        for note in self.workers.notes() {
            self.take_in(note)?;
        }
        self.check()
    }

    fn take_in(&mut self, note: Note) -> Result<(), EngineError> {
        match note {
            Note::Committed { written, ticket, fresh_until } => {
                if let Some(written) = written {
                    self.waiting.fold(&written, fresh_until)?;
                }
                if let Some(ticket) = ticket {
                    self.tickets.durable(ticket);
                }
            }
            Note::Applied => self.with_maintenance(Maintenance::applied),
            Note::Loaded { entries, limit } => self.waiting.loaded(entries, limit),
            Note::Scanned { relocation, next } => {
                self.with_maintenance(|maintenance, parts| maintenance.scanned(parts, relocation, next))?;
            }
            Note::Wiped => self.erasing.wiped()?,
            Note::Failed(error) => self.fail(error),
        }
        Ok(())
    }

    /// Maintains index and journal. Changes must not pile up while the tables are slow: then nothing is delivered for a
    /// while, and ingest is refused.
    fn maintain(&mut self) -> Result<(), EngineError> {
        self.with_maintenance(Maintenance::run)?;
        while self.with_maintenance(|maintenance, parts| maintenance.is_behind(parts)) {
            self.wait_for_notes()?;
            self.apply_notes()?;
        }
        Ok(())
    }

    pub(super) fn with_maintenance<T>(
        &mut self,
        work: impl FnOnce(&mut Maintenance, &mut Parts<'_, D, S>) -> T,
    ) -> T {
        let mut parts = Parts {
            options: &self.options,
            tuning: self.tuning,
            waiting: &mut self.waiting,
            workers: &self.workers,
            tickets: &mut self.tickets,
            erasing: &mut self.erasing,
            now: self.now,
        };
        work(&mut self.maintenance, &mut parts)
    }

    /// Processes what was done, and starts what is due.
    pub(super) fn keep_going(&mut self) -> Result<(), EngineError> {
        let applied = self.apply_notes();
        self.guard(applied)?;
        let maintained = self.maintain();
        self.guard(maintained)
    }

    pub(super) fn lookup(&self) -> Lookup<'_, D, S> {
        Lookup {
            options: &self.options,
            tuning: self.tuning,
            book: &self.waiting.book,
            contents: &self.waiting.contents,
            in_flight: &self.waiting.in_flight,
            keys: &self.waiting.keys,
            doubtful_below: self.doubtful_below,
        }
    }

    /// Stops accepting and settling after any failure, whether of the journal, the index or the marks.
    fn fail(&mut self, error: EngineError) {
        self.workers.refuse_commands();
        self.failed.get_or_insert(error);
    }

    pub(super) fn check(&self) -> Result<(), EngineError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(super) fn guard<T>(&mut self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(error @ EngineError::Storage(_)) = &result {
            self.fail(error.clone());
        }
        result
    }

    pub(super) fn give(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        let ticket = self.tickets.issue_reported();
        let mut done = Vec::with_capacity(batch.len());
        let (mut closings, mut passed) = (Vec::new(), Vec::new());
        for Settlement { delivery, verdict, attempt } in batch {
            let receipt = delivery.receipt;
            let Some(held) = self.waiting.in_flight.unsettled_mut(&receipt) else { continue };
            if verdict == Verdict::Release {
                let held = *held;
                passed.extend(self.waiting.put_back(delivery, held)?);
                continue;
            }
            held.goes = Goes::of(&verdict);
            let plain = held.was == Was::Fresh && held.key.is_none() && verdict == Verdict::Done;
            if plain && delivery.meta.replays == 0 {
                done.push(delivery.receipt.seq);
            } else {
                let Held { was, key, in_line, .. } = *held;
                // A message made due before it joined its line does not enter it now: those before it may not have been
                // looked at.
                let key = key.filter(|_| in_line || !matches!(verdict, Verdict::Retry { .. }));
                let dies_again = delivery.meta.replays > 0 && matches!(verdict, Verdict::Dead { .. });
                let letter = if dies_again { self.waiting.book.letter(receipt.seq)? } else { None };
                let replaced = match letter.as_ref().filter(|letter| letter.edits > 0) {
                    Some(letter) => self.waiting.contents.replaced(letter)?,
                    None => Vec::new(),
                };
                let jobs = letter.map(|letter| letter.jobs).unwrap_or_default();
                let group = self.group_of(&delivery, &verdict, attempt.as_ref());
                let dies = matches!(verdict, Verdict::Dead { .. });
                let options = self.letter_options.clone().filter(|_| dies);
                closings.push(Closing {
                    delivery,
                    verdict,
                    attempt,
                    was,
                    key,
                    jobs,
                    group,
                    options,
                    replaced,
                });
            }
        }
        self.pass_over(passed);
        self.workers.post(Command::Settle { ticket, done, closings });
        Ok(ticket)
    }

    /// The group of a message that dies.
    fn group_of(
        &self,
        delivery: &Delivery,
        verdict: &Verdict,
        attempt: Option<&Attempt>,
    ) -> Option<Fingerprint> {
        let Verdict::Dead { reason, .. } = *verdict else { return None };
        let before = if attempt.is_none() { delivery.history.attempts().pop() } else { None };
        Some(self.options.grouping.of(reason, attempt.or(before.as_ref())))
    }

    /// Posts a command to the writer and waits until it is durable.
    pub(super) fn write(&mut self, command: impl FnOnce(Ticket) -> Command) -> Result<(), EngineError> {
        let ticket = self.tickets.issue();
        self.workers.post(command(ticket));
        self.wait_for(ticket)
    }

    /// Waits until a ticket is durable.
    pub(super) fn wait_for(&mut self, ticket: Ticket) -> Result<(), EngineError> {
        loop {
            self.apply_notes()?;
            if self.tickets.is_durable(ticket) {
                return Ok(());
            }
            self.wait_for_notes()?;
        }
    }

    pub(super) fn wait_for_notes(&mut self) -> Result<(), EngineError> {
        let notes = self.workers.wait()?;
        notes.into_iter().try_for_each(|note| self.take_in(note))
    }

    /// Ends the store cleanly, with or without threads.
    pub(super) fn finish(&mut self) {
        if let Err(error) = self.workers.finish() {
            self.failed = Some(error);
        }
    }

    /// Keeps a value alive until the store and its threads are gone.
    pub(crate) fn keep_until_the_end(&mut self, kept: Box<dyn std::fmt::Debug + Send>) {
        self.kept = Some(kept);
    }

    /// Sets the reporter for the holdings of the store.
    pub(crate) fn report_holdings(&mut self, reporter: HoldingReporter) {
        self.maintenance.report_holdings(reporter);
    }

    /// The whole index as text, to compare a running one with a rebuilt one.
    pub fn dump_index(&self) -> Result<Vec<String>, IndexError> {
        dump(&self.waiting.book)
    }
}

impl<D: Disk, S: IndexTables> Drop for Store<D, S> {
    /// Threads still write what was posted to them. A store without threads stops where it is, as if the process had
    /// died.
    fn drop(&mut self) {
        if self.workers.has_threads() {
            self.finish();
        }
    }
}
