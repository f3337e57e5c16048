//! The letters of one pipeline as its engine uses them: lookups, changes, and notes about what the engine itself wrote.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redrive::internal::engine::{
    EditAnswer, EngineError, EraseAnswer, EraseOrder, ForeignLetter, GroupFigures, Grouping, ImportAnswer,
    Letter, LetterChange, LetterEdit, LetterScan, LetterStanding, LetterState, OnBehalf, ReplayAnswer,
    ReplayJob,
};
use redrive_core::{GroupId, Message, Time};

use super::cache::LetterCache;
use super::entry::DlqPosition;
use super::index::{LearnedFrom, LetterTotals};
use super::mirror::Mirror;
use super::state::StateRecord;
use super::transaction::Transactions;
use super::trim::LetterTrimmer;
use super::writer::LetterWriter;
use super::{change, edit, erase, import};
use crate::clock::wall_time;
use crate::record::{CopyRecord, RecordReader};
use crate::topics::Topics;
use crate::{Cluster, KafkaPipeline};

/// A client that cannot read reports it several times a second; a problem not reported for this long is over.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);

/// The letters of one pipeline.
pub struct KafkaLetters {
    cache: Arc<LetterCache>,
    writer: LetterWriter,
    pipeline: String,
    topics: Arc<Topics>,
    mirror: Option<JoinHandle<()>>,
}

impl fmt::Debug for KafkaLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLetters")
            .field("pipeline", &self.pipeline)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl KafkaLetters {
    /// Starts reading all letters and their states on a thread. How long that takes depends on their number; progress
    /// is logged.
    pub fn open(cluster: &Cluster, pipeline: &KafkaPipeline, topics: &Topics) -> Result<Self, EngineError> {
        Self::open_grouped(cluster, pipeline, topics, Grouping::default())
    }

    /// Like [`Self::open`], with the grouping for letters that were written without a group.
    pub fn open_grouped(
        cluster: &Cluster,
        pipeline: &KafkaPipeline,
        topics: &Topics,
        grouping: Grouping,
    ) -> Result<Self, EngineError> {
        let name = &pipeline.name;
        let dir = cluster.state_dir.join("kafka");
        let cache = LetterCache::create(&dir, name, grouping).map_err(|error| EngineError::Directory {
            problem: format!(
                "the letters of `{name}` cannot be kept in {}: {error}",
                cluster.state_dir.display()
            ),
            fix: "make the directory writable, or set `dir` to one that is",
        })?;
        let cache = Arc::new(cache);
        let unavailable = |why: &dyn fmt::Display| {
            EngineError::Unavailable(format!("the letters of `{name}` cannot be read: {why}"))
        };
        let names = (name.as_str(), topics.dlq.as_str(), topics.dlq_state.as_str());
        let mirror = Mirror::new(cluster.reader(), RecordReader::new(pipeline), Arc::clone(&cache), names)
            .map_err(|error| unavailable(&error))?;
        let thread = std::thread::Builder::new().name("redrive-letters".to_owned());
        let mirror = thread.spawn(move || mirror.run()).map_err(|error| unavailable(&error))?;
        let topics = Arc::new(topics.clone());
        let transactions = Transactions::new(cluster.replayer(name));
        let writer = LetterWriter::new(&cache, transactions, name, &topics);
        Ok(Self { cache, writer, pipeline: name.clone(), topics, mirror: Some(mirror) })
    }

    /// Returns the groups that have open letters.
    pub fn groups(&self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        self.cache.groups(now)
    }

    /// Reserves groups with a decision: their letters are counted in them, however many groups there are.
    pub fn reserve_groups(&self, decided: &[GroupId]) {
        self.cache.lock().index.reserve_groups(decided);
    }

    /// Returns the open letters of a group after `after`, in order.
    pub fn letters_in_group(
        &self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        self.cache.letters_in_group(group, after, limit)
    }

    /// Counts the open letters of a group that died after `since`, up to `max`.
    pub fn open_since(&self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        self.cache.open_since(group, since, max)
    }

    /// Returns letters ordered by number, after `after`, in `state` if one is given.
    pub fn letters(
        &self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        self.cache.letters(state, after, limit)
    }

    /// Like [`Self::letters`], but looks at no more than `look_max` letters.
    pub fn scan_letters(
        &self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.cache.scan_letters(state, after, limit, look_max)
    }

    pub fn letter(&self, id: u64) -> Result<Option<Letter>, EngineError> {
        self.cache.letter(id)
    }

    /// Returns the letters that may belong to the message with this id; `None` if there are too many to check one by
    /// one.
    pub fn letters_of(&self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        self.cache.letters_of(id)
    }

    /// Returns the standing of letters in a replay job; `None` for a letter that does not exist.
    pub fn letter_standings(
        &self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.cache.letter_standings(job, ids)
    }

    /// Replays letters, each at most once per job. Durable on return.
    pub fn replay<'a>(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        asked: impl Into<OnBehalf<'a>>,
    ) -> Result<Vec<ReplayAnswer>, EngineError> {
        change::replay(&mut self.writer, job, ids, asked.into())
    }

    /// Discards open letters, or undoes a discard. Durable on return; `false` if the state did not allow it.
    pub fn change_letters<'a>(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        asked: impl Into<OnBehalf<'a>>,
    ) -> Result<Vec<bool>, EngineError> {
        change::change_letters(&mut self.writer, *change, ids, asked.into())
    }

    /// Replaces the messages of open letters and keeps the previous ones. Durable on return.
    pub fn edit_letters<'a>(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        asked: impl Into<OnBehalf<'a>>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        edit::edit_letters(&mut self.writer, edit, letters, asked.into())
    }

    /// Restores the previous message of letters whose last edit is this one. Durable on return.
    pub fn undo_edit<'a>(
        &mut self,
        edit: &str,
        ids: &[u64],
        asked: impl Into<OnBehalf<'a>>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        edit::undo_edit(&mut self.writer, edit, ids, asked.into())
    }

    /// Erases the contents of letters, except those in a replay. Durable on return.
    pub fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        erase::erase_letters(&mut self.writer, order, ids, now)
    }

    /// Returns the message that a letter had before one of its edits.
    pub fn message_before(&self, id: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        edit::message_before(&self.writer, id, edit)
    }

    /// Creates letters for messages that died elsewhere. Durable on return.
    pub fn import<'a>(
        &mut self,
        letters: &[ForeignLetter],
        dry_run: bool,
        asked: impl Into<OnBehalf<'a>>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        import::import(&mut self.writer, letters, dry_run, asked.into())
    }

    /// Whether all letters are known that existed when they were opened.
    pub fn are_loaded(&self) -> bool {
        self.cache.lock().loaded
    }

    /// Waits until all letters are known. Returns whether that was in time.
    pub fn wait_until_loaded(&self, deadline: Instant) -> bool {
        self.cache.wait(deadline, |inner| inner.loaded)
    }

    /// Returns why letters cannot be read at the moment, unless a broker is merely unreachable.
    pub fn refusal(&self, now: Instant) -> Option<String> {
        let inner = self.cache.lock();
        let (refusal, at) = inner.refusal.as_ref()?;
        (now.duration_since(*at) < REFUSED_WITHIN).then(|| refusal.clone())
    }

    pub fn counts(&self) -> LetterTotals {
        self.cache.lock().index.counts
    }

    /// Returns when the oldest open letter died.
    pub fn oldest(&self) -> Option<Time> {
        self.cache.lock().index.groups().oldest()
    }

    /// Notes that a record that this process wrote to `T.DLQ` was acknowledged at this position.
    pub fn parked(&mut self, partition: i32, offset: i64, copy: &CopyRecord) {
        self.cache.lock().parked(DlqPosition::new(partition, offset), copy, LearnedFrom::Acknowledgement);
    }

    /// Whether a success has to be recorded: the message was replayed, and no duplicate of it has died since. If one
    /// has, there is a later letter, and a state of the earlier one would replace its state.
    pub fn wants_success(&self, number: u64, replays: u32) -> bool {
        replays > 0 && !self.has_died_since(&[], number, replays, Time::ZERO)
    }

    /// Whether a message that was requeued `replays` times has become a letter, by a record of `T.DLQ` at or after one
    /// of these positions. A letter that is older than the message belongs to a topic that was deleted and recreated.
    pub fn has_died_since(&self, since: &[(i32, i64)], number: u64, replays: u32, created: Time) -> bool {
        let is_late = |place: DlqPosition| {
            let of_partition = since.iter().find(|(partition, _)| *partition == place.partition());
            of_partition.is_none_or(|(_, end)| place.offset() >= *end)
        };
        let cache = self.cache.lock();
        cache.index.get(number).is_some_and(|entry| {
            entry.generation() >= replays && entry.dead_at() >= created && is_late(entry.place())
        })
    }

    /// Returns the state of a letter of this generation, and whether its record is truncated.
    pub fn is_cut(&self, number: u64, generation: u32) -> Option<(LetterState, bool)> {
        let cache = self.cache.lock();
        let entry = cache.index.get(number).filter(|entry| entry.generation() == generation)?;
        Some((entry.state()?, entry.is_cut()))
    }

    pub fn state_of(&self, number: u64) -> Option<LetterState> {
        self.cache.lock().index.get(number).and_then(super::entry::LetterEntry::state)
    }

    /// Returns the open or discarded letters for which `wanted` holds.
    pub fn at_rest(&self, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let cache = self.cache.lock();
        let at_rest = cache.index.after(None).filter_map(|(number, state, _)| {
            let rests = matches!(state, LetterState::Open | LetterState::Discarded);
            (rests && wanted(number)).then_some(number)
        });
        at_rest.collect()
    }

    /// Whether the mirror has read every letter below these ends of partitions.
    pub fn are_read_up_to(&self, ends: &[(i32, i64)]) -> bool {
        let cache = self.cache.lock();
        ends.iter().all(|(partition, end)| cache.letters_next.get(partition).is_some_and(|next| next >= end))
    }

    /// Returns key and value of the record for `T.DLQ.state` after a replayed message succeeded. `replays` is that of
    /// the copy: the first replay is 1.
    pub fn succeeded_state(number: u64, replays: u32, job: Option<u64>, at: Time) -> (String, Vec<u8>) {
        let jobs = job.into_iter().collect();
        let generation = replays.saturating_sub(1);
        let state = StateRecord { generation, is: LetterState::Succeeded, jobs, at };
        (StateRecord::key(number), state.to_json())
    }

    /// Notes that the record of a success was acknowledged.
    pub fn succeeded(&mut self, number: u64, replays: u32) {
        let generation = replays.saturating_sub(1);
        let state = StateRecord { generation, is: LetterState::Succeeded, jobs: Vec::new(), at: wall_time() };
        self.cache.lock().index.state_is(number, &state);
    }

    /// Returns the trimmer of resolved letters, for a thread of its own.
    pub fn trimmer(&self, cluster: &Cluster) -> LetterTrimmer {
        LetterTrimmer::new(cluster, &self.topics, &self.cache)
    }

    /// Sets a callback for changes of letters by other processes.
    pub fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.cache.lock().wake = Some(wake);
    }

    /// Stops the mirror and closes the producer. Letters can still be looked up, as of now.
    pub fn close(&mut self) {
        self.cache.change(|inner| {
            inner.closing = true;
            inner.wake = None;
        });
        if let Some(mirror) = self.mirror.take() {
            // It has nothing to lose: all it knew was read from the topics.
            let _ = mirror.join();
        }
        self.writer.close();
    }
}

impl Drop for KafkaLetters {
    fn drop(&mut self) {
        self.close();
    }
}
