//! The state that follows from the journal: which messages are ready, which wait and for what, which letters there
//! are.
//!
//! The state of a message changes only in [`Book::fold`] (and `fold_letter`, for the letter log), with the same frames
//! in the same order at run time and after a restart: the fields are private to `state/`. The other methods that take
//! `&mut self` change no message's state. They set where folding begins (`begin_at`, `begin_with`, `reserve_numbers`),
//! move changes between memory and the tables at a checkpoint (`freeze`, `thaw`), load caches, or mark entries of the
//! due window as handed out (`pop_due`, `hand_out_delayed`, `put_back_delayed`). Messages in flight are not part of it:
//! a new process has none.

use std::sync::Arc;

use bytes::Bytes;
use redrive_core::{Message, Time};

use super::groups::LetterGroups;
use super::letters::{LetterChanges, LetterCounts, LetterIndex};
use super::lines::{LineKey, Lines};
use super::live::Live;
use crate::engine::completion::CompletionSet;
use crate::engine::delay::{DelayIndex, DelayKey};
use crate::engine::embedded::index::tables::{
    Cell, IdSlot, IndexError, IndexTables, LetterSlot, LineSlot, OnRebuild, Pointer, Reading, Space, Table,
    WaitLocation, Write,
};
use crate::engine::groups::GroupFigures;
use crate::engine::overlay::{Changes, Overlay};
use crate::engine::seam::{AfterDead, DeliveryOrder, StoreOptions};

/// What a folded frame means for messages in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folded {
    /// A delivery of this message is settled.
    Settled(u64),
    /// The next message in the line of this key may be able to start.
    LineMoved(u64),
    /// A message that was passed over is now in its line.
    InLine { seq: u64, hash: u64 },
}

#[derive(Debug)]
pub struct Book<S> {
    pub(super) options: StoreOptions,
    hash_seed: u64,
    pub(super) tables: Arc<S>,
    /// Messages that are no longer ready.
    pub(super) departed: CompletionSet,
    pub(super) next_seq: u64,
    /// The journal position up to which everything is folded.
    pub(super) position: u64,
    pub(super) delay: DelayIndex<Pointer>,
    pub(super) lines: Lines,
    pub(super) letters: LetterIndex,
    pub(super) ids: Overlay<Vec<u8>, IdSlot>,
    /// Mirrors the delay table and the blocked messages of the lines, by number. Empty if ids are not remembered.
    pub(super) places: Overlay<u64, WaitLocation>,
    pub(super) live: Live,
    pub(super) blocked: u64,
    /// How many of the delayed messages were deferred.
    pub(super) held: u64,
    /// The latest time of acceptance, in milliseconds. Ids that have expired by then stay expired if the clock is set
    /// back.
    pub(super) latest: u64,
    /// The journal being folded has damaged frames, so a message may be recorded where it no longer waits.
    pub(super) damaged: bool,
    /// The journal is being read from disk: an id that the cleaner copied forward may be missing in the tables.
    pub(super) catching_up: bool,
}

/// The book as of the tables, with the position and number from which ready messages are to be read.
#[derive(Debug)]
pub struct Loaded<S> {
    pub book: Book<S>,
    pub ready_at: u64,
    pub ready_seq: u64,
}

/// All changes that a checkpoint writes into the tables.
#[derive(Debug, Clone)]
pub struct Frozen {
    pub delay: Arc<Changes<DelayKey, Pointer>>,
    pub lines: Arc<Changes<LineKey, LineSlot>>,
    pub letters: LetterChanges,
    pub ids: Arc<Changes<Vec<u8>, IdSlot>>,
    pub places: Arc<Changes<u64, WaitLocation>>,
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

/// The journal position that the tables reflect after these writes.
pub(crate) fn position_of(writes: &[Write]) -> Option<u64> {
    let is_meta = |(space, key, _): &&Write| *space == Space::Meta && *key == META_KEY.bytes();
    let (_, _, value) = writes.iter().rev().find(is_meta)?;
    <Vec<u64>>::read(value.as_ref()?)?.get(1).copied()
}

/// The only key of the meta table.
pub const META_KEY: u64 = 0;
/// Incremented when the meaning of the tables or of this entry changes: an index of another version is rebuilt from the
/// journal.
const META_VERSION: u64 = 9;
const META_FIXED: usize = 18;
/// The maximum number of replay jobs remembered per letter; more replays are possible only with `force`.
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
            letters: LetterIndex::default(),
            ids: Overlay::default(),
            places: Overlay::default(),
            live: Live::default(),
            blocked: 0,
            held: 0,
            latest: 0,
            damaged: false,
            catching_up: false,
        }
    }

    /// Loads the book from the tables; `None` if they are empty.
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
            return Err(IndexError::Damaged("ids were not tracked before; tracking starts now".into()));
        }
        let runs_end = META_FIXED + meta[15] as usize * 2;
        let runs = meta.get(META_FIXED..runs_end).ok_or_else(damaged)?;
        let groups_end = runs_end + meta[16] as usize * 2;
        let groups = meta.get(runs_end..groups_end).ok_or_else(damaged)?;
        let groups = LetterGroups::counted(groups.chunks_exact(2).map(|group| (group[0], group[1])));
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
        let [open, replaying, succeeded, discarded] = [meta[9], meta[10], meta[11], meta[12]];
        let counts = LetterCounts { open, replaying, succeeded, discarded, erased: meta[17] };
        book.letters = LetterIndex::counted(counts, groups);
        book.latest = meta[14];
        book.live = Live::from_numbers(&meta[groups_end..]);
        Ok(Some(Loaded { book, ready_at: meta[4], ready_seq: meta[5] }))
    }

    /// Hands over all changes, to be written into the tables. `ready` is where reading ready messages would have to
    /// resume.
    pub fn freeze(&mut self, ready: (u64, u64)) -> Frozen {
        let runs = self.departed.runs();
        let mut meta =
            vec![META_VERSION, self.position, self.next_seq, self.departed.prefix(), ready.0, ready.1];
        let LetterCounts { open, replaying, succeeded, discarded, erased } = self.letters.counts();
        let letters = [open, replaying, succeeded, discarded];
        meta.extend([self.delay.len(), self.blocked, self.held].into_iter().chain(letters));
        let groups = self.letters.groups().open();
        let dedup = u64::from(self.options.dedup.is_some());
        meta.extend([dedup, self.latest, runs.len() as u64, groups.len() as u64, erased]);
        meta.extend(runs.into_iter().flat_map(|(first, count)| [first, count]));
        meta.extend(groups.flat_map(|(group, open)| [group, open]));
        meta.extend(self.live.numbers());
        Frozen {
            delay: self.delay.freeze(),
            lines: self.lines.freeze(),
            letters: self.letters.freeze(),
            ids: self.ids.freeze(),
            places: self.places.freeze(),
            meta,
        }
    }

    /// Returns the frozen changes once the tables hold them, so that their memory can be freed elsewhere.
    pub fn thaw(&mut self) -> Frozen {
        Frozen {
            delay: self.delay.thaw(),
            lines: self.lines.thaw(),
            letters: self.letters.thaw(),
            ids: self.ids.thaw(),
            places: self.places.thaw(),
            meta: Vec::new(),
        }
    }

    /// The number of changes not yet handed over.
    pub fn changes(&self) -> usize {
        let waiting = self.delay.changes() + self.lines.len() + self.places.len();
        waiting + self.letters.changes() + self.ids.len()
    }

    pub fn table(&self, space: Space) -> Table<'_, S> {
        Reading::patiently(&*self.tables).table(space)
    }

    /// Read access for callers that prefer an error to waiting for a rebuild.
    pub fn asked(&self) -> Reading<'_, S> {
        Reading { tables: &self.tables, on_rebuild: OnRebuild::Ask }
    }

    /// Looks up a letter for a query, without waiting for a rebuild.
    pub fn asked_letter(&self, seq: u64) -> Result<Option<LetterSlot>, IndexError> {
        self.letters.get(seq, self.asked())
    }

    pub fn letter(&self, seq: u64) -> Result<Option<LetterSlot>, IndexError> {
        self.letters.get(seq, Reading::patiently(&*self.tables))
    }

    /// When the oldest open letter died, as far as a short search can tell.
    pub fn oldest_letter(&mut self) -> Result<Option<Time>, IndexError> {
        let reading = Reading { tables: &*self.tables, on_rebuild: OnRebuild::Ask };
        self.letters.groups_mut().search_oldest(reading)
    }

    /// The groups that have open letters.
    pub fn group_figures(&mut self, now: Time) -> Result<Vec<GroupFigures>, IndexError> {
        let reading = Reading { tables: &*self.tables, on_rebuild: OnRebuild::Ask };
        self.letters.groups_mut().figures(now, reading)
    }

    /// Reserves counters for groups with a decision. They do not come from the journal and matter only for later
    /// letters.
    pub fn reserve_groups(&mut self, groups: &[redrive_core::GroupId]) {
        self.letters.groups_mut().reserve(groups);
    }

    pub fn letters(&self) -> &LetterIndex {
        &self.letters
    }

    pub fn tables(&self) -> &Arc<S> {
        &self.tables
    }

    /// Messages that are no longer ready.
    pub fn departed(&self) -> &CompletionSet {
        &self.departed
    }

    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The journal position up to which everything is folded.
    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn delay(&self) -> &DelayIndex<Pointer> {
        &self.delay
    }

    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    pub fn ids(&self) -> &Overlay<Vec<u8>, IdSlot> {
        &self.ids
    }

    pub fn places(&self) -> &Overlay<u64, WaitLocation> {
        &self.places
    }

    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The number of messages that wait behind another one of their key.
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// How many of the delayed messages were deferred.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The latest time of acceptance, in milliseconds.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Takes the next due message out of the window in memory. It stays delayed until a frame changes its state.
    pub fn pop_due(&mut self, now: Time) -> Option<(DelayKey, Pointer)> {
        self.delay.pop_due(now)
    }

    /// Takes one message out of the window in memory, whatever its due time.
    pub fn hand_out_delayed(&mut self, key: DelayKey, pointer: Pointer) {
        self.delay.hand_out(key, pointer);
    }

    /// Puts back a message that was taken out of the window.
    pub fn put_back_delayed(&mut self, key: DelayKey, pointer: Pointer) {
        self.delay.put_back(key, pointer);
    }

    /// Fills the window in memory from the tables, without messages that are handed out.
    pub fn load_delayed(
        &mut self,
        entries: Vec<(DelayKey, Pointer)>,
        limit: usize,
        is_out: impl Fn(&DelayKey) -> bool,
    ) {
        self.delay.loaded(entries, limit, is_out);
    }

    /// What to read from the tables next, so that nothing is late; `None` if the window is full enough.
    pub fn wants_load(&mut self) -> Option<(DelayKey, usize)> {
        self.delay.wants_load()
    }

    /// The first message in a key's line.
    pub fn first_in_line(&mut self, hash: u64) -> Result<Option<(LineKey, LineSlot)>, IndexError> {
        self.lines.first(hash, &Reading::patiently(&*self.tables).table(Space::Lines))
    }

    /// Whether an open letter of the key precedes this message and blocks it.
    pub fn is_key_blocked(&self, hash: u64, seq: u64) -> Result<bool, IndexError> {
        if self.options.after_dead == AfterDead::Continue {
            return Ok(false);
        }
        self.letters.blocks(hash, seq, Reading::patiently(&*self.tables))
    }

    /// Where a message waits, and the frame with its content.
    pub fn place_of(&self, seq: u64) -> Result<Option<(WaitLocation, Pointer)>, IndexError> {
        let Some(place) = self.places.get(&seq, &self.asked().table(Space::Places))? else {
            return Ok(None);
        };
        let pointer = match place {
            WaitLocation::Due(due) => self.delay.get(&(due, seq), &self.asked().table(Space::Delay))?,
            WaitLocation::Line(hash) => {
                match self.lines.get(&(hash, seq), &self.asked().table(Space::Lines))? {
                    Some(LineSlot::Blocked(pointer)) => Some(pointer),
                    Some(LineSlot::Delayed) | None => None,
                }
            }
        };
        Ok(pointer.map(|pointer| (place, pointer)))
    }

    /// Searches the lines for the key of a message whose content cannot be read. Slow.
    pub fn key_in_line(&self, seq: u64) -> Result<Option<u64>, IndexError> {
        let table = self.table(Space::Lines);
        let mut from = (0, 0);
        loop {
            let slots = self.lines.range(&from, 1024, &table)?;
            let Some(((hash, last), _)) = slots.last().copied() else { return Ok(None) };
            if let Some(((hash, _), _)) = slots.iter().find(|((_, s), _)| *s == seq) {
                return Ok(Some(*hash));
            }
            from = (hash, last + 1);
        }
    }

    /// The hash of a message's key, if keys are ordered.
    pub fn hash_of(&self, message: &Message) -> Option<u64> {
        match self.options.ordering {
            DeliveryOrder::None => None,
            DeliveryOrder::Key => message.key().map(|key| self.hash_of_key(key)),
        }
    }

    /// The hash of the id of a stored message.
    pub(crate) fn id_hash_of(&self, wire: &Bytes) -> u64 {
        // No message has an empty id, so an unreadable one is never found by its id.
        let message = Message::from_wire(wire.clone()).ok();
        self.hash_of_key(message.as_ref().map_or("", Message::id).as_bytes())
    }

    pub fn hash_of_key(&self, key: &[u8]) -> u64 {
        key_hash(key, self.hash_seed)
    }
}

/// The hash of a key, seeded per store so that nobody can choose keys that collide.
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}
