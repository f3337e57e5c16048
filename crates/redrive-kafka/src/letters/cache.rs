//! State shared by the engine and the mirror thread: the index, the file with the letters' bytes, and how far the
//! topics were read.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::content::Content;
use super::edit_record::{EditRecord, EditedLetter};
use super::entry::{DlqPosition, Extent, LetterEntry, LetterRecord};
use super::file::{LetterFile, LetterReader};
use super::ids::IdHash;
use super::index::{Index, LearnedFrom};
use super::state::{BEGIN, StateRecord};
use crate::record::CopyRecord;
use redrive::internal::engine::erase::is_tombstone;
use redrive::internal::engine::{EngineError, Grouping, LetterState};
use redrive_core::{Message, Reason, Time};

/// Stands for a letter whose bytes could not be written; it is shown as damaged.
const NO_BYTES: u64 = u64::MAX;

/// Called when changes by other processes altered letters.
type Wake = Arc<dyn Fn() + Send + Sync>;

#[derive(Debug)]
pub struct LetterCache {
    pipeline: String,
    inner: Mutex<CacheState>,
    changed: Condvar,
    reader: LetterReader,
}

pub struct CacheState {
    pub index: Index,
    file: LetterFile,
    /// Positions in the file of replaced versions, by letter. They are overwritten when the letter is erased.
    replaced: HashMap<u64, Vec<u64>>,
    grouping: Grouping,
    /// Records read so far, from both topics.
    pub read: u64,
    /// Whether both topics were read to their ends once.
    pub loaded: bool,
    /// The next offset to read in each partition of the state topic.
    pub states_next: HashMap<i32, i64>,
    /// The next offset to read in each partition of `T.DLQ`.
    pub letters_next: HashMap<i32, i64>,
    /// The latest reason why the topics cannot be read.
    pub trouble: Option<String>,
    /// The same, if it is more than an unreachable broker, and when it was reported.
    pub refusal: Option<(String, Instant)>,
    pub closing: bool,
    pub wake: Option<Wake>,
}

impl fmt::Debug for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheState")
            .field("counts", &self.index.counts)
            .field("read", &self.read)
            .field("bytes", &self.file.bytes())
            .finish_non_exhaustive()
    }
}

impl LetterCache {
    pub fn create(state_dir: &Path, pipeline: &str, grouping: Grouping) -> io::Result<Self> {
        let file = LetterFile::create(state_dir, pipeline)?;
        let reader = file.reader();
        let inner = CacheState {
            index: Index::default(),
            file,
            replaced: HashMap::new(),
            grouping,
            read: 0,
            loaded: false,
            states_next: HashMap::new(),
            letters_next: HashMap::new(),
            trouble: None,
            refusal: None,
            closing: false,
            wake: None,
        };
        let pipeline = pipeline.to_owned();
        Ok(Self { pipeline, inner: Mutex::new(inner), changed: Condvar::new(), reader })
    }

    pub fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the shared state and wakes whatever waits for a change.
    pub fn change<T>(&self, change: impl FnOnce(&mut CacheState) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    /// Waits until `done` returns true; `false` if the `deadline` passed first.
    pub fn wait(&self, deadline: Instant, mut done: impl FnMut(&mut CacheState) -> bool) -> bool {
        let mut inner = self.lock();
        loop {
            if done(&mut inner) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return false;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns an error until everything is loaded, because queries need all letters.
    pub fn check_loaded(&self) -> Result<(), EngineError> {
        let inner = self.lock();
        if inner.loaded {
            return Ok(());
        }
        let (pipeline, read) = (&self.pipeline, inner.read);
        let still = format!("the letters of `{pipeline}` are still being read, {read} records so far");
        Err(EngineError::Unavailable(inner.trouble.clone().unwrap_or(still)))
    }

    /// Reads a letter's bytes; `None` if they are damaged.
    pub fn content(&self, at: u64) -> io::Result<Option<Content>> {
        if at == NO_BYTES { Ok(None) } else { self.reader.read(at) }
    }

    /// Reads the last record about the edits of a letter, whatever the generation; `None` if there is none, or it is
    /// damaged.
    pub fn edit_record(&self, number: u64) -> io::Result<Option<EditRecord>> {
        let at = self.lock().index.edited(number).map(|edited| edited.at);
        match at.filter(|at| *at != NO_BYTES) {
            Some(at) => Ok(self.reader.read_bytes(at)?.and_then(|bytes| EditRecord::read(&bytes))),
            None => Ok(None),
        }
    }

    /// Returns the message that an edit gave to this generation of a letter.
    pub fn edited_message(&self, number: u64, entry: &LetterEntry) -> io::Result<Option<Message>> {
        let is_edited = |edited: &EditedLetter| edited.generation == entry.generation();
        if !self.lock().index.edited(number).is_some_and(is_edited) {
            return Ok(None);
        }
        Ok(self.edit_record(number)?.map(|record| record.message))
    }
}

impl CacheState {
    /// Returns the rules by which letters are grouped.
    pub fn grouping(&self) -> &Grouping {
        &self.grouping
    }

    /// Takes in a record of `T.DLQ`.
    pub fn parked(&mut self, place: DlqPosition, copy: &CopyRecord, learned: LearnedFrom) {
        let number = copy.origin.number();
        let reason = copy.reason.unwrap_or(Reason::Corrupt);
        let ungrouped = || self.grouping.of_ungrouped(reason, &copy.history);
        let group = copy.marks.group.clone().unwrap_or_else(ungrouped);
        let mut parked = LetterRecord {
            generation: copy.meta.replays,
            place,
            at: NO_BYTES,
            reason,
            group: group.group,
            dead_at: copy.dead_at.unwrap_or(Time::ZERO),
            id_hash: IdHash::of(copy.message.id()),
            job: copy.job,
            extent: match copy.marks.cut {
                Some(_) => Extent::Cut,
                None if is_tombstone(&copy.message) => Extent::Tombstone,
                None => Extent::Whole,
            },
            moved: copy.marks.moved,
        };
        if self.index.wants(number, &parked) {
            let content = Content {
                message: copy.message.clone(),
                meta: copy.meta,
                history: copy.history.clone(),
                topic: copy.origin.topic.clone(),
                group,
                options: copy.marks.options.clone(),
            };
            parked.at = self.file.append(&content).unwrap_or_else(|error| {
                tracing::warn!(%error, letter = %copy.origin, "the letter cannot be kept in the local file");
                NO_BYTES
            });
        }
        let before = self.index.get(number).map(LetterEntry::at);
        self.index.parked(number, &parked, learned);
        if let Some(before) = before.filter(|at| self.index.get(number).is_some_and(|now| now.at() != *at)) {
            self.replaced(number, before);
        }
    }

    /// Notes that another version has replaced the one at this position of the file.
    fn replaced(&mut self, number: u64, at: u64) {
        self.replaced.entry(number).or_default().push(at);
        self.wipe_erased(number);
    }

    /// Overwrites all versions of an erased letter but the last one, which is its tombstone.
    fn wipe_erased(&mut self, number: u64) {
        if self.index.get(number).and_then(LetterEntry::state) != Some(LetterState::Erased) {
            return;
        }
        for at in self.replaced.remove(&number).unwrap_or_default() {
            self.wipe(number, at);
        }
    }

    fn wipe(&mut self, number: u64, at: u64) {
        if at != NO_BYTES
            && let Err(error) = self.file.wipe(at)
        {
            tracing::warn!(%error, number, "an erased letter cannot be overwritten in the local file");
        }
    }

    /// Takes in the state of a letter.
    pub fn state_is(&mut self, number: u64, state: &StateRecord) {
        self.index.state_is(number, state);
        self.wipe_erased(number);
    }

    /// Takes in a record about the edits of a letter; one without a value says that there are none.
    pub fn edited(&mut self, number: u64, value: Option<&Bytes>) {
        let before = self.index.edited(number).map(|edited| edited.at);
        let Some(value) = value else {
            self.index.not_edited(number);
            before.inspect(|at| self.wipe(number, *at));
            return;
        };
        before.inspect(|at| self.replaced(number, *at));
        let Some(record) = EditRecord::read(value) else {
            self.index.counts.unreadable += 1;
            return;
        };
        let at = self.file.append_bytes(value).unwrap_or_else(|error| {
            tracing::warn!(%error, number, "the edit of a letter cannot be kept in the local file");
            NO_BYTES
        });
        let edits = record.replaced.into_iter().map(|version| version.edit).collect();
        self.index.set_edited(number, EditedLetter { generation: record.generation, at, edits });
    }

    /// Takes in a record of `T.DLQ.state`; one without a value says that the letter is gone. `is_old` if its letter
    /// would be known by now.
    pub fn stated(&mut self, key: Option<&[u8]>, value: Option<&[u8]>, is_old: bool) {
        if key == Some(BEGIN) {
            return;
        }
        if let Some(number) = key.and_then(EditRecord::number) {
            if is_old && !self.index.has(number) {
                self.index.orphan(number);
            }
            return self.edited(number, value.map(Bytes::copy_from_slice).as_ref());
        }
        match (key.and_then(StateRecord::number), value, value.and_then(StateRecord::from_json)) {
            (Some(number), None, _) => {
                self.index.remove(number);
                self.replaced.remove(&number);
            }
            (Some(number), Some(_), Some(_)) if is_old && !self.index.has(number) => {
                self.index.orphan(number);
            }
            (Some(number), Some(_), Some(state)) => self.state_is(number, &state),
            _ => self.index.counts.unreadable += 1,
        }
    }
}
