//! The tables of the index: a cache beside the journal that can be discarded at any time.

use redrive_core::{Reason, Time};

use crate::engine::letter::LetterState;
use crate::engine::overlay::Far;

/// All tables of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// The journal position that the tables reflect, and other small state.
    Meta,
    /// Waiting messages by due time.
    Delay,
    /// Waiting messages by key.
    Lines,
    /// Open letters by key, for pipelines where a dead message blocks its key.
    Doors,
    /// Letters by number.
    Letters,
    /// Accepted ids.
    Ids,
    /// Where a waiting message is, by number. Kept only if ids are, so that a message can be found by its id.
    Places,
    /// Letters by the hash of their message's id, then by number.
    LetterIds,
    /// Open letters by group, then by number.
    GroupLetters,
    /// Open letters by group, then by the time of their death.
    GroupTimes,
}

impl Space {
    pub const ALL: [Self; 10] = [
        Self::Meta,
        Self::Delay,
        Self::Lines,
        Self::Doors,
        Self::Letters,
        Self::Ids,
        Self::Places,
        Self::LetterIds,
        Self::GroupLetters,
        Self::GroupTimes,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Delay => "delay",
            Self::Lines => "lines",
            Self::Doors => "doors",
            Self::Letters => "letters",
            Self::Ids => "ids",
            Self::Places => "places",
            Self::LetterIds => "letter_ids",
            Self::GroupLetters => "group_letters",
            Self::GroupTimes => "group_times",
        }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum IndexError {
    /// Stored data cannot be read: the tables have to be rebuilt.
    #[error("the index: {0}")]
    Damaged(String),
    /// Writing failed. The stored data is still valid.
    #[error("the index: {0}")]
    Failed(String),
    /// The tables are being rebuilt, and the caller did not want to wait.
    #[error("the index is damaged and is being rebuilt; deliveries continue")]
    Rebuilding,
}

/// A put (`Some`) or a removal (`None`).
pub type Write = (Space, Vec<u8>, Option<Vec<u8>>);
pub type Pair = (Vec<u8>, Vec<u8>);

/// A set of ordered tables with atomic writes. Durability is needed only before a segment is deleted.
pub trait IndexTables: Send + Sync + 'static {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError>;
    /// Pairs in `[from, to]` (open-ended if `to` is `None`), in order.
    fn range(
        &self,
        space: Space,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, IndexError>;
    /// Like `get`, but fails with [`IndexError::Rebuilding`] instead of waiting.
    fn ask(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.get(space, key)
    }
    /// Like `range`, but fails with [`IndexError::Rebuilding`] instead of waiting.
    fn ask_range(
        &self,
        space: Space,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, IndexError> {
        self.range(space, from, to, limit)
    }
    /// Applies all writes or none.
    fn apply(&self, writes: &mut Vec<Write>) -> Result<(), IndexError>;
    /// Makes everything applied so far survive a power failure.
    fn persist(&self) -> Result<(), IndexError>;
    /// Merges for a while, if needed; returns whether there may be more to do. From any thread, concurrently with
    /// reads and writes.
    fn merge(&self) -> Result<bool, IndexError> {
        Ok(false)
    }
    /// Reads everything until the end, or until `go_on`, which gets the bytes of each step, returns `false`.
    fn verify(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), IndexError> {
        let _ = go_on;
        Ok(())
    }
    /// The approximate size of a table in bytes, without its filters.
    fn bytes_of(&self, space: Space) -> u64 {
        let _ = space;
        0
    }
    /// Allows ids accepted before this time, in milliseconds, to be forgotten.
    fn forget_ids_before(&self, at: u64) {
        let _ = at;
    }
}

/// Encodes keys and values of the tables; encoded keys sort like the keys.
pub trait Cell: Clone {
    fn write(&self, out: &mut Vec<u8>);
    fn read(raw: &[u8]) -> Option<Self>;

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

impl Cell for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn read(raw: &[u8]) -> Option<Self> {
        Some(Self::from_be_bytes(raw.try_into().ok()?))
    }
}

impl Cell for (u64, u64) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }
    fn read(raw: &[u8]) -> Option<Self> {
        Some((u64::read(raw.get(..8)?)?, u64::read(raw.get(8..)?)?))
    }
}

impl Cell for (u64, u64, u64) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
        self.2.write(out);
    }
    fn read(raw: &[u8]) -> Option<Self> {
        Some((u64::read(raw.get(..8)?)?, u64::read(raw.get(8..16)?)?, u64::read(raw.get(16..)?)?))
    }
}

impl Cell for () {
    fn write(&self, _: &mut Vec<u8>) {}
    fn read(_: &[u8]) -> Option<Self> {
        Some(())
    }
}

impl Cell for Vec<u8> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn read(raw: &[u8]) -> Option<Self> {
        Some(raw.to_vec())
    }
}

/// The position and length of a frame in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub at: u64,
    pub len: u32,
    /// Whether the message waits because it was deferred, so that it can be counted as held without reading it.
    pub deferred: bool,
}

/// Frames are much shorter than this, so the bit is free for [`Pointer::deferred`].
const DEFERRED_BIT: u32 = 1 << 31;

impl Pointer {
    pub const fn new(at: u64, len: u32) -> Self {
        Self { at, len, deferred: false }
    }
}

impl Cell for Pointer {
    fn write(&self, out: &mut Vec<u8>) {
        self.at.write(out);
        let mark = if self.deferred { DEFERRED_BIT } else { 0 };
        out.extend_from_slice(&(self.len | mark).to_be_bytes());
    }
    fn read(raw: &[u8]) -> Option<Self> {
        let len = u32::from_be_bytes(raw.get(8..)?.try_into().ok()?);
        let (at, deferred) = (u64::read(raw.get(..8)?)?, len & DEFERRED_BIT != 0);
        Some(Self { at, len: len & !DEFERRED_BIT, deferred })
    }
}

/// A message in the line of its key: blocked, with its content, or waiting for its due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSlot {
    Delayed,
    Blocked(Pointer),
}

impl Cell for LineSlot {
    fn write(&self, out: &mut Vec<u8>) {
        if let Self::Blocked(pointer) = self {
            pointer.write(out);
        }
    }
    fn read(raw: &[u8]) -> Option<Self> {
        if raw.is_empty() { Some(Self::Delayed) } else { Pointer::read(raw).map(Self::Blocked) }
    }
}

/// Where a message with a given number waits: the rest of its key in the delay table or in the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLocation {
    /// Waits until this time, in milliseconds.
    Due(u64),
    /// Waits behind an earlier message of the key with this hash.
    Line(u64),
}

impl Cell for WaitLocation {
    fn write(&self, out: &mut Vec<u8>) {
        let (code, number) = match self {
            Self::Due(due) => (1, due),
            Self::Line(hash) => (2, hash),
        };
        out.push(code);
        number.write(out);
    }
    fn read(raw: &[u8]) -> Option<Self> {
        let number = u64::read(raw.get(1..)?)?;
        match raw[0] {
            1 => Some(Self::Due(number)),
            2 => Some(Self::Line(number)),
            _ => None,
        }
    }
}

/// The latest acceptance of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdSlot {
    pub seq: u64,
    /// When it was accepted; the start of the deduplication window.
    pub at: u64,
    /// The deadline of a ready message, to whose frame no table points. It may be missing once the message has left
    /// that state, because then it can be read from the frame.
    pub deadline: Option<u64>,
}

impl IdSlot {
    /// The time of acceptance in an encoded value; 0 if it cannot be read.
    pub fn at_of(raw: &[u8]) -> u64 {
        raw.get(8..16).and_then(u64::read).unwrap_or(0)
    }
}

impl Cell for IdSlot {
    fn write(&self, out: &mut Vec<u8>) {
        self.seq.write(out);
        self.at.write(out);
        if let Some(deadline) = self.deadline {
            deadline.write(out);
        }
    }
    fn read(raw: &[u8]) -> Option<Self> {
        let deadline = match raw.get(16..)? {
            [] => None,
            deadline => Some(u64::read(deadline)?),
        };
        Some(Self { seq: u64::read(&raw[..8])?, at: u64::read(&raw[8..16])?, deadline })
    }
}

/// The index entry of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterSlot {
    pub pointer: Pointer,
    pub state: LetterState,
    pub reason: Reason,
    pub dead_at: Time,
    pub replays: u32,
    /// Its replay jobs, the latest last.
    pub jobs: Vec<u64>,
    /// The hash of its key, if keys are ordered.
    pub key: Option<u64>,
    /// The hash of its message's id, its key in [`Space::LetterIds`].
    pub id_hash: u64,
    /// The group it is counted in while it is open, or was last counted in.
    pub group: u64,
    /// How many earlier versions its message has.
    pub edits: u8,
}

impl Cell for LetterSlot {
    fn write(&self, out: &mut Vec<u8>) {
        self.pointer.write(out);
        out.push(self.state.code());
        out.push(self.reason.code());
        self.dead_at.as_millis().write(out);
        u64::from(self.replays).write(out);
        out.push(u8::from(self.key.is_some()));
        self.key.unwrap_or(0).write(out);
        self.id_hash.write(out);
        self.group.write(out);
        out.push(self.edits);
        for job in &self.jobs {
            job.write(out);
        }
    }
    fn read(raw: &[u8]) -> Option<Self> {
        let number = |at: usize| u64::read(raw.get(at..at + 8)?);
        Some(Self {
            pointer: Pointer::read(raw.get(..12)?)?,
            state: LetterState::from_code(*raw.get(12)?)?,
            reason: Reason::from_code(*raw.get(13)?)?,
            dead_at: Time::from_millis(number(14)?),
            replays: number(22)? as u32,
            key: Some(number(31)?).filter(|_| raw[30] != 0),
            id_hash: number(39)?,
            group: number(47)?,
            edits: *raw.get(55)?,
            jobs: raw.get(56..)?.chunks_exact(8).map(u64::read).collect::<Option<_>>()?,
        })
    }
}

/// Read access to the tables, which waits for a rebuild or not.
#[derive(Debug)]
pub struct Reading<'a, S> {
    pub tables: &'a S,
    pub on_rebuild: OnRebuild,
}

impl<S> Clone for Reading<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Reading<'_, S> {}

impl<'a, S> Reading<'a, S> {
    /// Waits while the tables are being rebuilt.
    pub fn patiently(tables: &'a S) -> Self {
        Self { tables, on_rebuild: OnRebuild::Wait }
    }

    pub fn table(self, space: Space) -> Table<'a, S> {
        Table { tables: self.tables, space, on_rebuild: self.on_rebuild }
    }
}

/// One typed table.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a, S> {
    pub tables: &'a S,
    pub space: Space,
    pub on_rebuild: OnRebuild,
}

/// What a reader does if the tables cannot answer because they are being rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRebuild {
    /// Waits.
    Wait,
    /// Gets an error.
    Ask,
}

impl<K: Cell, V: Cell, S: IndexTables> Far<K, V> for Table<'_, S> {
    type Error = IndexError;

    fn get(&self, key: &K) -> Result<Option<V>, IndexError> {
        let raw = match self.on_rebuild {
            OnRebuild::Wait => self.tables.get(self.space, &key.bytes())?,
            OnRebuild::Ask => self.tables.ask(self.space, &key.bytes())?,
        };
        let Some(raw) = raw else { return Ok(None) };
        Ok(Some(V::read(&raw).ok_or_else(|| damaged(self.space))?))
    }

    fn range(&self, from: &K, to: Option<&K>, limit: usize) -> Result<Vec<(K, V)>, IndexError> {
        let to = to.map(Cell::bytes);
        let (from, to) = (from.bytes(), to.as_deref());
        let pairs = match self.on_rebuild {
            OnRebuild::Wait => self.tables.range(self.space, &from, to, limit)?,
            OnRebuild::Ask => self.tables.ask_range(self.space, &from, to, limit)?,
        };
        let read = |(key, value): Pair| Some((K::read(&key)?, V::read(&value)?));
        pairs.into_iter().map(|pair| read(pair).ok_or_else(|| damaged(self.space))).collect()
    }
}

fn damaged(space: Space) -> IndexError {
    IndexError::Damaged(format!("an entry of table {} cannot be read", space.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_slot_comes_back_with_and_without_a_key() {
        let slot = LetterSlot {
            pointer: Pointer::new(7, 8),
            state: LetterState::Replaying,
            reason: Reason::Gone,
            dead_at: Time::from_millis(9),
            replays: 2,
            jobs: vec![3, 4],
            key: Some(u64::MAX),
            id_hash: 5,
            group: 6,
            edits: 7,
        };
        for slot in [slot.clone(), LetterSlot { key: None, jobs: Vec::new(), ..slot }] {
            assert_eq!(LetterSlot::read(&slot.bytes()), Some(slot));
        }
        assert_eq!(LetterSlot::read(&[0; 12]), None);
    }

    #[test]
    fn slots_of_ids_and_places_come_back() {
        for deadline in [None, Some(3)] {
            let slot = IdSlot { seq: 1, at: 2, deadline };
            assert_eq!(IdSlot::read(&slot.bytes()), Some(slot));
        }
        for place in [WaitLocation::Due(7), WaitLocation::Line(u64::MAX)] {
            assert_eq!(WaitLocation::read(&place.bytes()), Some(place));
        }
        assert_eq!(IdSlot::read(&[0; 17]), None);
        assert_eq!(WaitLocation::read(&[]), None);
        assert_eq!(WaitLocation::read(&[3; 9]), None);
    }
}
