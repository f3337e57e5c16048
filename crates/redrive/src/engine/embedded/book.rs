//! The state that follows from the journal: who is ready, who waits and for what, which letters there are.
//!
//! [`Book::fold`] is the only thing that changes it, with the same frames in the same order while running and after a
//! restart. What is in flight is not part of it: a new process starts without.

use std::sync::Arc;

use redrive_core::{Message, Reason, Time};

use super::frame::{Frame, frame_len};
use super::live::Live;
use super::record::{
    AcceptedBody, Blocked, Ended, FLAG_BLOCKED, LetterChanged, LetterMoved, Seen, SlotCopy, Stored, Was,
    get_seqs, kind,
};
use super::shelf::{Cell, LetterSlot, LineSlot, Pointer, Shelf, ShelfError, Space, Table};
use crate::engine::completion::CompletionSet;
use crate::engine::delay::{DelayIndex, DelayKey};
use crate::engine::letter::LetterState;
use crate::engine::overlay::{Changes, Overlay};
use crate::engine::seam::{AfterDead, Ordering, StoreOptions};

/// Key hash, message number: the order of a key is the order of acceptance.
pub type LineKey = (u64, u64);
/// Key hash, letter number.
pub type DoorKey = (u64, u64);
/// Message number and time of acceptance.
pub type IdSlot = (u64, u64);

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
    options: StoreOptions,
    hash_seed: u64,
    shelf: Arc<S>,
    /// Messages that are no longer ready.
    pub departed: CompletionSet,
    pub next_seq: u64,
    /// The journal is folded up to here.
    pub position: u64,
    pub delay: DelayIndex<Pointer>,
    pub lines: Overlay<LineKey, LineSlot>,
    pub doors: Overlay<DoorKey, ()>,
    pub letters: Overlay<u64, LetterSlot>,
    pub ids: Overlay<Vec<u8>, IdSlot>,
    pub live: Live,
    pub blocked: u64,
    pub open: u64,
    pub discarded: u64,
    /// Frames of the journal that is being folded are damaged; a message may be found where it no longer waits.
    pub damaged: bool,
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
    pub ids: Arc<Changes<Vec<u8>, IdSlot>>,
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

/// The one key of the meta table.
pub const META_KEY: u64 = 0;
const META_VERSION: u64 = 1;
const META_FIXED: usize = 11;
/// Replay jobs that are remembered per letter; more happen only by force.
pub const JOBS_MAX: usize = 64;

impl<S: Shelf> Book<S> {
    /// An empty book over empty tables.
    pub fn new(options: StoreOptions, hash_seed: u64, shelf: Arc<S>, near_max: usize) -> Self {
        Self {
            options,
            hash_seed,
            shelf,
            departed: CompletionSet::default(),
            next_seq: 0,
            position: 0,
            delay: DelayIndex::new(near_max, 0),
            lines: Overlay::default(),
            doors: Overlay::default(),
            letters: Overlay::default(),
            ids: Overlay::default(),
            live: Live::default(),
            blocked: 0,
            open: 0,
            discarded: 0,
            damaged: false,
        }
    }

    /// The book the tables reflect; `None` if they are empty.
    pub fn load(
        options: StoreOptions,
        hash_seed: u64,
        shelf: Arc<S>,
        near_max: usize,
    ) -> Result<Option<Loaded<S>>, ShelfError> {
        let Some(raw) = shelf.get(Space::Meta, &META_KEY.bytes())? else { return Ok(None) };
        let damaged = || ShelfError("its meta entry cannot be read".into());
        let meta = <Vec<u64>>::read(&raw).filter(|m| m.len() >= META_FIXED && m[0] == META_VERSION);
        let meta = meta.ok_or_else(damaged)?;
        let runs_end = META_FIXED + meta[10] as usize * 2;
        let runs = meta.get(META_FIXED..runs_end).ok_or_else(damaged)?;
        let mut departed = CompletionSet::starting_at(meta[3]);
        for run in runs.chunks_exact(2) {
            for number in run[0]..run[0].saturating_add(run[1]) {
                departed.insert(number);
            }
        }
        let mut book = Self::new(options, hash_seed, shelf, near_max);
        book.position = meta[1];
        book.next_seq = meta[2];
        book.departed = departed;
        book.delay = DelayIndex::new(near_max, meta[6]);
        book.blocked = meta[7];
        book.open = meta[8];
        book.discarded = meta[9];
        book.live = Live::from_numbers(&meta[runs_end..]);
        Ok(Some(Loaded { book, ready_at: meta[4], ready_seq: meta[5] }))
    }

    /// Hands all changes over for the tables. `ready` is where reading of ready messages would have to go on.
    pub fn freeze(&mut self, ready: (u64, u64)) -> Frozen {
        let runs = self.departed.runs();
        let mut meta =
            vec![META_VERSION, self.position, self.next_seq, self.departed.prefix(), ready.0, ready.1];
        meta.extend([self.delay.len(), self.blocked, self.open, self.discarded, runs.len() as u64]);
        meta.extend(runs.into_iter().flat_map(|(first, count)| [first, count]));
        meta.extend(self.live.numbers());
        Frozen {
            delay: self.delay.freeze(),
            lines: self.lines.freeze(),
            doors: self.doors.freeze(),
            letters: self.letters.freeze(),
            ids: self.ids.freeze(),
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
            ids: self.ids.thaw(),
            meta: Vec::new(),
        }
    }

    /// Changes that wait to be handed over.
    pub fn changes(&self) -> usize {
        self.delay.changes() + self.lines.len() + self.doors.len() + self.letters.len() + self.ids.len()
    }

    pub fn table(&self, space: Space) -> Table<'_, S> {
        Table { shelf: &self.shelf, space }
    }

    pub fn letter(&self, seq: u64) -> Result<Option<LetterSlot>, ShelfError> {
        self.letters.get(&seq, &self.table(Space::Letters))
    }

    /// The first of a key's line.
    pub fn first_in_line(&self, hash: u64) -> Result<Option<(LineKey, LineSlot)>, ShelfError> {
        let first = self.lines.range(&(hash, 0), 1, &self.table(Space::Lines))?;
        Ok(first.into_iter().next().filter(|(key, _)| key.0 == hash))
    }

    /// Whether an open letter of the key lies before this message and blocks it.
    pub fn is_key_blocked(&self, hash: u64, seq: u64) -> Result<bool, ShelfError> {
        if self.options.after_dead == AfterDead::Continue {
            return Ok(false);
        }
        let first = self.doors.range(&(hash, 0), 1, &self.table(Space::Doors))?;
        Ok(first.first().is_some_and(|((door, letter), ())| *door == hash && *letter < seq))
    }

    /// Follows one frame of the journal.
    pub fn fold(&mut self, frame: &Frame, folded: &mut impl FnMut(Folded)) -> Result<(), ShelfError> {
        self.position = frame.end();
        let pointer = Pointer { at: frame.position, len: frame_len(frame.body.len()) as u32 };
        match frame.kind {
            kind::ACCEPTED => {
                self.accepted(frame, pointer);
                Ok(())
            }
            kind::DONE => {
                for seq in get_seqs(&frame.body) {
                    self.departed.insert(seq);
                    folded(Folded::Settled(seq));
                }
                Ok(())
            }
            kind::ENDED => {
                for ended in Ended::read_all(&frame.body) {
                    self.ended(&ended, folded)?;
                }
                Ok(())
            }
            kind::WAITING => match Stored::read(frame.body.clone()) {
                Some(stored) => self.waiting(frame.tag, &stored, pointer, folded),
                None => Ok(()),
            },
            kind::DEAD => match Stored::read(frame.body.clone()) {
                Some(stored) => self.dead(frame.tag, &stored, pointer, folded),
                None => Ok(()),
            },
            kind::BLOCKED => {
                for blocked in Blocked::read_all(&frame.body) {
                    self.block(&blocked, folded)?;
                }
                Ok(())
            }
            kind::MOVED => match Stored::read(frame.body.clone()) {
                Some(stored) => self.moved(frame.tag, frame.flags, &stored, pointer),
                None => Ok(()),
            },
            kind::LETTER_STATE => match LetterChanged::read(frame.body.clone()) {
                Some(changed) => changed.seqs.iter().try_for_each(|seq| self.set_letter(*seq, changed.state)),
                None => Ok(()),
            },
            kind::LETTER_MOVED => {
                for moved in LetterMoved::read_all(&frame.body) {
                    self.letter_moved(&moved)?;
                }
                Ok(())
            }
            kind::PURGED => get_seqs(&frame.body).try_for_each(|seq| self.purged(seq)),
            kind::SEEN => {
                for seen in Seen::read_all(frame.body.clone()) {
                    self.seen(&seen)?;
                }
                Ok(())
            }
            // An unknown kind cannot be of this format version; the version check has refused newer stores.
            _ => Ok(()),
        }
    }

    fn accepted(&mut self, frame: &Frame, pointer: Pointer) {
        let seq = frame.tag;
        self.next_seq = self.next_seq.max(seq + 1);
        let Some(body) = AcceptedBody::read(frame.body.clone()) else { return };
        if let Some(due) = body.due {
            self.departed.insert(seq);
            self.delay.put((due, seq), pointer);
            self.live.add(pointer);
        }
        if self.options.dedup.is_some()
            && let Ok(message) = Message::from_wire(body.wire)
        {
            self.see(message.id().as_bytes().to_vec(), seq, body.at);
        }
    }

    /// An id that the cleaner carried forward; a later acceptance of the same id counts more.
    fn seen(&mut self, seen: &Seen) -> Result<(), ShelfError> {
        let id = seen.id.to_vec();
        let known = self.ids.get(&id, &self.table(Space::Ids))?;
        if known.is_none_or(|(seq, _)| seq <= seen.seq) {
            self.see(id, seen.seq, seen.at);
        }
        Ok(())
    }

    fn see(&mut self, id: Vec<u8>, seq: u64, at: u64) {
        if self.options.dedup.is_some() {
            self.ids.set(id, (seq, at));
        }
    }

    fn ended(&mut self, ended: &Ended, folded: &mut impl FnMut(Folded)) -> Result<(), ShelfError> {
        self.leave_state(ended.seq, ended.was, ended.key)?;
        self.leave_line(ended.seq, ended.key, folded);
        if ended.letter {
            self.set_letter(ended.seq, LetterState::Succeeded)?;
        }
        folded(Folded::Settled(ended.seq));
        Ok(())
    }

    fn waiting(
        &mut self,
        seq: u64,
        stored: &Stored,
        pointer: Pointer,
        folded: &mut impl FnMut(Folded),
    ) -> Result<(), ShelfError> {
        self.leave_state(seq, stored.was, stored.key)?;
        self.delay.put((stored.due.unwrap_or(0), seq), pointer);
        self.live.add(pointer);
        if let Some(key) = stored.key {
            self.lines.set((key, seq), LineSlot::Delayed);
        }
        if let Some(hash) = stored.key {
            folded(Folded::LineMoved(hash));
        }
        if stored.was == Was::Letter {
            self.replaying(seq, stored)?;
        } else {
            folded(Folded::Settled(seq));
        }
        Ok(())
    }

    fn dead(
        &mut self,
        seq: u64,
        stored: &Stored,
        pointer: Pointer,
        folded: &mut impl FnMut(Folded),
    ) -> Result<(), ShelfError> {
        self.leave_state(seq, stored.was, stored.key)?;
        self.leave_line(seq, stored.key, folded);
        // Also at its first death: a crash may have left a copy in the letter log that the journal knows nothing of.
        let before = self.letter(seq)?;
        if let Some(before) = &before {
            self.live.sub(before.pointer);
            self.count_letter(before.state, false);
        }
        let slot = LetterSlot {
            pointer,
            state: LetterState::Open,
            reason: stored.reason.unwrap_or(Reason::Corrupt),
            dead_at: Time::from_millis(stored.dead_at),
            replays: stored.meta.replays,
            jobs: stored.jobs.clone(),
            key: stored.key,
        };
        self.put_letter(seq, slot);
        folded(Folded::Settled(seq));
        Ok(())
    }

    fn put_letter(&mut self, seq: u64, slot: LetterSlot) {
        self.live.add(slot.pointer);
        self.count_letter(slot.state, true);
        if let Some(hash) = slot.key
            && slot.state == LetterState::Open
        {
            self.doors.set((hash, seq), ());
        }
        self.letters.set(seq, slot);
    }

    fn block(&mut self, blocked: &Blocked, folded: &mut impl FnMut(Folded)) -> Result<(), ShelfError> {
        // It may have been moved since it was passed over.
        let now_at = self.leave_state(blocked.seq, blocked.was, Some(blocked.key))?;
        let pointer = now_at.unwrap_or(Pointer { at: blocked.at, len: blocked.len });
        let hash = blocked.key;
        self.lines.set((hash, blocked.seq), LineSlot::Blocked(pointer));
        self.live.add(pointer);
        self.blocked += 1;
        folded(Folded::InLine { seq: blocked.seq, hash });
        Ok(())
    }

    /// The message leaves the state it was in, whatever comes next. Returns where its content is, if it waited.
    fn leave_state(&mut self, seq: u64, was: Was, key: Option<u64>) -> Result<Option<Pointer>, ShelfError> {
        // Whatever it was, it is not ready: the frame that said so may be damaged.
        self.departed.insert(seq);
        let pointer = match was {
            Was::Fresh | Was::Letter => None,
            Was::Waiting { due } => {
                let table = Table { shelf: &self.shelf, space: Space::Delay };
                self.delay.remove(&(due, seq), &table)?
            }
            Was::Blocked => {
                self.blocked_at(seq, key)?.inspect(|_| self.blocked = self.blocked.saturating_sub(1))
            }
        };
        match pointer {
            Some(pointer) => self.live.sub(pointer),
            None if self.damaged && was != Was::Fresh => self.forget_strays(seq, key)?,
            None => {}
        }
        Ok(pointer)
    }

    fn blocked_at(&self, seq: u64, key: Option<u64>) -> Result<Option<Pointer>, ShelfError> {
        let Some(hash) = key else { return Ok(None) };
        match self.lines.get(&(hash, seq), &self.table(Space::Lines))? {
            Some(LineSlot::Blocked(pointer)) => Ok(Some(pointer)),
            Some(LineSlot::Delayed) | None => Ok(None),
        }
    }

    /// The frame that moved a message on is damaged, so it still waits where it was before: it must not wait twice.
    fn forget_strays(&mut self, seq: u64, key: Option<u64>) -> Result<(), ShelfError> {
        let table = Table { shelf: &self.shelf, space: Space::Delay };
        for (entry, pointer) in self.delay.dump(&table)?.into_iter().filter(|(entry, _)| entry.1 == seq) {
            self.delay.remove(&entry, &table)?;
            self.live.sub(pointer);
        }
        if let (Some(hash), Some(pointer)) = (key, self.blocked_at(seq, key)?) {
            self.lines.remove(&(hash, seq));
            self.live.sub(pointer);
            self.blocked = self.blocked.saturating_sub(1);
        }
        Ok(())
    }

    fn leave_line(&mut self, seq: u64, key: Option<u64>, folded: &mut impl FnMut(Folded)) {
        if let Some(hash) = key {
            self.lines.remove(&(hash, seq));
            folded(Folded::LineMoved(hash));
        }
    }

    /// The cleaner carried a waiting message forward. It is written only while the message waits (`Store::still_waits`),
    /// so when everything is built anew and the frame it came from is gone, this one stands for it.
    fn moved(&mut self, seq: u64, flags: u8, stored: &Stored, pointer: Pointer) -> Result<(), ShelfError> {
        if flags & FLAG_BLOCKED != 0 {
            let Some(hash) = stored.key else { return Ok(()) };
            let key = (hash, seq);
            match self.lines.get(&key, &self.table(Space::Lines))? {
                Some(LineSlot::Blocked(old)) => self.live.sub(old),
                Some(LineSlot::Delayed) | None => self.blocked += 1,
            }
            self.lines.set(key, LineSlot::Blocked(pointer));
        } else {
            let key = (stored.due.unwrap_or(0), seq);
            match self.delay.get(&key, &self.table(Space::Delay))? {
                Some(old) => {
                    self.delay.repoint(key, pointer);
                    self.live.sub(old);
                }
                None => self.delay.put(key, pointer),
            }
            if let Some(hash) = stored.key {
                self.lines.set((hash, seq), LineSlot::Delayed);
            }
        }
        self.live.add(pointer);
        Ok(())
    }

    /// The hash of a message's key, where keys are ordered.
    pub fn hash_of(&self, message: &Message) -> Option<u64> {
        match self.options.ordering {
            Ordering::None => None,
            Ordering::Key => message.key().map(|key| key_hash(key, self.hash_seed)),
        }
    }

    fn replaying(&mut self, seq: u64, stored: &Stored) -> Result<(), ShelfError> {
        self.set_letter(seq, LetterState::Replaying)?;
        if let Some(slot) = self.letter(seq)? {
            let (replays, jobs) = (stored.meta.replays, stored.jobs.clone());
            self.letters.set(seq, LetterSlot { replays, jobs, ..slot });
        }
        Ok(())
    }

    fn set_letter(&mut self, seq: u64, state: LetterState) -> Result<(), ShelfError> {
        let Some(mut slot) = self.letter(seq)? else { return Ok(()) };
        self.count_letter(slot.state, false);
        self.count_letter(state, true);
        if let Some(hash) = slot.key {
            match (slot.state, state) {
                (LetterState::Open, LetterState::Open) => {}
                (LetterState::Open, _) => self.doors.remove(&(hash, seq)),
                (_, LetterState::Open) => self.doors.set((hash, seq), ()),
                _ => {}
            }
        }
        slot.state = state;
        self.letters.set(seq, slot);
        Ok(())
    }

    fn count_letter(&mut self, state: LetterState, add: bool) {
        let count = match state {
            LetterState::Open => &mut self.open,
            LetterState::Discarded => &mut self.discarded,
            LetterState::Replaying | LetterState::Succeeded => return,
        };
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
    }

    fn letter_moved(&mut self, moved: &LetterMoved) -> Result<(), ShelfError> {
        if let Some(mut slot) = self.letter(moved.seq)?
            && slot.pointer.at == moved.from
        {
            self.live.sub(slot.pointer);
            slot.pointer = Pointer { at: moved.to, len: moved.len };
            self.live.add(slot.pointer);
            self.letters.set(moved.seq, slot);
        }
        Ok(())
    }

    fn purged(&mut self, seq: u64) -> Result<(), ShelfError> {
        if let Some(slot) = self.letter(seq)? {
            self.live.sub(slot.pointer);
            self.count_letter(slot.state, false);
            if let Some(hash) = slot.key {
                self.doors.remove(&(hash, seq));
            }
            self.letters.remove(&seq);
        }
        Ok(())
    }

    /// Follows one frame of the letter log, when everything is built anew. It comes before the journal, whose frames
    /// say what became of these letters later.
    pub fn fold_letter(&mut self, frame: &Frame, at: u64) -> Result<(), ShelfError> {
        let pointer = Pointer { at, len: frame_len(frame.body.len()) as u32 };
        let seq = frame.tag;
        match frame.kind {
            kind::DEAD => {
                let Some(stored) = Stored::read(frame.body.clone()) else { return Ok(()) };
                self.purged(seq)?;
                let slot = LetterSlot {
                    pointer,
                    state: stored.state.unwrap_or(LetterState::Open),
                    reason: stored.reason.unwrap_or(Reason::Corrupt),
                    dead_at: Time::from_millis(stored.dead_at),
                    replays: stored.meta.replays,
                    jobs: stored.jobs,
                    key: stored.key,
                };
                self.put_letter(seq, slot);
                Ok(())
            }
            kind::LETTER_SLOT => match SlotCopy::read(frame.body.clone()) {
                Some(copy) => {
                    self.set_letter(seq, copy.state)?;
                    if let Some(slot) = self.letter(seq)? {
                        self.letters.set(seq, LetterSlot { replays: copy.replays, jobs: copy.jobs, ..slot });
                    }
                    Ok(())
                }
                None => Ok(()),
            },
            kind::PURGED => self.purged(seq),
            _ => Ok(()),
        }
    }
}

/// A key's hash, seeded per store so that nobody can choose keys that collide.
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}
