//! The state that follows from the journal: who is ready, who waits and for what, which letters there are.
//!
//! [`Book::fold`] is the only thing that changes it, with the same frames in the same order while running and after a
//! restart. What is in flight is not part of it: a new process starts without.

use std::sync::Arc;

use bytes::Bytes;
use redrive_core::Message;

use super::lines::{LineKey, Lines};
use super::live::Live;
use crate::engine::completion::CompletionSet;
use crate::engine::delay::{DelayIndex, DelayKey};
use crate::engine::embedded::index::tables::{
    Cell, IdSlot, IndexError, IndexTables, LetterSlot, LineSlot, Patience, Pointer, Space, Table, WaitPlace,
    Write,
};
use crate::engine::overlay::{Changes, Overlay};
use crate::engine::seam::{AfterDead, Ordering, StoreOptions};

/// Key hash, letter number.
pub type DoorKey = (u64, u64);
/// Hash of the message's id, letter number.
pub type LetterIdKey = (u64, u64);

/// What a fold means for what is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folded {
    /// A delivery of this message is settled.
    Settled(u64),
    /// The line of this key moved on.
    LineMoved(u64),
    /// A message that was passed over now stands in its line.
    InLine { seq: u64, hash: u64 },
}

#[derive(Debug)]
pub struct Book<S> {
    pub(crate) options: StoreOptions,
    hash_seed: u64,
    pub(crate) tables: Arc<S>,
    /// Messages that are no longer ready.
    pub departed: CompletionSet,
    pub next_seq: u64,
    /// The journal is folded up to here.
    pub position: u64,
    pub delay: DelayIndex<Pointer>,
    pub lines: Lines,
    pub doors: Overlay<DoorKey, ()>,
    pub letters: Overlay<u64, LetterSlot>,
    /// Mirrors the letters, by the hash of their message's id.
    pub letter_ids: Overlay<LetterIdKey, ()>,
    pub ids: Overlay<Vec<u8>, IdSlot>,
    /// Mirrors the delay table and the blocked in the lines, by number. Empty where ids are not remembered.
    pub places: Overlay<u64, WaitPlace>,
    pub live: Live,
    pub blocked: u64,
    /// Of the delayed, those that were deferred.
    pub held: u64,
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
    /// No open letter has a lower number, as far as the search for the oldest has come.
    pub oldest_open: u64,
    /// The latest time at which a message was accepted, in milliseconds. What has expired by then does not come back when
    /// the clock is set back.
    pub latest: u64,
    /// Frames of the journal that is being folded are damaged; a message may be found where it no longer waits.
    pub damaged: bool,
    /// The journal is being read from the disk: an id that the cleaner carried forward may be one the tables do not know.
    pub catching_up: bool,
}

/// The book that the tables reflect, and from which position and number ready messages are to be read.
#[derive(Debug)]
pub struct Loaded<S> {
    pub book: Book<S>,
    pub ready_at: u64,
    pub ready_seq: u64,
}

/// Everything the tables have to learn at a checkpoint.
#[derive(Debug, Clone)]
pub struct Frozen {
    pub delay: Arc<Changes<DelayKey, Pointer>>,
    pub lines: Arc<Changes<LineKey, LineSlot>>,
    pub doors: Arc<Changes<DoorKey, ()>>,
    pub letters: Arc<Changes<u64, LetterSlot>>,
    pub letter_ids: Arc<Changes<LetterIdKey, ()>>,
    pub ids: Arc<Changes<Vec<u8>, IdSlot>>,
    pub places: Arc<Changes<u64, WaitPlace>>,
    pub meta: Vec<u64>,
}

impl Cell for Vec<u64> {
    fn write(&self, out: &mut Vec<u8>) {
        for number in self {
            number.write(out);
        }
    }
    fn read(raw: &[u8]) -> Option<Self> {
        raw.chunks_exact(8).map(u64::read).collect()
    }
}

/// The journal position that the tables reflect after these changes.
pub(crate) fn position_of(writes: &[Write]) -> Option<u64> {
    let is_meta = |(space, key, _): &&Write| *space == Space::Meta && *key == META_KEY.bytes();
    let (_, _, value) = writes.iter().rev().find(is_meta)?;
    <Vec<u64>>::read(value.as_ref()?)?.get(1).copied()
}

/// The one key of the meta table.
pub const META_KEY: u64 = 0;
/// Raised whenever the tables or the entry mean something else: an index of another version is built anew from the
/// journal.
const META_VERSION: u64 = 6;
const META_FIXED: usize = 16;
/// Replay jobs that are remembered per letter; more happen only by force.
pub const JOBS_MAX: usize = 64;

impl<S: IndexTables> Book<S> {
    /// An empty book over empty tables.
    pub fn new(options: StoreOptions, hash_seed: u64, tables: Arc<S>, near_max: usize) -> Self {
        Self {
            options,
            hash_seed,
            tables,
            departed: CompletionSet::default(),
            next_seq: 0,
            position: 0,
            delay: DelayIndex::new(near_max, 0),
            lines: Lines::default(),
            doors: Overlay::default(),
            letters: Overlay::default(),
            letter_ids: Overlay::default(),
            ids: Overlay::default(),
            places: Overlay::default(),
            live: Live::default(),
            blocked: 0,
            held: 0,
            open: 0,
            replaying: 0,
            succeeded: 0,
            discarded: 0,
            oldest_open: 0,
            latest: 0,
            damaged: false,
            catching_up: false,
        }
    }

    /// The book the tables reflect; `None` if they are empty.
    pub fn load(
        options: StoreOptions,
        hash_seed: u64,
        tables: Arc<S>,
        near_max: usize,
    ) -> Result<Option<Loaded<S>>, IndexError> {
        let Some(raw) = tables.get(Space::Meta, &META_KEY.bytes())? else { return Ok(None) };
        let damaged = || IndexError::Damaged("its meta entry cannot be read".into());
        let meta = <Vec<u64>>::read(&raw).ok_or_else(damaged)?;
        if let Some(version) = meta.first().filter(|version| **version != META_VERSION) {
            let what = format!("its version is {version}, this program has {META_VERSION}");
            return Err(IndexError::Damaged(what));
        }
        if meta.len() < META_FIXED {
            return Err(damaged());
        }
        if options.dedup.is_some() && meta[13] == 0 {
            return Err(IndexError::Damaged(
                "it was kept without ids, which are remembered from now on".into(),
            ));
        }
        let runs_end = META_FIXED + meta[15] as usize * 2;
        let runs = meta.get(META_FIXED..runs_end).ok_or_else(damaged)?;
        let mut departed = CompletionSet::starting_at(meta[3]);
        for run in runs.chunks_exact(2) {
            for number in run[0]..run[0].saturating_add(run[1]) {
                departed.insert(number);
            }
        }
        let mut book = Self::new(options, hash_seed, tables, near_max);
        book.position = meta[1];
        book.next_seq = meta[2];
        book.departed = departed;
        book.delay = DelayIndex::new(near_max, meta[6]);
        book.blocked = meta[7];
        book.held = meta[8];
        book.open = meta[9];
        book.replaying = meta[10];
        book.succeeded = meta[11];
        book.discarded = meta[12];
        book.latest = meta[14];
        book.live = Live::from_numbers(&meta[runs_end..]);
        Ok(Some(Loaded { book, ready_at: meta[4], ready_seq: meta[5] }))
    }

    /// Hands all changes over for the tables. `ready` is where reading of ready messages would have to go on.
    pub fn freeze(&mut self, ready: (u64, u64)) -> Frozen {
        let runs = self.departed.runs();
        let mut meta =
            vec![META_VERSION, self.position, self.next_seq, self.departed.prefix(), ready.0, ready.1];
        let letters = [self.open, self.replaying, self.succeeded, self.discarded];
        meta.extend([self.delay.len(), self.blocked, self.held].into_iter().chain(letters));
        meta.extend([u64::from(self.options.dedup.is_some()), self.latest, runs.len() as u64]);
        meta.extend(runs.into_iter().flat_map(|(first, count)| [first, count]));
        meta.extend(self.live.numbers());
        Frozen {
            delay: self.delay.freeze(),
            lines: self.lines.freeze(),
            doors: self.doors.freeze(),
            letters: self.letters.freeze(),
            letter_ids: self.letter_ids.freeze(),
            ids: self.ids.freeze(),
            places: self.places.freeze(),
            meta,
        }
    }

    /// The tables hold what was frozen. Returns it, so that the memory can be freed elsewhere.
    pub fn thaw(&mut self) -> Frozen {
        Frozen {
            delay: self.delay.thaw(),
            lines: self.lines.thaw(),
            doors: self.doors.thaw(),
            letters: self.letters.thaw(),
            letter_ids: self.letter_ids.thaw(),
            ids: self.ids.thaw(),
            places: self.places.thaw(),
            meta: Vec::new(),
        }
    }

    /// Changes that wait to be handed over.
    pub fn changes(&self) -> usize {
        let letters = self.doors.len() + self.letters.len() + self.letter_ids.len();
        self.delay.changes() + self.lines.len() + letters + self.ids.len() + self.places.len()
    }

    pub fn table(&self, space: Space) -> Table<'_, S> {
        Table { tables: &self.tables, space, patience: Patience::Wait }
    }

    /// A table for somebody who would rather be told than wait while it is built anew.
    pub fn asked(&self, space: Space) -> Table<'_, S> {
        Table { tables: &self.tables, space, patience: Patience::Ask }
    }

    /// A letter that somebody asks for.
    pub fn asked_letter(&self, seq: u64) -> Result<Option<LetterSlot>, IndexError> {
        self.letters.get(&seq, &self.asked(Space::Letters))
    }

    /// The letters whose message has an id with this hash, in order; up to `limit`.
    pub fn asked_letters_of(&self, id_hash: u64, limit: usize) -> Result<Vec<u64>, IndexError> {
        let (from, to) = ((id_hash, 0), (id_hash, u64::MAX));
        let found = self.letter_ids.range_to(&from, &to, limit, &self.asked(Space::LetterIds))?;
        Ok(found.into_iter().map(|((_, number), ())| number).collect())
    }

    pub fn letter(&self, seq: u64) -> Result<Option<LetterSlot>, IndexError> {
        self.letters.get(&seq, &self.table(Space::Letters))
    }

    /// The first of a key's line.
    pub fn first_in_line(&mut self, hash: u64) -> Result<Option<(LineKey, LineSlot)>, IndexError> {
        let table = Table { tables: &*self.tables, space: Space::Lines, patience: Patience::Wait };
        self.lines.first(hash, &table)
    }

    /// Whether an open letter of the key lies before this message and blocks it.
    pub fn is_key_blocked(&self, hash: u64, seq: u64) -> Result<bool, IndexError> {
        if self.options.after_dead == AfterDead::Continue {
            return Ok(false);
        }
        let first = self.doors.first(&(hash, 0), &(hash, u64::MAX), &self.table(Space::Doors))?;
        Ok(first.is_some_and(|((_, letter), ())| letter < seq))
    }

    /// The hash of a message's key, where keys are ordered.
    pub fn hash_of(&self, message: &Message) -> Option<u64> {
        match self.options.ordering {
            Ordering::None => None,
            Ordering::Key => message.key().map(|key| self.hash_of_key(key)),
        }
    }

    /// The hash of the id of a stored message.
    pub(crate) fn id_hash_of(&self, wire: &Bytes) -> u64 {
        // No message has an empty id, so one that cannot be read is found under none.
        let message = Message::from_wire(wire.clone()).ok();
        self.hash_of_key(message.as_ref().map_or("", Message::id).as_bytes())
    }

    pub fn hash_of_key(&self, key: &[u8]) -> u64 {
        key_hash(key, self.hash_seed)
    }
}

/// A key's hash, seeded per store so that nobody can choose keys that collide.
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}
