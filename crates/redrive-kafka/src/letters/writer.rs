//! The one writer of letter changes. Each batch of records is a small transaction that begins once everything committed
//! before it is known here.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::producer::Producer;
use redrive::internal::engine::EngineError;

use super::cache::LetterCache;
use super::mirror::partitions_in;
use super::state::BEGIN;
use super::transaction::{Outgoing, TransactionError, Transactions};
use crate::topics::Topics;

/// Letters per transaction.
pub(super) const BATCH_MAX: usize = 100;
/// Rough bound on the payload bytes of a transaction.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// How long people wait for an answer, and deliveries with them.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
/// A fenced process waits a random time up to this, or two would fence each other forever.
const STEP_BACK_MS: u64 = 200;
const METADATA_WAIT: Duration = Duration::from_secs(5);

/// The outcome of a transaction on letters.
pub(super) enum Published {
    All,
    /// Nothing was published, because the broker refused a record of this letter.
    Refused(u64),
    /// It is unknown whether anything was published.
    Unknown,
}

/// Why records were not published, or may not have been.
pub(super) enum Unpublished {
    /// Nothing was published, because the broker refused this record.
    Refused { record: usize, why: String },
    /// It is unknown whether anything was published.
    Unknown,
}

/// Writes the changes of the letters of one pipeline.
pub(super) struct LetterWriter {
    cache: Arc<LetterCache>,
    transactions: Transactions,
    pipeline: String,
    topics: Arc<Topics>,
    /// Partition counts of the topics that are written to, as of the last time this process began.
    partitions: HashMap<String, i32>,
}

impl LetterWriter {
    pub(super) fn new(
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
        }
    }

    /// Closes the producer.
    pub(super) fn close(&mut self) {
        self.transactions.forget();
    }

    pub(super) fn cache(&self) -> &LetterCache {
        &self.cache
    }

    pub(super) fn topics(&self) -> &Arc<Topics> {
        &self.topics
    }

    /// Makes sure that no other process can change letters, and that all earlier changes are known.
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

    /// Writes a marker to every partition of the state topic and waits until the mirror has read them.
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

    /// Whether the mirror has read these offsets in time.
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

    /// Confirms that nothing has to be changed. The known letters refuse every change; only a committed marker proves
    /// that this knowledge is complete.
    pub(super) fn sure_of_nothing(&mut self, deadline: Instant) -> Result<Published, EngineError> {
        self.read_to_the_end(deadline)?;
        let is_sure = self.transactions.is_begun();
        Ok(if is_sure { Published::All } else { Published::Unknown })
    }

    /// Publishes records in one transaction; returns the position of each.
    pub(super) fn publish(
        &mut self,
        records: &[Outgoing<'_>],
        deadline: Instant,
    ) -> Result<Result<Vec<(i32, i64)>, Unpublished>, EngineError> {
        match self.transactions.publish(records, deadline) {
            Ok(places) => Ok(Ok(places)),
            Err(TransactionError::Refused { record, why }) => Ok(Err(Unpublished::Refused { record, why })),
            Err(TransactionError::Forbidden(why)) => Err(self.forbidden(&why)),
            Err(TransactionError::Lost(why)) => {
                self.step_back(deadline, &why)?;
                Ok(Err(Unpublished::Unknown))
            }
        }
    }

    /// Publishes records of letters; `of` is the letter of each. Returns the last offset per partition of the records
    /// without headers, which are those of the state topic.
    pub(super) fn commit(
        &mut self,
        records: &[Outgoing<'_>],
        of: &[u64],
        deadline: Instant,
    ) -> Result<(Published, HashMap<i32, i64>), EngineError> {
        let mut ends: HashMap<i32, i64> = HashMap::new();
        let published = match self.publish(records, deadline)? {
            Ok(places) => {
                let states = records.iter().zip(places).filter(|(record, _)| record.headers.is_none());
                for (_, (partition, offset)) in states {
                    let end = ends.entry(partition).or_insert(offset);
                    *end = offset.max(*end);
                }
                Published::All
            }
            Err(Unpublished::Refused { record, why }) => {
                let number = of[record];
                tracing::warn!(
                    pipeline = self.pipeline,
                    letter = number,
                    "the broker refuses its record: {why}"
                );
                Published::Refused(number)
            }
            Err(Unpublished::Unknown) => Published::Unknown,
        };
        Ok((published, ends))
    }

    /// Returns the partition of a topic for records from this source partition.
    pub(super) fn partition(&self, topic: &str, of_source: i32) -> Option<i32> {
        let partitions = self.partitions.get(topic).copied().filter(|count| *count > 0);
        partitions.map(|count| of_source % count)
    }

    fn step_back(&mut self, deadline: Instant, why: &str) -> Result<(), EngineError> {
        self.transactions.forget();
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(self.late(why));
        }
        tracing::debug!(
            pipeline = self.pipeline,
            "letters are being changed by another process, or cannot be changed: {why}"
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
