//! A real Kafka for each test: topics of its own on the broker that `scripts/kafka.sh` starts.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use redrive_kafka::{Cluster, GroupStart, KafkaPipeline, Only, TopicsMode};

/// Returns `host:port` of the broker.
pub fn address() -> String {
    let file = repository().join("target/kafka/address");
    let address = std::env::var("REDRIVE_TEST_KAFKA").or_else(|_| std::fs::read_to_string(file));
    let address = address.expect("no Kafka: run `make kafka-up`, or set REDRIVE_TEST_KAFKA=host:port");
    address.trim().to_owned()
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a name that no other test or earlier run uses.
pub fn name(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").subsec_nanos();
    format!("{prefix}-{}-{nanos}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the cluster, with a group of its own.
pub fn cluster(state_dir: &Path) -> Cluster {
    Cluster {
        brokers: vec![address()],
        group: name("group"),
        member: None,
        start: Some(GroupStart::Earliest),
        topics: TopicsMode::Create,
        state_dir: state_dir.to_owned(),
        passed_on: Vec::new(),
    }
}

pub fn pipeline(name: &str) -> KafkaPipeline {
    KafkaPipeline {
        name: name.to_owned(),
        source: name.to_owned(),
        tiers: vec![Duration::from_secs(1), Duration::from_secs(5)],
        id: None,
        tenant: None,
        ttl: None,
        blocking: false,
        only: Only::Everything,
        subscriptions: false,
    }
}

pub async fn create(cluster: &Cluster, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> = cluster.admin().create().expect("an admin client");
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
    let made = admin.create_topics([&new], &options).await.expect("the broker answers");
    made.into_iter().for_each(|result| drop(result.expect("the topic is made")));
}

/// Runs one of Kafka's own tools by `scripts/kafka.sh run`. `line` is what a person would type.
pub fn run_tool(line: &str) -> String {
    let line = line.replace("\\\n", " ");
    let output = Command::new(repository().join("scripts/kafka.sh"))
        .arg("run")
        .args(line.split_whitespace())
        .output()
        .expect("scripts/kafka.sh runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {text}");
    text
}
