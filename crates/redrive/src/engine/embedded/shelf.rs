//! The tables of the index: a cache beside the journal that can be thrown away at any time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use redrive_core::{Reason, Time};

use crate::engine::letter::LetterState;
use crate::engine::overlay::Far;

/// The tables. Closed: the index holds nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// What the tables reflect: the journal position and the small state that goes with it.
    Meta,
    /// Waiting messages by due time.
    Delay,
    /// Waiting messages by key.
    Lines,
    /// Open letters by key, where a dead message blocks its key.
    Doors,
    /// Letters by number.
    Letters,
    /// Accepted ids.
    Ids,
    /// Where a waiting message is, by number; kept only where ids are, so that a message can be found by its id.
    Places,
}

impl Space {
    pub const ALL: [Self; 7] =
        [Self::Meta, Self::Delay, Self::Lines, Self::Doors, Self::Letters, Self::Ids, Self::Places];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Delay => "delay",
            Self::Lines => "lines",
            Self::Doors => "doors",
            Self::Letters => "letters",
            Self::Ids => "ids",
            Self::Places => "places",
        }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("the index: {0}")]
pub struct ShelfError(pub String);

/// A put (`Some`) or a removal (`None`).
pub type Write = (Space, Vec<u8>, Option<Vec<u8>>);
pub type Pair = (Vec<u8>, Vec<u8>);

/// A set of ordered tables with atomic batches. Nobody asks it to be durable, except before a segment is unlinked.
pub trait Shelf: Send + Sync + 'static {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, ShelfError>;
    /// Pairs at or after `from`, in order.
    fn range(&self, space: Space, from: &[u8], limit: usize) -> Result<Vec<Pair>, ShelfError>;
    /// All or nothing.
    fn apply(&self, writes: Vec<Write>) -> Result<(), ShelfError>;
    /// Makes everything applied so far survive a power cut.
    fn persist(&self) -> Result<(), ShelfError>;
}

impl<S: Shelf + ?Sized> Shelf for Arc<S> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, ShelfError> {
        (**self).get(space, key)
    }
    fn range(&self, space: Space, from: &[u8], limit: usize) -> Result<Vec<Pair>, ShelfError> {
        (**self).range(space, from, limit)
    }
    fn apply(&self, writes: Vec<Write>) -> Result<(), ShelfError> {
        (**self).apply(writes)
    }
    fn persist(&self) -> Result<(), ShelfError> {
        (**self).persist()
    }
}

/// A shelf in memory, for the simulation: it can forget what was applied after the last persist.
#[derive(Clone, Debug, Default)]
pub struct MemoryShelf {
    inner: Arc<Mutex<Shelves>>,
}

#[derive(Debug, Default)]
struct Shelves {
    tables: BTreeMap<(Space, Vec<u8>), Vec<u8>>,
    /// Batches applied since the last persist; a power cut keeps a prefix of them.
    unsynced: Vec<Vec<Write>>,
    persisted: BTreeMap<(Space, Vec<u8>), Vec<u8>>,
}

impl Shelves {
    fn write(tables: &mut BTreeMap<(Space, Vec<u8>), Vec<u8>>, writes: &[Write]) {
        for (space, key, value) in writes {
            match value {
                Some(value) => drop(tables.insert((*space, key.clone()), value.clone())),
                None => drop(tables.remove(&(*space, key.clone()))),
            }
        }
    }
}

impl MemoryShelf {
    /// The shelf after a power cut that kept the first `kept` of the batches that were not persisted.
    pub fn power_cut(&self, kept: impl FnOnce(usize) -> usize) {
        let mut inner = self.lock();
        let batches = std::mem::take(&mut inner.unsynced);
        let kept = kept(batches.len()).min(batches.len());
        let mut tables = inner.persisted.clone();
        for writes in &batches[..kept] {
            Shelves::write(&mut tables, writes);
        }
        inner.persisted = tables.clone();
        inner.tables = tables;
    }

    pub fn clear(&self) {
        *self.lock() = Shelves::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shelves> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf for MemoryShelf {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, ShelfError> {
        Ok(self.lock().tables.get(&(space, key.to_vec())).cloned())
    }

    fn range(&self, space: Space, from: &[u8], limit: usize) -> Result<Vec<Pair>, ShelfError> {
        let inner = self.lock();
        let pairs = inner.tables.range((space, from.to_vec())..).take_while(|((s, _), _)| *s == space);
        Ok(pairs.take(limit).map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn apply(&self, writes: Vec<Write>) -> Result<(), ShelfError> {
        let mut inner = self.lock();
        Shelves::write(&mut inner.tables, &writes);
        inner.unsynced.push(writes);
        Ok(())
    }

    fn persist(&self) -> Result<(), ShelfError> {
        let mut inner = self.lock();
        inner.persisted = inner.tables.clone();
        inner.unsynced.clear();
        Ok(())
    }
}

/// Keys and values of the tables as bytes; keys keep their order.
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

/// Where a frame lies: its position and its length in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub at: u64,
    pub len: u32,
    /// Whether the message there waits because it was deferred: so that it is counted as held without being read.
    pub deferred: bool,
}

/// A frame is far shorter than this, so the bit is free for [`Pointer::deferred`].
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

/// A message that stands in line for its key: blocked with its content, or waiting for its due time.
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

/// Where a message waits, as its number alone does not say: the rest of its key in the delay table or in the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPlace {
    /// Until its due time, in milliseconds.
    Due(u64),
    /// Behind an earlier message of its key, whose hash this is.
    Line(u64),
}

impl Cell for WaitPlace {
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
    /// When it was accepted; the window of deduplication counts from here.
    pub at: u64,
    /// The deadline of a message that has not left the ready state, whose frame no table points at. Later it may be
    /// missing: then the frame has it.
    pub deadline: Option<u64>,
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

/// What the index knows of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterSlot {
    pub pointer: Pointer,
    pub state: LetterState,
    pub reason: Reason,
    pub dead_at: Time,
    pub replays: u32,
    /// The replay jobs it went through, the latest last.
    pub jobs: Vec<u64>,
    /// The hash of its key, where keys are ordered.
    pub key: Option<u64>,
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
            jobs: raw.get(39..)?.chunks_exact(8).map(u64::read).collect::<Option<_>>()?,
        })
    }
}

/// One typed table of a shelf.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a, S> {
    pub shelf: &'a S,
    pub space: Space,
}

impl<K: Cell, V: Cell, S: Shelf> Far<K, V> for Table<'_, S> {
    type Error = ShelfError;

    fn get(&self, key: &K) -> Result<Option<V>, ShelfError> {
        let Some(raw) = self.shelf.get(self.space, &key.bytes())? else { return Ok(None) };
        Ok(Some(V::read(&raw).ok_or_else(|| damaged(self.space))?))
    }

    fn range(&self, from: &K, limit: usize) -> Result<Vec<(K, V)>, ShelfError> {
        let pairs = self.shelf.range(self.space, &from.bytes(), limit)?;
        let read = |(key, value): Pair| Some((K::read(&key)?, V::read(&value)?));
        pairs.into_iter().map(|pair| read(pair).ok_or_else(|| damaged(self.space))).collect()
    }
}

fn damaged(space: Space) -> ShelfError {
    ShelfError(format!("an entry of table {} cannot be read", space.name()))
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
        for place in [WaitPlace::Due(7), WaitPlace::Line(u64::MAX)] {
            assert_eq!(WaitPlace::read(&place.bytes()), Some(place));
        }
        assert_eq!(IdSlot::read(&[0; 17]), None);
        assert_eq!(WaitPlace::read(&[]), None);
        assert_eq!(WaitPlace::read(&[3; 9]), None);
    }

    #[test]
    fn a_power_cut_keeps_whole_batches_in_order() {
        let shelf = MemoryShelf::default();
        let put = |n: u8| {
            shelf.apply(vec![(Space::Meta, vec![n], Some(vec![n])), (Space::Ids, vec![n], Some(vec![n]))])
        };
        put(1).unwrap();
        shelf.persist().unwrap();
        put(2).unwrap();
        put(3).unwrap();
        shelf.power_cut(|batches| batches - 1);
        let left: Vec<_> =
            shelf.range(Space::Ids, &[], 10).unwrap().into_iter().map(|(key, _)| key[0]).collect();
        assert_eq!(left, [1, 2]);
        assert_eq!(shelf.get(Space::Meta, &[3]).unwrap(), None);
    }
}
