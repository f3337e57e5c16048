//! A pipeline on the broker that `REDRIVE_TEST_KAFKA` names, with topics of its own.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod drive;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use redrive::internal::engine::{Deliver, Engine, Event, StoreOptions};
use redrive_core::{Message, Pick};
use redrive_kafka::record::{CopyRecord, Origin, headers};
use redrive_kafka::{Cluster, GroupStart, KafkaEngine, KafkaPipeline, KafkaStores, Only, TopicsMode};

/// Far longer than anything takes; only a failing test waits this long.
pub const LIMIT: Duration = Duration::from_mins(5);
/// The header that holds a message's id.
pub const ID: &str = "x-test-id";

pub fn brokers() -> String {
    std::env::var("REDRIVE_TEST_KAFKA")
        .expect("REDRIVE_TEST_KAFKA names no broker; `make kafka-up` starts one and prints its address")
}

/// One pipeline with its own topics and its own directory.
pub struct World {
    pub cluster: Cluster,
    pub pipeline: KafkaPipeline,
    pub partitions: i32,
    /// The brokers that the tests themselves use.
    pub brokers: String,
    pub producer: BaseProducer<ProducedOffsets>,
    _dir: tempfile::TempDir,
}

/// Remembers where records were written.
#[derive(Default)]
pub struct ProducedOffsets(std::sync::Mutex<Vec<(usize, i32, i64)>>);

impl rdkafka::ClientContext for ProducedOffsets {}

impl ProducerContext for ProducedOffsets {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        use rdkafka::Message as _;
        let message = result.as_ref().expect("the broker takes a record");
        self.0.lock().unwrap().push((opaque, message.partition(), message.offset()));
    }
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

impl World {
    pub fn new(partitions: i32, tiers: &[Duration]) -> Self {
        Self::at(&brokers(), partitions, tiers)
    }

    /// Like [`Self::new`], on another broker or cluster.
    pub fn at(brokers: &str, partitions: i32, tiers: &[Duration]) -> Self {
        Self::with(brokers, partitions, tiers, &[])
    }

    /// Like [`Self::at`], with settings for the source.
    pub fn with(brokers: &str, partitions: i32, tiers: &[Duration], settings: &[(&str, &str)]) -> Self {
        if std::env::var("REDRIVE_TEST_LOG").is_ok() {
            let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).try_init();
        }
        let number = WORLDS.fetch_add(1, Ordering::SeqCst);
        let name = format!("k{}-{number}-{}", std::process::id(), rand_suffix());
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster {
            brokers: brokers.split(',').map(str::to_owned).collect(),
            group: format!("{name}-group"),
            member: Some("one".to_owned()),
            start: Some(GroupStart::Earliest),
            topics: TopicsMode::Create,
            state_dir: dir.path().to_owned(),
            passed_on: Vec::new(),
        };
        let pipeline = KafkaPipeline {
            name: name.clone(),
            source: name,
            tiers: tiers.to_vec(),
            id: Some(Pick::Header(ID.to_owned())),
            tenant: None,
            ttl: None,
            blocking: false,
            only: Only::Everything,
            subscriptions: false,
        };
        let settings: Vec<_> = [("retention.ms", "-1")].iter().chain(settings).copied().collect();
        create_at(brokers, &pipeline.source, partitions, &settings);
        let producer = client_at(brokers).create_with_context(ProducedOffsets::default()).unwrap();
        Self { cluster, pipeline, partitions, brokers: brokers.to_owned(), producer, _dir: dir }
    }

    pub fn stores(&self) -> KafkaStores {
        KafkaStores::new(self.cluster.clone(), vec![self.pipeline.clone()])
    }

    pub fn open(&self, options: StoreOptions) -> KafkaEngine {
        let mut engine = self.stores().engine(&self.pipeline.name, options).expect("the pipeline opens");
        engine.commit_every(Duration::from_millis(5));
        engine
    }

    /// Opens the engine and waits until it has read everything there is.
    pub fn open_caught_up(&self, options: StoreOptions) -> KafkaEngine {
        let mut engine = self.open(options);
        let mut events = Vec::new();
        wait("it reads everything there is", || {
            engine.poll(&mut events).expect("polling works");
            engine.has_caught_up()
        });
        engine
    }

    /// Writes messages to the source. Returns their positions.
    pub fn produce(&self, messages: &[Message]) -> Vec<(i32, i64)> {
        self.produce_by(&self.producer, messages)
    }

    pub fn produce_by(
        &self,
        producer: &BaseProducer<ProducedOffsets>,
        messages: &[Message],
    ) -> Vec<(i32, i64)> {
        for (at, message) in messages.iter().enumerate() {
            let mut headers = OwnedHeaders::new();
            for (key, value) in message.headers() {
                headers = headers.insert(Header { key, value: Some(value) });
            }
            let partition = match message.key() {
                Some(key) => key.iter().map(|byte| i32::from(*byte)).sum::<i32>() % self.partitions,
                None => i32::try_from(at).unwrap() % self.partitions,
            };
            let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&self.pipeline.source, at)
                .partition(partition)
                .headers(headers)
                .timestamp(message.created().as_millis().cast_signed());
            record.key = message.key();
            record.payload = message.payload();
            producer.send(record).map_err(|(error, _)| error).expect("there is room");
        }
        let mut places = Vec::new();
        wait("the broker takes the records", || {
            producer.poll(Duration::from_millis(1));
            places.append(&mut producer.context().0.lock().unwrap());
            places.len() == messages.len()
        });
        places.sort_unstable();
        places.into_iter().map(|(_, partition, offset)| (partition, offset)).collect()
    }
}

/// Writes copies as another process would, and waits until they are in the topic. `from` is the record that they
/// replace, `topic/partition/offset`.
pub fn write_copies(topic: &str, from: &str, copies: &[CopyRecord]) {
    let from = Origin::parse(from);
    let producer: BaseProducer<ProducedOffsets> =
        client().create_with_context(ProducedOffsets::default()).unwrap();
    for copy in copies {
        let record = || {
            let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(topic, 0)
                .partition(copy.origin.partition)
                .headers(headers(copy, from.as_ref()));
            record.key = copy.message.key();
            record.payload = copy.message.payload();
            record
        };
        while producer.send(record()).is_err() {
            producer.poll(Duration::from_millis(10));
        }
    }
    producer.flush(LIMIT).expect("the broker takes them");
}

pub fn client() -> ClientConfig {
    client_at(&brokers())
}

pub fn client_at(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("linger.ms", "0").set("acks", "all");
    config
}

pub fn create(topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    create_at(&brokers(), topic, partitions, settings);
}

/// Creates a topic with the cluster's default number of replicas.
pub fn create_at(brokers: &str, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> = client_at(brokers).create().unwrap();
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
    for (key, value) in settings {
        new = new.set(key, value);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
    let made = runtime.block_on(admin.create_topics([&new], &options)).expect("the broker answers");
    made.into_iter().for_each(|result| drop(result.expect("the topic is made")));
    // The broker knows the topic with a delay.
    wait("the topic is there", || {
        let metadata = admin.inner().fetch_metadata(Some(topic), LIMIT).expect("the broker answers");
        metadata
            .topics()
            .iter()
            .any(|found| found.error().is_none() && i32::try_from(found.partitions().len()) == Ok(partitions))
    });
}

fn rand_suffix() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_micros()
}

/// Builds a message as it is read from the source: with its id in a header.
pub fn message(id: &str) -> redrive_core::message::MessageBuilder {
    Message::builder(id).header(ID, id.to_owned())
}

pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "waited {LIMIT:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Polls until this ticket is durable.
pub fn wait_durable(engine: &mut dyn Engine, ticket: redrive::internal::engine::Ticket) {
    let mut events = Vec::new();
    wait("the batch is durable", || {
        engine.poll(&mut events).expect("polling works");
        let is_it = |event: &Event| event.durable() >= Some(ticket) || *event == Event::DurableAlone(ticket);
        events.iter().any(is_it)
    });
}

fn with_admin<T>(act: impl AsyncFnOnce(&AdminClient<DefaultClientContext>, &AdminOptions) -> T) -> T {
    let admin: AdminClient<DefaultClientContext> = client().create().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
    runtime.block_on(act(&admin, &options))
}

/// Sets the maximum record size of a topic.
pub fn bound_records(topic: &str, bytes: &str) {
    // The change replaces all settings of the topic.
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic))
        .set("retention.ms", "-1")
        .set("retention.bytes", "-1")
        .set("max.message.bytes", bytes);
    let done = with_admin(async |admin, options| admin.alter_configs([&change], options).await);
    done.expect("the broker answers")
        .into_iter()
        .for_each(|result| drop(result.expect("the setting is taken")));
}

/// Makes the broker compress everything in a topic with this codec.
pub fn compress(topic: &str, codec: &str) {
    let last = topic.rsplit('.').next();
    let is_table = matches!(last, Some("state" | "progress" | "control"));
    // The change replaces all settings of the topic.
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic))
        .set("cleanup.policy", if is_table { "compact" } else { "delete" })
        .set("retention.ms", "-1")
        .set("retention.bytes", "-1")
        .set("max.message.bytes", "4000000")
        .set("compression.type", codec);
    let done = with_admin(async |admin, options| admin.alter_configs([&change], options).await);
    done.expect("the broker answers")
        .into_iter()
        .for_each(|result| drop(result.expect("the setting is taken")));
}

/// Removes the records of a partition below `offset`.
pub fn delete_records(topic: &str, partition: i32, offset: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    let done = with_admin(async |admin, options| admin.delete_records(&list, options).await);
    done.expect("the broker removes records");
}

/// Gives a topic more partitions.
pub fn grow(topic: &str, partitions: usize) {
    let more = rdkafka::admin::NewPartitions::new(topic, partitions);
    let done = with_admin(async |admin, options| admin.create_partitions([&more], options).await);
    done.expect("the broker answers").into_iter().for_each(|result| drop(result.expect("the topic grows")));
}

/// Commits an offset for a group as Kafka's own tools do: without a note.
pub fn commit_as(group: &str, brokers: &str, topic: &str, partition: i32, offset: i64) {
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
    let consumer: BaseConsumer = client_at(brokers).set("group.id", group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    // Retry, because static members stay in the group for a while.
    wait("the group takes the offset", || consumer.commit(&list, CommitMode::Sync).is_ok());
}
