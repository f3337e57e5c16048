//! A pipeline with its topics, letters parked as the engine parks them, and access to all records of a topic.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use redrive::internal::engine::letter::ReplayTarget;
use redrive::internal::engine::{Attempt, EngineError, History, Letter, LetterState, ReplayJob};
use redrive_core::{Class, FailureKind, Message, Meta, Reason, Time};
use redrive_kafka::letters::KafkaLetters;
use redrive_kafka::record::{CopyRecord, LetterMarks, Origin, Read, RecordReader, headers};
use redrive_kafka::topics::{Topics, prepare};
use redrive_kafka::{Cluster, KafkaPipeline, TopicsMode};

use crate::broker;

pub const LIMIT: Duration = Duration::from_mins(5);

pub struct Fixture {
    pub cluster: Cluster,
    pub pipeline: KafkaPipeline,
    pub topics: Topics,
    producer: BaseProducer<LastOffset>,
    _dir: tempfile::TempDir,
}

/// Remembers where the last record was written.
#[derive(Default)]
struct LastOffset {
    last: std::sync::Mutex<Option<(i32, i64)>>,
}

impl rdkafka::client::ClientContext for LastOffset {}

impl ProducerContext for LastOffset {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        use rdkafka::message::Message as _;
        let record = result.as_ref().expect("the broker takes it");
        *self.last.lock().unwrap() = Some((record.partition(), record.offset()));
    }
}

impl Fixture {
    pub fn new(prefix: &str, partitions: i32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cluster = broker::cluster(dir.path());
        let pipeline = broker::pipeline(&broker::name(prefix));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(broker::create(&cluster, &pipeline.source, partitions, &[]));
        // A topic that was just created is not known to every broker yet.
        let mut topics = prepare(&cluster, &pipeline, TopicsMode::Create);
        eventually("the topics are there", || {
            topics = prepare(&cluster, &pipeline, TopicsMode::Create);
            topics.is_ok()
        });
        let topics = topics.unwrap();
        let producer = cluster.producer().create_with_context(LastOffset::default()).unwrap();
        Self { cluster, pipeline, topics, producer, _dir: dir }
    }

    pub fn letters(&self) -> KafkaLetters {
        self.letters_at(&self.cluster)
    }

    /// Opens the letters as another process would.
    pub fn letters_at(&self, cluster: &Cluster) -> KafkaLetters {
        let letters =
            KafkaLetters::open(cluster, &self.pipeline, &self.topics).expect("the letters can be opened");
        assert!(letters.wait_until_loaded(Instant::now() + LIMIT), "the letters are read");
        letters
    }

    /// Returns the cluster of another process of the same group, with its own directory.
    pub fn elsewhere(&self, name: &str) -> Cluster {
        Cluster { state_dir: self.cluster.state_dir.join(name), ..self.cluster.clone() }
    }

    /// Like [`Self::elsewhere`], but its reads are late: the broker answers only after waiting for more data than there
    /// is.
    pub fn late(&self, name: &str) -> Cluster {
        let passed_on = vec![("fetch.min.bytes".to_owned(), "100000000".to_owned())];
        Cluster { passed_on, ..self.elsewhere(name) }
    }

    /// Returns the dead copy of the message with this origin, as the engine creates it.
    pub fn copy(&self, partition: i32, offset: i64) -> CopyRecord {
        let attempt = Attempt {
            number: 1,
            at: Time::from_millis(1_700_000_000_500),
            took_ms: 12,
            class: Class::Permanent,
            kind: FailureKind::Status(422),
            code: None,
            counted: true,
            ambiguous: false,
            error: "422: field `currency` must be one of EUR, USD".to_owned(),
        };
        let created = Time::from_millis(1_700_000_000_000);
        let message = Message::builder(format!("o-{partition}-{offset}"))
            .created(created)
            .key(format!("c-{}", offset % 5))
            .header("x-src", "web")
            .payload(format!("{{\"order\":{offset}}}"))
            .build()
            .unwrap();
        CopyRecord {
            message,
            meta: Meta {
                created,
                attempts: 1,
                first_failed: Some(Time::from_millis(1_700_000_000_500)),
                ..Meta::default()
            },
            history: History::default().with(&attempt),
            origin: Origin { topic: Arc::from(self.pipeline.source.as_str()), partition, offset },
            due: None,
            reason: Some(Reason::Permanent),
            dead_at: Some(Time::from_millis(1_700_000_001_000 + offset.cast_unsigned())),
            job: None,
            marks: LetterMarks::default(),
        }
    }

    /// Returns the copy of a replayed letter after it died again.
    pub fn relapsed(before: &CopyRecord, job: u64) -> CopyRecord {
        let meta = Meta { attempts: 2, ..before.meta.replayed() };
        let dead_at = Some(Time::from_millis(1_700_000_900_000 + u64::from(meta.replays)));
        CopyRecord { meta, job: Some(job), reason: Some(Reason::MaxRetries), dead_at, ..before.clone() }
    }

    /// Writes a letter to `T.DLQ`. Returns its position.
    pub fn park(&self, copy: &CopyRecord) -> (i32, i64) {
        let topic = self.pipeline.source.as_str().into();
        let from = Origin { topic, partition: copy.origin.partition, offset: copy.origin.offset };
        self.produce(
            &self.topics.dlq,
            Some(copy.origin.partition),
            copy.message.key(),
            copy.message.payload(),
            Some(headers(copy, Some(&from))),
        )
    }

    pub fn produce(
        &self,
        topic: &str,
        partition: Option<i32>,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
        headers: Option<rdkafka::message::OwnedHeaders>,
    ) -> (i32, i64) {
        let mut record = BaseRecord::<[u8], [u8]>::to(topic);
        (record.partition, record.key, record.payload, record.headers) = (partition, key, payload, headers);
        self.producer.send(record).map_err(|(error, _)| error).expect("it is sent");
        self.producer.flush(LIMIT).expect("it is acknowledged");
        self.producer.context().last.lock().unwrap().take().expect("it has a place")
    }

    /// Sends a record; [`Self::flush`] waits for all of them.
    pub fn send(&self, topic: &str, partition: i32, key: &[u8], payload: &[u8]) {
        let record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition).key(key).payload(payload);
        self.producer.send(record).map_err(|(error, _)| error).expect("it is sent");
    }

    pub fn flush(&self) {
        self.producer.flush(LIMIT).expect("they are acknowledged");
    }

    /// Parks many letters at once. Returns their numbers in order.
    pub fn park_many(&self, partitions: i32, each: i64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for partition in 0..partitions {
            for offset in 0..each {
                let copy = self.copy(partition, offset);
                numbers.push(copy.origin.number());
                let from = Origin { topic: self.pipeline.source.as_str().into(), partition, offset };
                let mut record = BaseRecord::<[u8], [u8]>::to(&self.topics.dlq);
                record.partition = Some(partition);
                (record.key, record.payload) = (copy.message.key(), copy.message.payload());
                record.headers = Some(headers(&copy, Some(&from)));
                self.producer.send(record).map_err(|(error, _)| error).expect("it is sent");
            }
        }
        self.producer.flush(LIMIT).expect("they are acknowledged");
        numbers
    }

    /// Returns every committed copy in a topic, with its partition.
    pub fn copies(&self, topic: &str) -> Vec<(i32, CopyRecord)> {
        use rdkafka::message::Message as _;
        let reader = RecordReader::new(&self.pipeline);
        let mut copies = Vec::new();
        self.read(topic, |record| match reader.read(record) {
            Ok(Read::Copy(copy)) => copies.push((record.partition(), *copy)),
            other => panic!("{topic} has a record that is no copy: {other:?}"),
        });
        copies
    }

    /// Reads all committed records of a topic from beginning to end.
    pub fn read(&self, topic: &str, each: impl FnMut(&rdkafka::message::BorrowedMessage<'_>)) {
        self.read_as(topic, "read_committed", each);
    }

    pub fn read_as(
        &self,
        topic: &str,
        isolation: &str,
        mut each: impl FnMut(&rdkafka::message::BorrowedMessage<'_>),
    ) {
        let mut config = self.cluster.reader();
        config.set("isolation.level", isolation);
        config.set("fetch.wait.max.ms", "50");
        let consumer: BaseConsumer = config.create().unwrap();
        let metadata = consumer.fetch_metadata(Some(topic), LIMIT).unwrap();
        let partitions = i32::try_from(metadata.topics()[0].partitions().len()).unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let mut left: HashSet<i32> = (0..partitions).collect();
        let until = Instant::now() + LIMIT;
        while !left.is_empty() {
            assert!(Instant::now() < until, "{topic} was not read to its end");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(record)) => each(&record),
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(left.remove(&partition)),
                Some(Err(error)) => panic!("{topic}: {error}"),
                None => {}
            }
        }
    }
}

pub fn job(id: u64) -> ReplayJob {
    let due = Time::from_millis(1_700_000_002_000);
    ReplayJob { id, due, force: false, target: ReplayTarget::Pipeline }
}

pub const NOW: Time = Time::from_millis(1_700_000_003_000);

pub fn ids(letters: &[Letter]) -> Vec<u64> {
    letters.iter().map(|letter| letter.id).collect()
}

pub fn state_of(letters: &mut KafkaLetters, id: u64) -> Option<LetterState> {
    letters.letter(id).unwrap().map(|letter| letter.state)
}

/// Waits until `done` holds; changes by other processes become visible with a delay.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < until, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn unavailable<T: std::fmt::Debug>(result: Result<T, EngineError>) -> String {
    match result {
        Err(EngineError::Unavailable(why)) => why,
        other => panic!("it should not be available: {other:?}"),
    }
}
