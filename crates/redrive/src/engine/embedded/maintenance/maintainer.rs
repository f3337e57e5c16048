//! Maintains the index on its own thread: slow work that must not delay deliveries.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::clean::{Cleaner, Piece};
use crate::engine::delay::DelayKey;
use crate::engine::embedded::directory::manifest::Holding;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::healing::Healing;
use crate::engine::embedded::index::tables::{
    Cell, IndexError, IndexTables, OnRebuild, Pointer, Space, Table, Write,
};
use crate::engine::embedded::state::book::{Frozen, META_KEY};
use crate::engine::embedded::write::command::Note;
use crate::engine::embedded::write::mailbox::Mailbox;
use crate::engine::overlay::{Changes, Far};

/// A request from the owner of the store. Requests are answered in order.
#[derive(Debug)]
pub enum Task {
    /// Write a checkpoint into the tables; with `persist` it survives a power failure.
    Apply {
        frozen: Frozen,
        persist: bool,
    },
    Load {
        from: DelayKey,
        limit: usize,
    },
    Scan(Piece),
    /// Overwrite the copies of erased letters in a segment.
    Wipe(WipePart),
    /// Record how much the store holds.
    Report(HoldingReporter, Holding),
    /// Free memory, which may take long.
    Forget(Frozen),
}

/// A segment in which erased letters are to be overwritten.
#[derive(Debug, Clone)]
pub struct WipePart {
    pub base: u64,
    pub end: u64,
    /// Whether it is a segment of the letter log.
    pub letters: bool,
    pub erased: Arc<HashSet<u64>>,
}

/// Records how much a store holds.
#[derive(Clone)]
pub struct HoldingReporter(Arc<dyn Fn(Holding) + Send + Sync>);

impl HoldingReporter {
    pub fn new(tell: impl Fn(Holding) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl std::fmt::Debug for HoldingReporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HoldingReporter")
    }
}

#[derive(Debug)]
pub struct Maintainer<D: Disk, S> {
    pub tables: Arc<S>,
    pub cleaner: Cleaner<D, S>,
}

impl<D: Disk, S: IndexTables> Maintainer<D, S> {
    pub fn run(self, tasks: &Mailbox<Task>, notes: &Mailbox<Note>, wake: &dyn Fn()) {
        while let Some(arrived) = tasks.wait(None) {
            for task in arrived {
                // Even after a panic, the owner must get an answer.
                let worked = catch_unwind(AssertUnwindSafe(|| self.work(task)));
                let note = worked
                    .unwrap_or_else(|_| Some(Note::Failed(IndexError::Damaged("it panicked".into()).into())));
                if let Some(note) = note {
                    notes.post(note, 0);
                    wake();
                }
            }
        }
    }

    pub fn work(&self, task: Task) -> Option<Note> {
        let note = match task {
            Task::Apply { frozen, persist } => self.apply(&frozen, persist).map(|()| Note::Applied),
            Task::Load { from, limit } => self.load(&from, limit),
            Task::Scan(piece) => {
                self.cleaner.scan(&piece).map(|(relocation, next)| Note::Scanned { relocation, next })
            }
            Task::Wipe(part) => {
                let log = if part.letters { &self.cleaner.letters } else { &self.cleaner.journal };
                let wiped = log.wipe(part.base, part.end, &part.erased);
                return Some(wiped.map_or_else(|error| Note::Failed(error.into()), |()| Note::Wiped));
            }
            Task::Report(reporter, holding) => {
                (reporter.0)(holding);
                return None;
            }
            Task::Forget(frozen) => {
                drop(frozen);
                return None;
            }
        };
        Some(note.unwrap_or_else(|error| Note::Failed(error.into())))
    }

    fn apply(&self, frozen: &Frozen, persist: bool) -> Result<(), IndexError> {
        write_checkpoint(&*self.tables, frozen)?;
        if persist { self.tables.persist() } else { Ok(()) }
    }

    fn load(&self, from: &DelayKey, limit: usize) -> Result<Note, IndexError> {
        let table = Table { tables: &*self.tables, space: Space::Delay, on_rebuild: OnRebuild::Wait };
        let entries = Far::<DelayKey, Pointer>::range(&table, from, None, limit)?;
        Ok(Note::Loaded { entries, limit })
    }
}

/// Writes all frozen changes into the tables, atomically.
pub fn write_checkpoint<S: IndexTables>(tables: &S, frozen: &Frozen) -> Result<(), IndexError> {
    let mut writes = Vec::new();
    collect(&mut writes, Space::Delay, &frozen.delay);
    collect(&mut writes, Space::Lines, &frozen.lines);
    collect(&mut writes, Space::Doors, &frozen.letters.blocking);
    collect(&mut writes, Space::Letters, &frozen.letters.slots);
    collect(&mut writes, Space::LetterIds, &frozen.letters.by_id);
    collect(&mut writes, Space::GroupLetters, &frozen.letters.groups.letters);
    collect(&mut writes, Space::GroupTimes, &frozen.letters.groups.times);
    collect(&mut writes, Space::Ids, &frozen.ids);
    collect(&mut writes, Space::Places, &frozen.places);
    writes.push((Space::Meta, META_KEY.bytes(), Some(frozen.meta.bytes())));
    tables.apply(&mut writes)
}

/// Merges runs of the tables after each checkpoint, and rebuilds damaged tables. It has its own thread, because both
/// may take long.
pub fn run_upkeep<S: IndexTables>(tables: &Healing<S>, called: &Mailbox<()>, wake: &dyn Fn()) {
    while called.wait(None).is_some() {
        upkeep(tables);
        wake();
    }
}

/// Does this once.
pub fn upkeep<S: IndexTables>(tables: &Healing<S>) {
    if tables.is_broken() {
        tables.heal();
    }
    loop {
        match tables.merge() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return tables.untidy(error.to_string()),
        }
    }
}

fn collect<K: Cell + Ord, V: Cell>(writes: &mut Vec<Write>, space: Space, changes: &Changes<K, V>) {
    let changed = changes.iter().map(|(key, change)| (space, key.bytes(), change.value().map(Cell::bytes)));
    writes.extend(changed);
}
