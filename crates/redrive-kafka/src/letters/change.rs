//! What a person does to letters: replay, discard, undo, import. Each change is a small transaction, checked against everything
//! that was committed before it.

mod import;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::producer::Producer;
use redrive::engine::letter::{REPLAYS_MAX, ReplayTarget};
use redrive::engine::{EngineError, LetterChange, LetterState, ReplayAnswer, ReplayJob};
use redrive_core::Time;

use super::cache::LetterCache;
use super::content::Content;
use super::entry::LetterEntry;
use super::mirror::partitions_in;
use super::retention::can_be_undone;
use super::state::{BEGIN, StateRecord};
use super::transaction::{Outgoing, TransactionError, Transactions};
use super::view::unreadable;
use crate::record::{self, CopyRecord, LetterMarks, Origin};
use crate::topics::Topics;

/// Letters of one transaction.
pub(super) const BATCH_MAX: usize = 100;
/// Their payloads have about this much together.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// How long a person waits for an answer, and deliveries with them.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Whoever was fenced waits up to so long, at random, or two would fence each other for ever.
const STEP_BACK_MS: u64 = 200;
const METADATA_WAIT: Duration = Duration::from_secs(5);

/// One letter with its copy and its new state.
struct PlannedChange {
    number: u64,
    copy: Option<(Box<CopyRecord>, Origin)>,
    state: StateRecord,
}

/// Changes the letters of one pipeline.
pub(super) struct LetterChanges {
    pub(super) cache: Arc<LetterCache>,
    transactions: Transactions,
    pipeline: String,
    pub(super) topics: Arc<Topics>,
    /// How many partitions the topics have that copies go to, as of the last time this process began.
    partitions: HashMap<String, i32>,
    /// Who asks for changes, where that is known.
    pub(super) actor: Option<String>,
}

impl LetterChanges {
    pub fn new(
        cache: &Arc<LetterCache>,
        transactions: Transactions,
        pipeline: &str,
        topics: &Arc<Topics>,
    ) -> Self {
        Self {
            cache: Arc::clone(cache),
            transactions,
            pipeline: pipeline.to_owned(),
            topics: Arc::clone(topics),
            partitions: HashMap::new(),
            actor: None,
        }
    }

    /// Lets go of the producer.
    pub fn close(&mut self) {
        self.transactions.forget();
    }

    /// Who asks for the changes that follow; it is written beside them.
    pub fn acting_for(&mut self, actor: Option<&str>) {
        self.actor = actor.map(str::to_owned);
    }

    /// Puts letters back to be delivered, each at most once per job. Durable on return.
    pub fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<ReplayAnswer>, EngineError> {
        self.cache.check_loaded()?;
        let deadline = Instant::now() + WAIT_MAX;
        let mut answers: Vec<ReplayAnswer> = Vec::with_capacity(ids.len());
        let mut refused: HashSet<u64> = HashSet::new();
        // Letters of a transaction whose end is not known.
        let mut tried: HashSet<u64> = HashSet::new();
        while answers.len() < ids.len() {
            self.begin(deadline)?;
            let rest = &ids[answers.len()..];
            let (mut part, changes) = self.plan_replay(job, rest, now, &refused)?;
            for (id, answer) in rest.iter().zip(&mut part) {
                if *answer == ReplayAnswer::Already && tried.remove(id) {
                    *answer = ReplayAnswer::Replayed;
                }
            }
            match self.publish(job.target, &changes, deadline)? {
                Published::All => answers.append(&mut part),
                Published::Refused(number) => drop(refused.insert(number)),
                Published::Unknown => tried.extend(changes.iter().map(|change| change.number)),
            }
        }
        Ok(answers)
    }

    /// Answers for as many of `ids` as one transaction may have, and what that transaction does.
    fn plan_replay(
        &self,
        job: &ReplayJob,
        ids: &[u64],
        now: Time,
        refused: &HashSet<u64>,
    ) -> Result<(Vec<ReplayAnswer>, Vec<PlannedChange>), EngineError> {
        let (mut answers, mut changes, mut bytes) = (Vec::new(), Vec::<PlannedChange>::new(), 0);
        for number in ids {
            if changes.len() >= BATCH_MAX || bytes >= BATCH_BYTES {
                break;
            }
            let entry = self.cache.lock().index.get(*number).cloned();
            let answer = match entry {
                _ if changes.iter().any(|change| change.number == *number) => ReplayAnswer::Already,
                None => ReplayAnswer::NotFound,
                Some(entry) => match refusal(&entry, job) {
                    Some(refusal) => refusal,
                    // A part of it would be delivered as if it were the whole.
                    None if refused.contains(number) || entry.is_cut() => ReplayAnswer::Damaged,
                    None => match self.replayed(*number, &entry, job, now)? {
                        Some((change, size)) => {
                            bytes += size;
                            changes.push(change);
                            ReplayAnswer::Replayed
                        }
                        None => ReplayAnswer::Damaged,
                    },
                },
            };
            answers.push(answer);
        }
        Ok((answers, changes))
    }

    fn replayed(
        &self,
        number: u64,
        entry: &LetterEntry,
        job: &ReplayJob,
        now: Time,
    ) -> Result<Option<(PlannedChange, usize)>, EngineError> {
        let content = self.cache.content(entry.at()).map_err(|error| unreadable(&error))?;
        let Some(content) = content else { return Ok(None) };
        let edited = self.cache.edited_message(number, entry).map_err(|error| unreadable(&error))?;
        let content = Content { message: edited.unwrap_or(content.message), ..content };
        let size = content.message.wire().len() + content.history.raw().len();
        let copy = CopyRecord {
            message: content.message,
            meta: content.meta.replayed(),
            history: content.history,
            origin: Origin::of_number(content.topic, number),
            due: Some(job.due),
            reason: None,
            dead_at: None,
            job: Some(job.id),
            marks: LetterMarks::default(),
        };
        let place = entry.place();
        let topic = self.topics.dlq.as_str().into();
        let from = Origin { topic, partition: place.partition(), offset: place.offset() };
        let mut jobs = entry.jobs().to_vec();
        jobs.push(job.id);
        let state = StateRecord { generation: entry.generation(), is: LetterState::Replaying, jobs, at: now };
        Ok(Some((PlannedChange { number, copy: Some((Box::new(copy), from)), state }, size)))
    }

    /// Discards open letters, or takes a discard back. Durable on return; `false` where the state did not allow it.
    pub fn change_letters(
        &mut self,
        change: LetterChange,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<bool>, EngineError> {
        self.cache.check_loaded()?;
        let deadline = Instant::now() + WAIT_MAX;
        let (from, to) = change.states();
        let mut answers: Vec<bool> = Vec::with_capacity(ids.len());
        let mut tried: HashSet<u64> = HashSet::new();
        while answers.len() < ids.len() {
            self.begin(deadline)?;
            let mut changes: Vec<PlannedChange> = Vec::new();
            let mut part = Vec::new();
            for number in &ids[answers.len()..] {
                if changes.len() >= BATCH_MAX {
                    break;
                }
                let entry = self.cache.lock().index.get(*number).cloned();
                let state = entry.as_ref().and_then(LetterEntry::state);
                let chosen = changes.iter().any(|change| change.number == *number);
                let done = state == Some(to) && tried.remove(number);
                let may = |entry: &LetterEntry| change != LetterChange::Undo || can_be_undone(entry, now);
                if let Some(entry) = entry.filter(|entry| state == Some(from) && !chosen && may(entry)) {
                    let (generation, jobs) = (entry.generation(), entry.jobs().to_vec());
                    let state = StateRecord { generation, is: to, jobs, at: now };
                    changes.push(PlannedChange { number: *number, copy: None, state });
                    part.push(true);
                } else {
                    part.push(done);
                }
            }
            match self.publish(ReplayTarget::default(), &changes, deadline)? {
                Published::All => answers.append(&mut part),
                Published::Refused(number) => {
                    let what = format!("the broker refuses the state of letter {number}");
                    return Err(EngineError::Unavailable(what));
                }
                Published::Unknown => tried.extend(changes.iter().map(|change| change.number)),
            }
        }
        Ok(answers)
    }

    /// Makes sure that nobody else can change letters, and that all they did is known.
    pub(super) fn begin(&mut self, deadline: Instant) -> Result<(), EngineError> {
        while !self.transactions.is_begun() {
            match self.transactions.begin(deadline) {
                Ok(()) => {}
                Err(TransactionError::Forbidden(why)) => return Err(self.forbidden(&why)),
                Err(TransactionError::Lost(why) | TransactionError::Refused { why, .. }) => {
                    self.step_back(deadline, &why)?;
                    continue;
                }
            }
            self.count_partitions();
            self.read_to_the_end(deadline)?;
        }
        Ok(())
    }

    /// Writes a mark into every partition of the state topic and waits until the mirror has read it.
    fn read_to_the_end(&mut self, deadline: Instant) -> Result<(), EngineError> {
        let topics = Arc::clone(&self.topics);
        let partitions = self.partitions.get(&topics.dlq_state).copied().unwrap_or(0);
        let mark = |partition| Outgoing {
            topic: &topics.dlq_state,
            partition: Some(partition),
            key: Some(BEGIN.to_vec()),
            payload: Some(b"{}".to_vec()),
            headers: None,
        };
        let marks: Vec<Outgoing<'_>> = (0..partitions).map(mark).collect();
        match self.transactions.publish(&marks, deadline) {
            Ok(places) => {
                let ends: HashMap<i32, i64> = places.into_iter().collect();
                if self.has_read(&ends, deadline) {
                    return Ok(());
                }
                self.transactions.forget();
                let trouble = self.cache.lock().trouble.clone();
                let unread = || format!("{} was not read to its end", topics.dlq_state);
                Err(self.late(&trouble.unwrap_or_else(unread)))
            }
            Err(TransactionError::Forbidden(why)) => Err(self.forbidden(&why)),
            Err(TransactionError::Lost(why) | TransactionError::Refused { why, .. }) => {
                self.step_back(deadline, &why)
            }
        }
    }

    /// Whether the mirror came to read these offsets in time.
    pub(super) fn has_read(&self, ends: &HashMap<i32, i64>, deadline: Instant) -> bool {
        let is_read = |next: &HashMap<i32, i64>| {
            ends.iter().all(|(partition, end)| next.get(partition).is_some_and(|next| next > end))
        };
        self.cache.wait(deadline, |inner| is_read(&inner.states_next) || inner.closing)
    }

    fn count_partitions(&mut self) {
        let Some(producer) = self.transactions.producer() else { return };
        for topic in [&self.topics.replay, &self.topics.source, &self.topics.dlq, &self.topics.dlq_state] {
            if let Ok(metadata) = producer.client().fetch_metadata(Some(topic), METADATA_WAIT) {
                self.partitions.insert(topic.clone(), partitions_in(&metadata));
            }
        }
    }

    fn publish(
        &mut self,
        target: ReplayTarget,
        changes: &[PlannedChange],
        deadline: Instant,
    ) -> Result<Published, EngineError> {
        if changes.is_empty() {
            return self.sure_of_nothing(deadline);
        }
        let topics = Arc::clone(&self.topics);
        let (mut records, mut of) = (Vec::with_capacity(changes.len() * 2), Vec::new());
        for change in changes {
            if let Some((copy, from)) = &change.copy {
                records.push(self.outgoing(target, &topics, copy, from));
                of.push(change.number);
            }
            records.push(Outgoing {
                topic: &topics.dlq_state,
                // The partition of its source, as with copies: where successes are told too.
                partition: self.partition(&topics.dlq_state, (change.number >> 48) as i32),
                key: Some(StateRecord::key(change.number).into_bytes()),
                payload: Some(change.state.to_json_by(self.actor.as_deref())),
                headers: None,
            });
            of.push(change.number);
        }
        let (published, ends) = self.commit(&records, &of, deadline)?;
        if matches!(published, Published::All) {
            self.wait_until_read(&ends, changes, deadline);
        }
        Ok(published)
    }

    /// Every letter was refused by what is known here; whether that is all there is, a mark that is taken tells.
    pub(super) fn sure_of_nothing(&mut self, deadline: Instant) -> Result<Published, EngineError> {
        self.read_to_the_end(deadline)?;
        let is_sure = self.transactions.is_begun();
        Ok(if is_sure { Published::All } else { Published::Unknown })
    }

    /// Publishes records as one transaction; `of` says of which letter each is. Returns where the records without headers,
    /// which are those of the state topic, ended in their partitions.
    pub(super) fn commit(
        &mut self,
        records: &[Outgoing<'_>],
        of: &[u64],
        deadline: Instant,
    ) -> Result<(Published, HashMap<i32, i64>), EngineError> {
        let mut ends: HashMap<i32, i64> = HashMap::new();
        let published = match self.transactions.publish(records, deadline) {
            Ok(places) => {
                let states = records.iter().zip(places).filter(|(record, _)| record.headers.is_none());
                for (_, (partition, offset)) in states {
                    let end = ends.entry(partition).or_insert(offset);
                    *end = offset.max(*end);
                }
                Published::All
            }
            Err(TransactionError::Refused { record, why }) => {
                let number = of[record];
                tracing::warn!(
                    pipeline = self.pipeline,
                    letter = number,
                    "the broker refuses its record: {why}"
                );
                Published::Refused(number)
            }
            Err(TransactionError::Forbidden(why)) => return Err(self.forbidden(&why)),
            Err(TransactionError::Lost(why)) => {
                self.step_back(deadline, &why)?;
                Published::Unknown
            }
        };
        Ok((published, ends))
    }

    fn outgoing<'a>(
        &self,
        target: ReplayTarget,
        topics: &'a Topics,
        copy: &CopyRecord,
        from: &Origin,
    ) -> Outgoing<'a> {
        let topic = match target {
            ReplayTarget::Pipeline => &topics.replay,
            ReplayTarget::Source => &topics.source,
        };
        Outgoing {
            topic,
            partition: self.partition(topic, copy.origin.partition),
            key: copy.message.key().map(<[u8]>::to_vec),
            payload: copy.message.payload().map(<[u8]>::to_vec),
            headers: Some(record::headers(copy, Some(from))),
        }
    }

    /// The partition of a topic for what came from this partition of the source.
    pub(super) fn partition(&self, topic: &str, of_source: i32) -> Option<i32> {
        let partitions = self.partitions.get(topic).copied().filter(|count| *count > 0);
        partitions.map(|count| of_source % count)
    }

    /// Waits until the mirror has read what was committed, so that the next look shows it.
    fn wait_until_read(&self, ends: &HashMap<i32, i64>, changes: &[PlannedChange], deadline: Instant) {
        if !self.has_read(ends, deadline) {
            // It is committed all the same.
            let mut inner = self.cache.lock();
            changes.iter().for_each(|change| inner.index.state_is(change.number, &change.state));
        }
    }

    fn step_back(&mut self, deadline: Instant, why: &str) -> Result<(), EngineError> {
        self.transactions.forget();
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(self.late(why));
        }
        tracing::debug!(
            pipeline = self.pipeline,
            "letters are changed by somebody else, or not at all: {why}"
        );
        let random = RandomState::new().hash_one(0);
        std::thread::sleep(Duration::from_millis(random % STEP_BACK_MS).min(left));
        Ok(())
    }

    fn forbidden(&mut self, why: &str) -> EngineError {
        self.transactions.forget();
        EngineError::Directory {
            problem: format!("letters of `{}` may not be changed: {why}", self.pipeline),
            fix: "give the permission that is missing (`redrive check --kafka` prints the commands), then try again",
        }
    }

    fn late(&self, why: &str) -> EngineError {
        let (pipeline, wait) = (&self.pipeline, WAIT_MAX.as_secs());
        EngineError::Unavailable(format!(
            "letters of `{pipeline}` could not be changed within {wait} s: {why}"
        ))
    }
}

/// What became of a transaction.
pub(super) enum Published {
    All,
    /// Nothing was published, because the copy of this letter is refused.
    Refused(u64),
    /// Whether anything was published is not known.
    Unknown,
}

fn refusal(entry: &LetterEntry, job: &ReplayJob) -> Option<ReplayAnswer> {
    let state = entry.state()?;
    let replays = entry.replays();
    if entry.jobs().contains(&job.id) {
        Some(ReplayAnswer::Already)
    } else if state != LetterState::Open {
        Some(ReplayAnswer::NotOpen(state))
    } else if replays >= REPLAYS_MAX && !job.force {
        Some(ReplayAnswer::TooOften { replays })
    } else {
        None
    }
}
