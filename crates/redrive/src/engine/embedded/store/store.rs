//! One pipeline's store: the book, the journal behind it, and the threads that write both.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use redrive_core::{Fingerprint, Time};

use super::contents::Contents;
use super::in_flight::{Goes, Held, InFlight};
use super::key_gate::KeyGate;
use super::tickets::Tickets;
use crate::engine::embedded::crash::reminder::Reminder;
use crate::engine::embedded::crash::started::Started;
use crate::engine::embedded::crash::suspected::Suspected;
use crate::engine::embedded::directory::unusable::stopped;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::healing::Healing;
use crate::engine::embedded::index::tables::{IndexError, IndexTables};
use crate::engine::embedded::journal::log::ReadError;
use crate::engine::embedded::journal::record::Was;
use crate::engine::embedded::maintenance::keeper::{Census, Keeper, Task, run_upkeep, upkeep};
use crate::engine::embedded::maintenance::progress::Tending;
use crate::engine::embedded::maintenance::scrub::{Scrub, Scrubbed};
use crate::engine::embedded::state::book::Book;
use crate::engine::embedded::state::ready::Ready;
use crate::engine::embedded::tuning::Tuning;
use crate::engine::embedded::write::command::{Closing, Command, Note};
use crate::engine::embedded::write::mailbox::Mailbox;
use crate::engine::embedded::write::writer::Writer;
use crate::engine::history::Attempt;
use crate::engine::seam::{Delivery, EngineError, Settlement, StoreOptions, Ticket, Verdict};

type Wake = Arc<Mutex<Option<Arc<dyn Fn() + Send + Sync>>>>;

/// Who writes: threads of their own, or the caller itself, step by step, in the simulation.
pub(crate) enum Hands<D: Disk, S> {
    Threads { writing: Vec<JoinHandle<()>>, upkeeping: JoinHandle<()> },
    Own(Box<Writer<D, Healing<S>>>, Keeper<D, Healing<S>>),
    Gone,
}

pub struct Store<D: Disk, S: IndexTables> {
    pub(crate) options: StoreOptions,
    pub(crate) tuning: Tuning,
    pub(crate) book: Book<Healing<S>>,
    pub(crate) ready: Ready<D>,
    pub(crate) contents: Contents<D>,
    pub(crate) started: Started<D::File>,
    pub(crate) suspects: Suspected<D::File>,
    pub(crate) reminder: Reminder<D::File>,
    /// Suspects that came to an end, with the ticket that makes it durable.
    pub(crate) suspects_ending: Vec<(Ticket, u64)>,
    pub(crate) commands: Arc<Mailbox<Command>>,
    pub(crate) tasks: Arc<Mailbox<Task>>,
    /// Calls for upkeep of the tables: a checkpoint was written, or they are damaged.
    pub(crate) upkeep: Arc<Mailbox<()>>,
    pub(crate) notes: Arc<Mailbox<Note>>,
    pub(crate) hands: Hands<D, S>,
    pub(crate) wake: Wake,
    pub(crate) in_flight: InFlight,
    pub(crate) keys: KeyGate,
    pub(crate) tickets: Tickets,
    pub(crate) gated: bool,
    pub(crate) odd_to_due: bool,
    pub(crate) now: Time,
    pub(crate) failed: Option<EngineError>,
    /// Something of messages below this number was lost: no trace of one does not mean that it succeeded.
    pub(crate) doubtful_below: u64,
    pub(crate) scrubbed: Arc<Scrubbed>,
    /// Closed to end the scrub.
    pub(crate) scrub_stop: Arc<Mailbox<()>>,
    pub(crate) tending: Tending,
    pub(crate) census: Option<Census>,
    /// Dropped last, after the threads have ended.
    pub(crate) kept: Option<Box<dyn std::fmt::Debug + Send>>,
}

impl<D: Disk, S: IndexTables> std::fmt::Debug for Store<D, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("position", &self.book.position()).finish_non_exhaustive()
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
    /// Gives the writing to threads.
    pub(crate) fn spawn(
        &mut self,
        writer: Writer<D, Healing<S>>,
        keeper: Keeper<D, Healing<S>>,
    ) -> std::io::Result<()> {
        let disk = writer.disk.clone();
        let (commands, tasks) = (Arc::clone(&self.commands), Arc::clone(&self.tasks));
        let (notes, wake) = (Arc::clone(&self.notes), Arc::clone(&self.wake));
        let write = std::thread::Builder::new().name("redrive-writer".into());
        let writing = write.spawn(move || writer.run(&commands, &notes, &|| call(&wake)))?;
        let (notes, wake) = (Arc::clone(&self.notes), Arc::clone(&self.wake));
        let keep = std::thread::Builder::new().name("redrive-keeper".into());
        let keeping = keep.spawn(move || keeper.run(&tasks, &notes, &|| call(&wake)))?;
        let (calls, wake, tables) =
            (Arc::clone(&self.upkeep), Arc::clone(&self.wake), Arc::clone(self.book.tables()));
        let called = Arc::clone(&calls);
        tables.on_damage(Box::new(move || called.post((), 0)));
        let upkeep = std::thread::Builder::new().name("redrive-upkeep".into());
        let upkeeping = upkeep.spawn(move || run_upkeep(&*tables, &calls, &|| call(&wake)))?;
        let mut writing = vec![writing, keeping];
        if let Some(every) = self.tuning.scrub {
            writing.push(self.spawn_scrub(disk, every)?);
        }
        self.hands = Hands::Threads { writing, upkeeping };
        Ok(())
    }

    fn spawn_scrub(&self, disk: D, every: Duration) -> std::io::Result<JoinHandle<()>> {
        let logs = [("j", self.contents.journal().clone()), ("l", self.contents.letter_log().clone())];
        let (index, scrubbed) = (Arc::clone(self.book.tables()), Arc::clone(&self.scrubbed));
        let scrub = Scrub { disk, logs, index, scrubbed, every };
        let (stop, wake) = (Arc::clone(&self.scrub_stop), Arc::clone(&self.wake));
        let thread = std::thread::Builder::new().name("redrive-scrub".into());
        thread.spawn(move || scrub.run(&stop, &|| call(&wake)))
    }

    pub(crate) fn post(&self, command: Command) {
        let bytes = command.bytes();
        self.commands.post(command, bytes);
    }

    pub(crate) fn task(&self, task: Task) {
        self.tasks.post(task, 0);
    }

    /// In the simulation: does what the threads would have done by now.
    fn work(&mut self) {
        let Hands::Own(writer, keeper) = &mut self.hands else { return };
        for task in self.tasks.drain() {
            if let Some(note) = keeper.work(task) {
                self.notes.post(note, 0);
            }
        }
        if !self.upkeep.drain().is_empty() {
            upkeep(&*keeper.tables);
        }
        let commands = self.commands.drain();
        if commands.is_empty() {
            return;
        }
        let notes = &self.notes;
        if let Err(error) = writer.commit_all(commands, &mut |note| notes.post(note, 0)) {
            self.notes.post(Note::Failed(stopped(&error)), 0);
            self.commands.close();
        }
    }

    /// Takes in what the writer and the keeper have done.
    pub(crate) fn absorb(&mut self) -> Result<(), EngineError> {
        self.work();
        for note in self.notes.drain() {
            self.take_in(note)?;
        }
        self.check()
    }

    /// Whatever failed, the journal or only the index or a mark: nothing more is accepted or settled from here on.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.commands.close();
        self.failed.get_or_insert(error);
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn guard<T>(&mut self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(error @ EngineError::Storage(_)) = &result {
            self.fail(error.clone());
        }
        result
    }

    pub(crate) fn give(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        let ticket = self.tickets.issue_reported();
        let mut done = Vec::with_capacity(batch.len());
        let mut closings = Vec::new();
        for Settlement { delivery, verdict, attempt } in batch {
            let receipt = delivery.receipt;
            let Some(held) = self.in_flight.unsettled_mut(&receipt) else { continue };
            if verdict == Verdict::Release {
                let held = *held;
                self.put_back(delivery, held)?;
                continue;
            }
            held.goes = Goes::of(&verdict);
            let plain = held.was == Was::Fresh && held.key.is_none() && verdict == Verdict::Done;
            if plain && delivery.meta.replays == 0 {
                done.push(delivery.receipt.seq);
            } else {
                let Held { was, key, in_line, .. } = *held;
                // One that was made due before it came to its line does not jump into it: those before it may not have
                // been looked at.
                let key = key.filter(|_| in_line || !matches!(verdict, Verdict::Retry { .. }));
                let dies_again = delivery.meta.replays > 0 && matches!(verdict, Verdict::Dead { .. });
                let letter = if dies_again { self.book.letter(receipt.seq)? } else { None };
                let jobs = letter.map(|letter| letter.jobs).unwrap_or_default();
                let group = self.group_of(&delivery, &verdict, attempt.as_ref());
                closings.push(Closing { delivery, verdict, attempt, was, key, jobs, group });
            }
        }
        self.post(Command::Settle { ticket, done, closings });
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

    /// Waits until a ticket is durable.
    pub(crate) fn wait_for(&mut self, ticket: Ticket) -> Result<(), EngineError> {
        loop {
            self.absorb()?;
            if self.tickets.is_durable(ticket) {
                return Ok(());
            }
            self.wait_for_notes()?;
        }
    }

    pub(crate) fn wait_for_notes(&mut self) -> Result<(), EngineError> {
        if matches!(self.hands, Hands::Threads { .. }) {
            match self.notes.wait(None) {
                Some(notes) => notes.into_iter().try_for_each(|note| self.take_in(note))?,
                None => return Err(EngineError::Storage("the writer has stopped".into())),
            }
        }
        Ok(())
    }

    /// The clean end of a store that was written by hand or by threads.
    pub(crate) fn finish(&mut self) {
        self.commands.close();
        self.tasks.close();
        self.scrub_stop.close();
        match std::mem::replace(&mut self.hands, Hands::Gone) {
            Hands::Threads { writing, upkeeping } => {
                // Who still reads the tables may wait for them to be rebuilt, so upkeep ends last.
                writing.into_iter().for_each(|thread| drop(thread.join()));
                self.upkeep.close();
                drop(upkeeping.join());
            }
            Hands::Own(mut writer, _) => {
                if let Err(error) = writer.close() {
                    self.failed = Some(stopped(&error));
                }
            }
            Hands::Gone => {}
        }
    }

    /// Keeps something alive until the store and its threads are gone.
    pub(crate) fn keep_until_the_end(&mut self, kept: Box<dyn std::fmt::Debug + Send>) {
        self.kept = Some(kept);
    }

    /// From now on, somebody writes down how much the store holds.
    pub(crate) fn tell_holdings(&mut self, census: Census) {
        self.census = Some(census);
    }

    pub(crate) fn set_wake(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
    }
}

impl<D: Disk, S: IndexTables> Drop for Store<D, S> {
    /// What was given to the threads is still written. A store that is written by hand stops where it stands, as if
    /// the process had died.
    fn drop(&mut self) {
        if matches!(self.hands, Hands::Threads { .. }) {
            self.finish();
        }
    }
}

fn call(wake: &Wake) {
    let wake = wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(wake) = wake {
        wake();
    }
}
