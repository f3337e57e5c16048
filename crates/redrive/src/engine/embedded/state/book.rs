//! The state that follows from the journal: who is ready, who waits and for what, which letters there are.
//!
//! The state of a message changes only in [`Book::fold`] (and `fold_letter`, for the letter log), with the same frames in the
//! same order while running and after a restart: the fields are private to `state/`. The other methods that take `&mut self`
//! change no message's state. They set where folding begins (`begin_at`, `begin_with`, `reserve_numbers`), move changes
//! between memory and the tables at a checkpoint (`freeze`, `thaw`), load caches, or mark entries of the due window as handed
//! out (`pop_due`, `hand_out_delayed`, `put_back_delayed`). What is in flight is not part of it: a new process starts without.

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
    pub(super) options: StoreOptions,
    hash_seed: u64,
    pub(super) tables: Arc<S>,
    /// Messages that are no longer ready.
    pub(super) departed: CompletionSet,
    pub(super) next_seq: u64,
    /// The journal is folded up to here.
    pub(super) position: u64,
    pub(super) delay: DelayIndex<Pointer>,
    pub(super) lines: Lines,
    pub(super) letters: LetterIndex,
    pub(super) ids: Overlay<Vec<u8>, IdSlot>,
    /// Mirrors the delay table and the blocked in the lines, by number. Empty where ids are not remembered.
    pub(super) places: Overlay<u64, WaitLocation>,
    pub(super) live: Live,
    pub(super) blocked: u64,
    /// Of the delayed, those that were deferred.
    pub(super) held: u64,
    /// The latest time at which a message was accepted, in milliseconds. What has expired by then does not come back when
    /// the clock is set back.
    pub(super) latest: u64,
    /// Frames of the journal that is being folded are damaged; a message may be found where it no longer waits.
    pub(super) damaged: bool,
    /// The journal is being read from the disk: an id that the cleaner carried forward may be one the tables do not know.
    pub(super) catching_up: bool,
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
const META_VERSION: u64 = 9;
const META_FIXED: usize = 18;
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

    /// Hands all changes over for the tables. `ready` is where reading of ready messages would have to go on.
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

    /// The tables hold what was frozen. Returns it, so that the memory can be freed elsewhere.
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

    /// Changes that wait to be handed over.
    pub fn changes(&self) -> usize {
        let waiting = self.delay.changes() + self.lines.len() + self.places.len();
        waiting + self.letters.changes() + self.ids.len()
    }

    pub fn table(&self, space: Space) -> Table<'_, S> {
        Reading::patiently(&*self.tables).table(space)
    }

    /// Reads for a caller that wants an error rather than a wait while the tables are rebuilt.
    pub fn asked(&self) -> Reading<'_, S> {
        Reading { tables: &self.tables, on_rebuild: OnRebuild::Ask }
    }

    /// A letter that is asked for.
    pub fn asked_letter(&self, seq: u64) -> Result<Option<LetterSlot>, IndexError> {
        self.letters.get(seq, self.asked())
    }

    pub fn letter(&self, seq: u64) -> Result<Option<LetterSlot>, IndexError> {
        self.letters.get(seq, Reading::patiently(&*self.tables))
    }

    /// When the oldest open letter died, as far as a short search finds out.
    pub fn oldest_letter(&mut self) -> Result<Option<Time>, IndexError> {
        let reading = Reading { tables: &*self.tables, on_rebuild: OnRebuild::Ask };
        self.letters.groups_mut().search_oldest(reading)
    }

    /// The groups that have open letters.
    pub fn group_figures(&mut self, now: Time) -> Result<Vec<GroupFigures>, IndexError> {
        let reading = Reading { tables: &*self.tables, on_rebuild: OnRebuild::Ask };
        self.letters.groups_mut().figures(now, reading)
    }

    /// Groups about which something was decided. Nothing that the journal says: it only concerns what comes next.
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

    /// The journal is folded up to here.
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

    /// Messages that wait behind another one of their key.
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// Of the delayed, those that were deferred.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The latest time at which a message was accepted, in milliseconds.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Takes the next due message out of the window in memory. It stays delayed until a frame says otherwise.
    pub fn pop_due(&mut self, now: Time) -> Option<(DelayKey, Pointer)> {
        self.delay.pop_due(now)
    }

    /// Takes one message out of the window in memory, whenever it is due.
    pub fn hand_out_delayed(&mut self, key: DelayKey, pointer: Pointer) {
        self.delay.hand_out(key, pointer);
    }

    /// A message that was taken out of the window waits again.
    pub fn put_back_delayed(&mut self, key: DelayKey, pointer: Pointer) {
        self.delay.put_back(key, pointer);
    }

    /// Fills the window in memory from the tables, except with what is out.
    pub fn load_delayed(
        &mut self,
        entries: Vec<(DelayKey, Pointer)>,
        limit: usize,
        is_out: impl Fn(&DelayKey) -> bool,
    ) {
        self.delay.loaded(entries, limit, is_out);
    }

    /// What to read from the tables next so that nothing is late, if anything.
    pub fn wants_load(&mut self) -> Option<(DelayKey, usize)> {
        self.delay.wants_load()
    }

    /// The first of a key's line.
    pub fn first_in_line(&mut self, hash: u64) -> Result<Option<(LineKey, LineSlot)>, IndexError> {
        self.lines.first(hash, &Reading::patiently(&*self.tables).table(Space::Lines))
    }

    /// Whether an open letter of the key lies before this message and blocks it.
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

    /// The key of a message that stands in line, found the slow way: its content cannot be read.
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

    /// The hash of a message's key, where keys are ordered.
    pub fn hash_of(&self, message: &Message) -> Option<u64> {
        match self.options.ordering {
            DeliveryOrder::None => None,
            DeliveryOrder::Key => message.key().map(|key| self.hash_of_key(key)),
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

/// A key's hash, seeded per store so that colliding keys cannot be chosen.
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}
