//! The thread that reads `T.DLQ` and `T.DLQ.state` from the beginning and then follows them.
//!
//! Each topic has a consumer of its own, because the event for the end of a partition does not name the topic. A
//! consumer is assigned its partitions only once: librdkafka does not handle it well if they are reassigned while it
//! starts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as Record};
use rdkafka::metadata::Metadata;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::cache::LetterCache;
use super::entry::DlqPosition;
use super::index::LearnedFrom;
use crate::client::problems::ProblemLog;
use crate::consume::membership::{Absent, UNANSWERED_MAX};
use crate::record::{Read, RecordReader};

/// How long the thread waits for a state when there is nothing to do.
const WAIT: Duration = Duration::from_millis(10);
/// Records of one topic that are taken in before the other's turn.
const TURN: usize = 256;
/// Time between two progress messages while loading.
const LOG_EVERY: Duration = Duration::from_secs(2);
/// How often to check whether a topic has more partitions.
const RECOUNT_EVERY: Duration = Duration::from_secs(5);
const METADATA_WAIT: Duration = Duration::from_secs(10);

/// One topic and how far it was read.
struct Followed {
    config: ClientConfig,
    topic: String,
    consumer: BaseConsumer,
    partitions: i32,
    /// The next offset to read in each partition.
    next: HashMap<i32, i64>,
    /// Partitions that have not been read to their ends since the consumer was created.
    left: HashSet<i32>,
    absent: Absent,
}

pub struct Mirror {
    letters: Followed,
    states: Followed,
    /// Where the states ended before the first letter was read. A state below belongs to a letter that is read before
    /// it, or to one that is gone.
    states_before: HashMap<i32, i64>,
    reader: RecordReader,
    cache: Arc<LetterCache>,
    pipeline: String,
    problems: ProblemLog,
}

/// Returns how many partitions the requested topic has; 0 if it does not exist.
pub fn partitions_in(metadata: &Metadata) -> i32 {
    let topic = metadata.topics().first();
    topic.and_then(|topic| i32::try_from(topic.partitions().len()).ok()).unwrap_or(0)
}

/// Returns where the partitions of a topic end.
fn ends(config: &ClientConfig, topic: &str) -> KafkaResult<HashMap<i32, i64>> {
    let consumer: BaseConsumer = config.create()?;
    let partitions = partitions_in(&consumer.fetch_metadata(Some(topic), METADATA_WAIT)?);
    let end = |partition| {
        // Without an end no state counts as old, which only costs memory.
        let (_, end) = consumer.fetch_watermarks(topic, partition, METADATA_WAIT).unwrap_or_default();
        (partition, end)
    };
    Ok((0..partitions).map(end).collect())
}

/// Adds the settings that the mirror's consumers need beyond those of every reader.
fn settings(mut config: ClientConfig) -> ClientConfig {
    config
        .set("enable.partition.eof", "true")
        // If records were deleted by hand, read what is left.
        .set("auto.offset.reset", "earliest")
        // The end is detected by an empty response, so that must not take long.
        .set("fetch.wait.max.ms", "100")
        .set("queued.min.messages", "5000")
        .set("queued.max.messages.kbytes", "2048");
    config
}

/// The result of a poll.
enum Came {
    Nothing,
    Something,
    Problem(KafkaError),
}

impl Followed {
    fn new(config: &ClientConfig, topic: &str) -> KafkaResult<Self> {
        let mut followed = Self {
            config: config.clone(),
            topic: topic.to_owned(),
            consumer: config.create()?,
            partitions: 0,
            next: HashMap::new(),
            left: HashSet::new(),
            absent: Absent::default(),
        };
        followed.partitions = followed.count()?.max(1);
        followed.follow()?;
        Ok(followed)
    }

    fn count(&self) -> KafkaResult<i32> {
        Ok(partitions_in(&self.consumer.fetch_metadata(Some(&self.topic), METADATA_WAIT)?))
    }

    fn follow(&mut self) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for partition in 0..self.partitions {
            let offset = self.next.get(&partition).map_or(Offset::Beginning, |next| Offset::Offset(*next));
            list.add_partition_offset(&self.topic, partition, offset)?;
        }
        self.left = (0..self.partitions).collect();
        self.consumer.assign(&list)
    }

    /// Creates a new consumer if the topic has grown, or if no answer has come for long.
    fn grow(&mut self) -> KafkaResult<()> {
        let (count, problem) = match self.count() {
            Ok(count) => (count, None),
            Err(error) => (self.partitions, Some(error)),
        };
        let is_lost = self.absent.for_too_long(problem.is_none(), UNANSWERED_MAX, Instant::now());
        if count > self.partitions || is_lost {
            self.consumer = self.config.create()?;
            self.partitions = count;
            self.follow()?;
        }
        problem.map_or(Ok(()), Err)
    }

    fn poll(&mut self, wait: Duration, take_in: impl FnOnce(&BorrowedMessage<'_>)) -> Came {
        match self.consumer.poll(wait) {
            None => Came::Nothing,
            Some(Ok(record)) => {
                take_in(&record);
                self.next.insert(record.partition(), record.offset() + 1);
                Came::Something
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.left.remove(&partition);
                Came::Something
            }
            Some(Err(error)) => Came::Problem(error),
        }
    }
}

impl Mirror {
    pub fn new(
        config: ClientConfig,
        reader: RecordReader,
        cache: Arc<LetterCache>,
        (pipeline, letters, states): (&str, &str, &str),
    ) -> KafkaResult<Self> {
        let config = settings(config);
        let states_before = ends(&config, states)?;
        let letters = Followed::new(&config, letters)?;
        let states = Followed::new(&config, states)?;
        Ok(Self {
            letters,
            states,
            states_before,
            reader,
            cache,
            pipeline: pipeline.to_owned(),
            problems: ProblemLog::default(),
        })
    }

    /// Reads both topics to their ends, then follows them until the cache is closed.
    pub fn run(mut self) {
        let (mut logged, mut counted) = (Instant::now(), Instant::now());
        let mut loaded = false;
        while !self.cache.lock().closing {
            let letters = self.take_letters();
            // Read the letters first: most letters without a record are then known to be gone when their states are
            // read.
            let reads_states = loaded || self.letters.left.is_empty();
            let states = reads_states && self.take_states(if letters { Duration::ZERO } else { WAIT });
            if !loaded && self.letters.left.is_empty() && self.states.left.is_empty() {
                loaded = true;
                self.cache.change(|inner| inner.loaded = true);
            }
            if !loaded && logged.elapsed() >= LOG_EVERY {
                logged = Instant::now();
                let (pipeline, read) = (&self.pipeline, self.cache.lock().read);
                tracing::info!(pipeline, "reading dead letters: {read} records so far");
            }
            if loaded && counted.elapsed() >= RECOUNT_EVERY && !letters && !states {
                counted = Instant::now();
                let grown = self.letters.grow().and_then(|()| self.states.grow());
                grown.unwrap_or_else(|error| self.report(&error));
            }
        }
    }

    fn report(&self, error: &KafkaError) {
        let pipeline = &self.pipeline;
        let said = format!("the letters of `{pipeline}` cannot be read: {error}");
        if self.problems.times(error, Instant::now()).is_some() {
            tracing::warn!("{said}");
        }
        let is_away = matches!(
            error.rdkafka_error_code(),
            None | Some(
                RDKafkaErrorCode::BrokerTransportFailure
                    | RDKafkaErrorCode::AllBrokersDown
                    | RDKafkaErrorCode::Resolve
                    | RDKafkaErrorCode::OperationTimedOut
                    | RDKafkaErrorCode::MessageTimedOut
            )
        );
        self.cache.change(|inner| {
            if !is_away {
                inner.refusal = Some((said.clone(), Instant::now()));
            }
            inner.trouble = Some(said);
        });
    }

    /// Takes in new letters. Returns whether there were any.
    fn take_letters(&mut self) -> bool {
        for turn in 0..TURN {
            let (cache, reader) = (&self.cache, &self.reader);
            let came = self.letters.poll(Duration::ZERO, |record| {
                let read = reader.read(record);
                let place = DlqPosition::new(record.partition(), record.offset());
                cache.change(|inner| {
                    inner.read += 1;
                    inner.trouble = None;
                    inner.letters_next.insert(record.partition(), record.offset() + 1);
                    match &read {
                        Ok(Read::Copy(copy)) => inner.parked(place, copy, LearnedFrom::Topic),
                        // A foreign record, or a damaged one of ours: it is not a letter.
                        Ok(Read::Fresh(..)) | Err(_) => inner.index.foreign(place),
                    }
                });
            });
            match came {
                Came::Something => {}
                Came::Nothing => return turn > 0,
                Came::Problem(error) => self.report(&error),
            }
        }
        true
    }

    fn take_states(&mut self, wait: Duration) -> bool {
        let mut wake = None;
        for turn in 0..TURN {
            let (cache, before) = (&self.cache, &self.states_before);
            let came = self.states.poll(if turn == 0 { wait } else { Duration::ZERO }, |record| {
                wake = cache.change(|inner| {
                    inner.read += 1;
                    inner.trouble = None;
                    let is_old = before.get(&record.partition()).is_some_and(|end| record.offset() < *end);
                    inner.stated(record.key(), record.payload(), is_old);
                    inner.states_next.insert(record.partition(), record.offset() + 1);
                    inner.wake.clone().filter(|_| inner.loaded)
                });
            });
            match came {
                Came::Something => {}
                Came::Nothing => {
                    wake.inspect(|wake| wake());
                    return turn > 0;
                }
                Came::Problem(error) => self.report(&error),
            }
        }
        wake.inspect(|wake| wake());
        true
    }
}
