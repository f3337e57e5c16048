//! The thread that reads `T.DLQ` and `T.DLQ.state` from their beginnings and follows them.
//!
//! Whether a topic was read to its end is told only by an event that names a partition, but not its topic. So whenever
//! the end matters, the consumer has one of the two topics alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message as Record};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::index::Told;
use super::shelf::Shelf;
use super::slot::Place;
use crate::record::{Read, Reader};

/// How long a call waits for a record before the thread looks up.
const POLL: Duration = Duration::from_millis(20);
/// How long between two lines about a long way to the end.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// How long between two looks at whether a topic has more partitions.
const RECOUNT_EVERY: Duration = Duration::from_secs(30);
const METADATA_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    Letters,
    States,
}

pub struct Mirror {
    consumer: BaseConsumer,
    reader: Reader,
    shelf: Arc<Shelf>,
    pipeline: String,
    letters: String,
    states: String,
    partitions: HashMap<Which, i32>,
    /// The first offset that was not read.
    next: HashMap<(Which, i32), i64>,
    told_at: Instant,
}

/// What the mirror's consumer needs beyond what every reader of this cluster has.
fn settings(mut config: ClientConfig) -> ClientConfig {
    config
        .set("enable.partition.eof", "true")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        // What was deleted by hand is gone; what is left is read.
        .set("auto.offset.reset", "earliest")
        // An empty answer is what tells the end, so it must not take long.
        .set("fetch.wait.max.ms", "100")
        .set("fetch.queue.backoff.ms", "10")
        .set("queued.max.messages.kbytes", "8192");
    config
}

impl Mirror {
    pub fn new(
        config: ClientConfig,
        reader: Reader,
        shelf: Arc<Shelf>,
        (pipeline, letters, states): (&str, &str, &str),
    ) -> KafkaResult<Self> {
        let consumer: BaseConsumer = settings(config).create()?;
        let mut mirror = Self {
            consumer,
            reader,
            shelf,
            pipeline: pipeline.to_owned(),
            letters: letters.to_owned(),
            states: states.to_owned(),
            partitions: HashMap::new(),
            next: HashMap::new(),
            told_at: Instant::now(),
        };
        mirror.count_partitions()?;
        Ok(mirror)
    }

    fn topic(&self, which: Which) -> &str {
        match which {
            Which::Letters => &self.letters,
            Which::States => &self.states,
        }
    }

    /// Whether there are more partitions than before.
    fn count_partitions(&mut self) -> KafkaResult<bool> {
        let mut more = false;
        for which in [Which::Letters, Which::States] {
            let metadata = self.consumer.fetch_metadata(Some(self.topic(which)), METADATA_WAIT)?;
            let count = metadata.topics().first().map_or(0, |topic| topic.partitions().len() as i32);
            let before = self.partitions.insert(which, count.max(1));
            more |= before.is_some_and(|before| count > before);
        }
        Ok(more)
    }

    /// Reads both topics to their ends, then follows them until the shelf is closed.
    pub fn run(mut self) {
        self.read_to_the_end(Which::Letters);
        self.read_to_the_end(Which::States);
        self.shelf.change(|inner| inner.loaded = true);
        self.follow_both();
        let mut counted = Instant::now();
        loop {
            let (asked, answered, closing) = {
                let inner = self.shelf.lock();
                (inner.asked, inner.answered, inner.closing)
            };
            if closing {
                return;
            }
            if asked > answered {
                self.read_to_the_end(Which::States);
                self.shelf.change(|inner| inner.answered = asked);
                self.follow_both();
            }
            if counted.elapsed() >= RECOUNT_EVERY {
                counted = Instant::now();
                if self.count_partitions().unwrap_or(false) {
                    self.follow_both();
                }
            }
            self.poll(POLL);
        }
    }

    fn follow_both(&mut self) {
        self.assign(&[Which::Letters, Which::States]);
    }

    fn assign(&mut self, topics: &[Which]) {
        let mut list = TopicPartitionList::new();
        for which in topics {
            for partition in 0..self.partitions[which] {
                let next = self.next.get(&(*which, partition));
                let offset = next.map_or(Offset::Beginning, |next| Offset::Offset(*next));
                // Fails only for offsets that are none.
                let _ = list.add_partition_offset(self.topic(*which), partition, offset);
            }
        }
        if let Err(error) = self.consumer.assign(&list) {
            self.in_trouble(&error);
        }
    }

    /// Reads one topic until nothing is left that was there when this began. Only the closing of the shelf ends it before.
    fn read_to_the_end(&mut self, which: Which) {
        self.assign(&[which]);
        let mut left: HashSet<i32> = (0..self.partitions[&which]).collect();
        let before = self.shelf.lock().read;
        self.told_at = Instant::now();
        while !left.is_empty() && !self.shelf.lock().closing {
            if let Some(partition) = self.poll(POLL) {
                left.remove(&partition);
            }
            if self.told_at.elapsed() >= TELL_EVERY {
                self.told_at = Instant::now();
                let read = self.shelf.lock().read - before;
                let (pipeline, topic) = (&self.pipeline, self.topic(which));
                tracing::info!(pipeline, topic, "reading dead letters: {read} records so far");
            }
        }
    }

    /// Takes in one record, if there is one. Returns a partition that was read to its end.
    fn poll(&mut self, wait: Duration) -> Option<i32> {
        // The record borrows the consumer, and what it changes does not.
        let (read, end) = match self.consumer.poll(wait)? {
            Ok(record) => (Some(self.take_in(&record)), None),
            Err(KafkaError::PartitionEOF(partition)) => (None, Some(partition)),
            Err(error) => {
                self.in_trouble(&error);
                (None, None)
            }
        };
        if let Some((which, partition, next)) = read {
            self.next.insert((which, partition), next);
        }
        end
    }

    fn take_in(&self, record: &BorrowedMessage<'_>) -> (Which, i32, i64) {
        let (partition, offset) = (record.partition(), record.offset());
        let next = offset + 1;
        if record.topic() == self.letters {
            let read = self.reader.read(record);
            self.shelf.change(|inner| {
                inner.read += 1;
                match &read {
                    Ok(Read::Copy(copy)) => {
                        inner.parked(Place::new(partition, offset), copy, Told::ByTopic);
                    }
                    // Somebody else's record, or one of ours that was damaged: it is no letter.
                    Ok(Read::Fresh(..)) | Err(_) => inner.index.counts.unreadable += 1,
                }
            });
            return (Which::Letters, partition, next);
        }
        let wake = self.shelf.change(|inner| {
            inner.read += 1;
            inner.stated(record.key(), record.payload());
            inner.states_next.insert(partition, next);
            inner.wake.clone().filter(|_| inner.loaded)
        });
        if let Some(wake) = wake {
            wake();
        }
        (Which::States, partition, next)
    }

    fn in_trouble(&self, error: &KafkaError) {
        let said = format!("the letters of `{}` cannot be read: {error}", self.pipeline);
        let before = self.shelf.change(|inner| inner.trouble.replace(said.clone()));
        if before.as_ref() != Some(&said) {
            tracing::warn!("{said}");
        }
    }
}
