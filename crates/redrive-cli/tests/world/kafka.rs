//! The real Kafka that `scripts/kafka.sh` starts: separate topics for each test, producing and reading records.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

const LIMIT: Duration = super::PATIENCE;

/// `host:port` of the broker.
pub fn address() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kafka/address");
    let address = std::env::var("REDRIVE_TEST_KAFKA").or_else(|_| std::fs::read_to_string(file));
    let address = address.expect("no Kafka: run `make kafka-up`, or set REDRIVE_TEST_KAFKA=host:port");
    address.trim().to_owned()
}

/// The lines of `[engine]` for a member of a group on this broker; topics are created.
pub fn engine(group: &str, member: &str) -> String {
    format!("{}\nmember  = \"{member}\"", engine_at(&address(), group, "create"))
}

/// The same for a member without a name, on another broker.
pub fn engine_at(address: &str, group: &str, topics: &str) -> String {
    format!(
        r#"kind    = "kafka"
brokers = ["{address}"]
group   = "{group}"
start   = "earliest"
topics  = "{topics}""#
    )
}

/// A name that no other test uses, nor an earlier run of this one.
pub fn name(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!(
        "{prefix}-{}-{}",
        since.as_millis(),
        COUNT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 100
    )
}

fn config() -> ClientConfig {
    config_of(&address())
}

fn config_of(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address);
    config
}

/// Creates a topic and waits until the broker knows it.
pub fn create(topic: &str, partitions: i32) {
    create_at(&address(), topic, partitions);
}

/// The same on another broker.
pub fn create_at(address: &str, topic: &str, partitions: i32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let admin: AdminClient<DefaultClientContext> = config_of(address).create().unwrap();
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let made = runtime.block_on(admin.create_topics([&new], &AdminOptions::new())).unwrap();
    made.into_iter().for_each(|result| drop(result.unwrap()));
    let until = Instant::now() + LIMIT;
    while partitions_at(address, topic) != partitions {
        assert!(Instant::now() < until, "{topic} is not known");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn partitions(topic: &str) -> i32 {
    partitions_at(&address(), topic)
}

fn partitions_at(address: &str, topic: &str) -> i32 {
    let consumer: BaseConsumer = config_of(address).create().unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), LIMIT).unwrap();
    metadata.topics().first().map_or(0, |topic| i32::try_from(topic.partitions().len()).unwrap())
}

/// Produces records with a key and a payload, partitioned by key.
pub fn produce(topic: &str, records: impl IntoIterator<Item = (String, String)>) {
    produce_at(&address(), topic, records);
}

/// The same on another broker.
pub fn produce_at(address: &str, topic: &str, records: impl IntoIterator<Item = (String, String)>) {
    let producer: BaseProducer = config_of(address).set("enable.idempotence", "true").create().unwrap();
    for (key, payload) in records {
        producer.send(BaseRecord::to(topic).key(&key).payload(&payload)).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
}

/// The same with a timestamp for each, in milliseconds since 1970.
pub fn produce_dated(topic: &str, records: impl IntoIterator<Item = (i64, String)>) {
    let producer: BaseProducer = config().set("enable.idempotence", "true").create().unwrap();
    for (at, payload) in records {
        let record = BaseRecord::to(topic).key("c-1").payload(&payload).timestamp(at);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
}

/// A record as another framework writes it.
pub struct Raw {
    pub partition: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Produces records with headers, each to its partition.
pub fn produce_raw(topic: &str, records: impl IntoIterator<Item = Raw>) {
    let producer: BaseProducer = config().set("enable.idempotence", "true").create().unwrap();
    for raw in records {
        let headers = raw.headers.iter().fold(OwnedHeaders::new(), |headers, (name, value)| {
            headers.insert(Header { key: name, value: Some(value) })
        });
        let mut record = BaseRecord::<[u8], [u8]>::to(topic).partition(raw.partition).headers(headers);
        record.key = raw.key.as_deref();
        record.payload = raw.value.as_deref();
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
}

/// Deletes the records of a partition before this offset, as retention does.
pub fn delete_before(topic: &str, partition: i32, offset: i64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let admin: AdminClient<DefaultClientContext> = config().create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    let deleted = runtime.block_on(admin.delete_records(&list, &AdminOptions::new())).unwrap();
    deleted.elements().iter().for_each(|place| place.error().unwrap());
}

/// Whether a group has committed anything for a topic.
pub fn has_committed(group: &str, topic: &str) -> bool {
    let consumer: BaseConsumer = config().set("group.id", group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, 0);
    let committed = consumer.committed_offsets(list, LIMIT).unwrap();
    committed.elements().iter().any(|place| place.offset() != Offset::Invalid)
}

/// Commits for a foreign consumer group that has read some of the topic.
pub fn commit_as(group: &str, topic: &str) {
    let consumer: BaseConsumer = config().set("group.id", group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(0)).unwrap();
    consumer.commit(&list, CommitMode::Sync).unwrap();
}

/// Reads every committed record of a topic, from its beginning to its end.
pub fn read(topic: &str, mut each: impl FnMut(&BorrowedMessage<'_>)) {
    let consumer: BaseConsumer = config()
        .set("group.id", "tests")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let mut left = partitions(topic);
    let mut list = TopicPartitionList::new();
    for partition in 0..left {
        list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    let until = Instant::now() + LIMIT;
    while left > 0 {
        assert!(Instant::now() < until, "{topic} was not read to its end");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(record)) => each(&record),
            Some(Err(KafkaError::PartitionEOF(_))) => left -= 1,
            Some(Err(error)) => panic!("{topic}: {error}"),
            None => {}
        }
    }
}

/// Follows a topic from its beginning until dropped, so that records that are deleted soon are not missed.
pub struct TopicFollower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TopicFollower {
    /// Calls `each` with every committed record.
    pub fn start(topic: &str, mut each: impl FnMut(&BorrowedMessage<'_>) + Send + 'static) -> Self {
        let consumer: BaseConsumer = config()
            .set("group.id", "tests")
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions(topic) {
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // An error is ignored: an unreachable broker comes back.
                if let Some(Ok(record)) = consumer.poll(Duration::from_millis(50)) {
                    each(&record);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for TopicFollower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was already printed.
            let _ = thread.join();
        }
    }
}

/// A header of a record as text.
pub fn header(record: &BorrowedMessage<'_>, name: &str) -> Option<String> {
    let found = record.headers()?.iter().filter(|header| header.key == name).last()?;
    Some(String::from_utf8_lossy(found.value?).into_owned())
}
