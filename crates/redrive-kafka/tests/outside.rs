//! Queries from outside the engine: spans, records, members; and trimming of finished records.

mod broker;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use broker::{cluster, create, name, pipeline};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Message as _, Offset, TopicPartitionList};
use redrive_kafka::group::members::members;
use redrive_kafka::letters::other_groups;
use redrive_kafka::topics::prepare;
use redrive_kafka::topics::scan::Scan;
use redrive_kafka::topics::trim::trim;
use redrive_kafka::{Cluster, TopicsMode};

fn produce(cluster: &Cluster, topic: &str, partition: i32, count: u32) {
    let producer: BaseProducer = cluster.producer().create().unwrap();
    for number in 0..count {
        let payload = number.to_string();
        let record = BaseRecord::<(), str>::to(topic).partition(partition).payload(&payload);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

fn commit(cluster: &Cluster, topic: &str, partition: i32, offset: i64) {
    let consumer: BaseConsumer = cluster.reader().create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    consumer.commit(&list, CommitMode::Sync).unwrap();
}

#[tokio::test]
async fn records_are_read_from_where_one_says_to_the_end_that_was_known() {
    let cluster = cluster(&std::env::temp_dir());
    let topic = name("orders");
    create(&cluster, &topic, 3, &[]).await;
    produce(&cluster, &topic, 0, 10);
    produce(&cluster, &topic, 2, 5);
    commit(&cluster, &topic, 0, 4);
    let scan = Scan::new(&cluster).unwrap();
    let spans = scan.spans(&topic).unwrap();
    let facts: Vec<_> = spans.iter().map(|span| (span.low, span.end, span.committed, span.lag())).collect();
    assert_eq!(facts, [(0, 10, Some(4), 6), (0, 0, None, 0), (0, 5, None, 5)]);
    // Records written later are not read.
    produce(&cluster, &topic, 2, 5);
    let mut seen = Vec::new();
    let read = scan
        .read(
            &spans,
            |span| span.committed.unwrap_or(span.low),
            |record| seen.push((record.partition(), record.offset())),
        )
        .unwrap();
    seen.sort_unstable();
    assert_eq!(read, 11);
    assert_eq!(seen, (4..10).map(|at| (0, at)).chain((0..5).map(|at| (2, at))).collect::<Vec<_>>());
    assert_eq!(scan.spans("no-such-topic").unwrap(), []);
    assert_eq!(members(&cluster).unwrap().1, []);
}

#[tokio::test]
async fn what_is_done_is_cut_off_the_tiers_and_nothing_else() {
    let cluster = cluster(&std::env::temp_dir());
    let orders = pipeline(&name("orders"));
    create(&cluster, &orders.source, 2, &[]).await;
    let topics = prepare(&cluster, &orders, TopicsMode::Create).unwrap();
    let (tier, waiting) = (&topics.tiers[0].1, &topics.tiers[1].1);
    for topic in [&topics.source, tier, waiting, &topics.dlq, &topics.replay] {
        produce(&cluster, topic, 1, 10);
    }
    for topic in [&topics.source, tier, &topics.dlq] {
        commit(&cluster, topic, 1, 6);
    }
    assert_eq!(trim(&cluster, &topics).unwrap(), 1);
    let low = |topic: &str| Scan::new(&cluster).unwrap().spans(topic).unwrap()[1].low;
    assert_eq!(
        [low(tier), low(waiting), low(&topics.replay)],
        [6, 0, 0],
        "nothing is known to be done there"
    );
    assert_eq!([low(&topics.source), low(&topics.dlq)], [0, 0], "not ours to cut");
    assert_eq!(trim(&cluster, &topics).unwrap(), 0, "once is enough");
}

/// A consumer of a share group, run by Kafka's own tool. It is killed when this is dropped.
struct ShareConsumer(Child);

impl ShareConsumer {
    fn start(brokers: &str, topic: &str, group: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka.sh");
        let mut command = Command::new(script);
        command.args(["run", "kafka-console-share-consumer.sh", "--bootstrap-server", brokers]);
        command.args(["--topic", topic, "--group", group]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for ShareConsumer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A share group's offsets cannot be queried, so it is listed whatever it reads.
#[tokio::test]
async fn a_share_group_is_among_those_that_may_read_the_source() {
    let cluster = cluster(&std::env::temp_dir());
    let (topic, group) = (name("orders"), name("sharing"));
    create(&cluster, &topic, 1, &[]).await;
    let _consumer = ShareConsumer::start(&cluster.brokers.join(","), &topic, &group);
    let begun = Instant::now();
    loop {
        // A coordinator that is still loading its groups returns an error; ask again then.
        let groups = other_groups(&cluster, &topic).unwrap_or_default();
        if groups.iter().any(|found| found.starts_with(&format!("{group} (a share group"))) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_mins(2), "{group} is not among {groups:?}");
        std::thread::sleep(Duration::from_millis(250));
    }
}
