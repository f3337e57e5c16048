//! The threads of a store, and the mailboxes between them and the dispatch thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::contents::Contents;
use crate::engine::embedded::directory::unusable::stopped;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::healing::Healing;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::embedded::maintenance::maintainer::{Maintainer, Task, run_upkeep, upkeep};
use crate::engine::embedded::maintenance::scrub::{Scrub, Scrubbed};
use crate::engine::embedded::write::command::{Command, Note};
use crate::engine::embedded::write::ingest::StoreIngest;
use crate::engine::embedded::write::mailbox::Mailbox;
use crate::engine::embedded::write::writer::Writer;
use crate::engine::seam::EngineError;

type Wake = Arc<Mutex<Option<Arc<dyn Fn() + Send + Sync>>>>;

/// Either threads, or the caller itself, step by step, in the simulation.
enum WorkerMode<D: Disk, S> {
    Threads { writing: Vec<JoinHandle<()>>, upkeeping: JoinHandle<()> },
    Own(Box<Writer<D, Healing<S>>>, Maintainer<D, Healing<S>>),
    Gone,
}

/// What the scrub reads, and how often.
pub(crate) struct Scrubbing<'a, D: Disk> {
    pub(crate) contents: &'a Contents<D>,
    pub(crate) scrubbed: &'a Arc<Scrubbed>,
    pub(crate) every: Duration,
}

pub(crate) struct Workers<D: Disk, S: IndexTables> {
    commands: Arc<Mailbox<Command>>,
    tasks: Arc<Mailbox<Task>>,
    /// Wakes the upkeep of the tables: a checkpoint was written, or they are damaged.
    upkeep: Arc<Mailbox<()>>,
    notes: Arc<Mailbox<Note>>,
    /// Closing it ends the scrub.
    scrub_stop: Arc<Mailbox<()>>,
    mode: WorkerMode<D, S>,
    wake: Wake,
}

impl<D: Disk, S: IndexTables> Workers<D, S> {
    /// Creates workers without threads: the caller writes whenever it asks for notes.
    pub(crate) fn by_hand(writer: Writer<D, Healing<S>>, maintainer: Maintainer<D, Healing<S>>) -> Self {
        Self {
            commands: Arc::new(Mailbox::default()),
            tasks: Arc::new(Mailbox::default()),
            upkeep: Arc::new(Mailbox::default()),
            notes: Arc::new(Mailbox::default()),
            scrub_stop: Arc::new(Mailbox::default()),
            mode: WorkerMode::Own(Box::new(writer), maintainer),
            wake: Arc::default(),
        }
    }

    /// Moves the work to threads.
    pub(crate) fn spawn(&mut self, scrubbing: Option<Scrubbing<'_, D>>) -> std::io::Result<()> {
        let WorkerMode::Own(writer, maintainer) = std::mem::replace(&mut self.mode, WorkerMode::Gone) else {
            return Ok(());
        };
        let (disk, tables) = (writer.disk.clone(), Arc::clone(&maintainer.tables));
        let (commands, tasks) = (Arc::clone(&self.commands), Arc::clone(&self.tasks));
        let (notes, wake) = (Arc::clone(&self.notes), Arc::clone(&self.wake));
        let write = std::thread::Builder::new().name("redrive-writer".into());
        let writing = write.spawn(move || writer.run(&commands, &notes, &|| call(&wake)))?;
        let (notes, wake) = (Arc::clone(&self.notes), Arc::clone(&self.wake));
        let thread = std::thread::Builder::new().name("redrive-maint".into());
        let maintaining = thread.spawn(move || maintainer.run(&tasks, &notes, &|| call(&wake)))?;
        let mut writing = vec![writing, maintaining];
        if let Some(scrubbing) = scrubbing {
            writing.push(self.spawn_scrub(disk, &tables, &scrubbing)?);
        }
        let (calls, wake) = (Arc::clone(&self.upkeep), Arc::clone(&self.wake));
        let called = Arc::clone(&calls);
        tables.on_damage(Box::new(move || called.post((), 0)));
        let upkeep = std::thread::Builder::new().name("redrive-upkeep".into());
        let upkeeping = upkeep.spawn(move || run_upkeep(&*tables, &calls, &|| call(&wake)))?;
        self.mode = WorkerMode::Threads { writing, upkeeping };
        Ok(())
    }

    fn spawn_scrub(
        &self,
        disk: D,
        tables: &Arc<Healing<S>>,
        scrubbing: &Scrubbing<'_, D>,
    ) -> std::io::Result<JoinHandle<()>> {
        let Scrubbing { contents, scrubbed, every } = scrubbing;
        let logs = [("j", contents.journal().clone()), ("l", contents.letter_log().clone())];
        let (index, scrubbed) = (Arc::clone(tables), Arc::clone(scrubbed));
        let scrub = Scrub { disk, logs, index, scrubbed, every: *every };
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

    /// Wakes the upkeep of the tables, which have changed.
    pub(crate) fn call_for_upkeep(&self) {
        self.upkeep.post((), 0);
    }

    pub(crate) fn ingest(&self) -> StoreIngest {
        StoreIngest { commands: Arc::clone(&self.commands), notes: Arc::clone(&self.notes) }
    }

    /// The notes from the threads so far. Without threads, does the work first.
    pub(crate) fn notes(&mut self) -> Vec<Note> {
        self.work();
        self.notes.drain()
    }

    fn work(&mut self) {
        let WorkerMode::Own(writer, maintainer) = &mut self.mode else { return };
        for task in self.tasks.drain() {
            if let Some(note) = maintainer.work(task) {
                self.notes.post(note, 0);
            }
        }
        if !self.upkeep.drain().is_empty() {
            upkeep(&*maintainer.tables);
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

    /// Waits until a thread has done something. Without threads there is nothing to wait for.
    pub(crate) fn wait(&self) -> Result<Vec<Note>, EngineError> {
        if !self.has_threads() {
            return Ok(Vec::new());
        }
        self.notes.wait(None).ok_or_else(|| EngineError::Storage("the writer has stopped".into()))
    }

    pub(crate) fn has_threads(&self) -> bool {
        matches!(self.mode, WorkerMode::Threads { .. })
    }

    /// Stops accepting commands.
    pub(crate) fn refuse_commands(&self) {
        self.commands.close();
    }

    /// Ends the workers cleanly, after everything that was posted.
    pub(crate) fn finish(&mut self) -> Result<(), EngineError> {
        self.commands.close();
        self.tasks.close();
        self.scrub_stop.close();
        match std::mem::replace(&mut self.mode, WorkerMode::Gone) {
            WorkerMode::Threads { writing, upkeeping } => {
                // Upkeep ends last, because readers of the tables may be waiting for a rebuild.
                writing.into_iter().for_each(|thread| drop(thread.join()));
                self.upkeep.close();
                drop(upkeeping.join());
                Ok(())
            }
            WorkerMode::Own(mut writer, _) => writer.close().map_err(|error| stopped(&error)),
            WorkerMode::Gone => Ok(()),
        }
    }

    pub(crate) fn set_wake(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
    }
}

fn call(wake: &Wake) {
    let wake = wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(wake) = wake {
        wake();
    }
}
