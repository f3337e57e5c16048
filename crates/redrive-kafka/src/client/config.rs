//! The librdkafka configuration of each client, and the keys that a user may not change.

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use std::time::Duration;

use crate::Cluster;
use crate::client::build::Build;

/// Keys that a guarantee depends on, each with what to use instead. They are set here and nowhere else.
pub const RESERVED: [(&str, &str); 17] = [
    ("bootstrap.servers", "use `brokers` in [engine]"),
    ("metadata.broker.list", "use `brokers` in [engine]"),
    ("group.id", "use `group` in [engine]"),
    ("group.instance.id", "use `member` in [engine]"),
    ("group.protocol", "Redrive needs the classic protocol: source and tiers go to one member together"),
    (
        "group.remote.assignor",
        "Redrive needs the classic protocol: source and tiers go to one member together",
    ),
    ("partition.assignment.strategy", "it is always range: source and tiers go to one member together"),
    ("enable.auto.commit", "it is always off: an offset is committed once its message is settled"),
    ("enable.auto.offset.store", "it is always off: an offset is committed once its message is settled"),
    ("auto.offset.reset", "use `start` in [engine]; a lost position is an error, never a jump"),
    ("isolation.level", "it is always read_committed: a replay is a transaction"),
    ("enable.partition.eof", "it is set where it is needed"),
    ("acks", "it is always all: a message is settled once its copy is safe"),
    ("request.required.acks", "it is always all: a message is settled once its copy is safe"),
    ("enable.idempotence", "it is always on: a copy is not written twice"),
    ("transactional.id", "it is made from group and pipeline"),
    ("transaction.timeout.ms", "it is always 10 s: a killed replay holds up readers no longer"),
];

/// Keys that only the consumer or only the producer knows. The other would complain about them.
const CONSUMER_ONLY: [&str; 8] = [
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "fetch.",
    "queued.",
    "check.crcs",
    "max.partition.fetch.bytes",
    "client.rack",
];
const PRODUCER_ONLY: [&str; 8] = [
    "linger.ms",
    "batch.",
    "compression.",
    "queue.buffering.",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "retries",
    "request.timeout.ms",
];

/// Session timeout, unless set. It is twice the time that a cluster takes to give up on a broker (9 s), so that a
/// member is not expelled because the coordinator of its group has died.
const SESSION_MS: u64 = 20_000;
/// Poll interval, unless set: librdkafka's own default.
const POLL_INTERVAL_MS: u64 = 300_000;
/// Messages up to this size can be parked, whatever the client's default; the topic's limit decides.
const MESSAGE_BYTES_MAX: &str = "40000000";

/// Reconnects within a second after a broker is back: copies in flight to it should arrive before others have moved on.
const RECONNECT: (&str, &str) = ("reconnect.backoff.max.ms", "1000");
/// A partition that had no leader waits until the metadata is refreshed; the default is five minutes.
const REFRESH: (&str, &str) = ("topic.metadata.refresh.interval.ms", "5000");
/// What the client may fetch ahead per partition, since each partition has a queue of its own. With the defaults of
/// 100,000 records and 64 MB, four partitions that are not read take 400 MB.
const QUEUED_RECORDS: (&str, &str) = ("queued.min.messages", "16384");
const QUEUED_KB: (&str, &str) = ("queued.max.messages.kbytes", "4096");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Consumer,
    Producer,
    Admin,
}

impl Side {
    fn knows(self, key: &str) -> bool {
        let in_list = |list: &[&str]| list.iter().any(|start| key.starts_with(start));
        match self {
            Self::Consumer => !in_list(&PRODUCER_ONLY),
            Self::Producer => !in_list(&CONSUMER_ONLY),
            Self::Admin => !in_list(&CONSUMER_ONLY) && !in_list(&PRODUCER_ONLY),
        }
    }
}

impl Cluster {
    /// Returns how long the group waits for a silent member.
    pub fn session(&self) -> Duration {
        self.span("session.timeout.ms", SESSION_MS)
    }

    /// Returns how long the group waits for a member to give up its partitions.
    pub fn poll_interval(&self) -> Duration {
        self.span("max.poll.interval.ms", POLL_INTERVAL_MS)
    }

    fn span(&self, key: &str, default_ms: u64) -> Duration {
        let set = self.passed_on.iter().rev().find(|(name, _)| name == key);
        Duration::from_millis(set.and_then(|(_, value)| value.parse().ok()).unwrap_or(default_ms))
    }

    /// Returns the name by which people know this process: its member name, or its client id.
    pub fn process_name(&self) -> String {
        let client = self.passed_on.iter().rev().find(|(name, _)| name == "client.id");
        let client = client.map(|(_, value)| value.splitn(4, '_').last().unwrap_or(value));
        self.member.as_deref().or(client).unwrap_or("redrive").to_owned()
    }

    /// Returns the first broker, for commands that people copy.
    pub fn bootstrap(&self) -> &str {
        self.brokers.first().map_or("localhost:9092", String::as_str)
    }

    /// Configures a client that reads source, tiers and replays of a pipeline as a member of the group.
    pub fn consumer(&self, pipeline: &str) -> ClientConfig {
        let mut config = self.config(
            Side::Consumer,
            pipeline,
            &[
                ("session.timeout.ms", &SESSION_MS.to_string()),
                ("heartbeat.interval.ms", "3000"),
                // With the default of one second, a queue that was full and then drained stays empty for that long.
                ("fetch.queue.backoff.ms", "10"),
                RECONNECT,
                REFRESH,
                // There is one request at a time. One that asks only for the tiers, because the queues of the source
                // are full, must return before those queues have drained.
                ("fetch.wait.max.ms", "100"),
                QUEUED_RECORDS,
                QUEUED_KB,
            ],
        );
        config
            .set("group.id", &self.group)
            .set("partition.assignment.strategy", "range")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed");
        if let Some(member) = &self.member {
            config.set("group.instance.id", format!("{member}-{pipeline}"));
        }
        config
    }

    /// Configures a client that writes copies.
    pub fn producer(&self) -> ClientConfig {
        let mut config = self.config(
            Side::Producer,
            "copies",
            &[
                ("linger.ms", "5"),
                RECONNECT,
                REFRESH,
                ("compression.type", "lz4"),
                // A producer that gets nothing through for this long is replaced, and its records are sent again.
                ("delivery.timeout.ms", "30000"),
                ("queue.buffering.max.kbytes", "262144"),
            ],
        );
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.max.bytes", MESSAGE_BYTES_MAX);
        config
    }

    /// Configures a client that requeues letters in transactions. A second one of the same pipeline fences the first.
    pub fn replayer(&self, pipeline: &str) -> ClientConfig {
        let mut config = self.producer();
        config
            .set("transactional.id", format!("redrive-replay-{}-{pipeline}", self.group))
            .set("transaction.timeout.ms", "10000")
            // A record is of no use once its transaction is over.
            .set("delivery.timeout.ms", "10000");
        config
    }

    /// Configures a client that reads whole topics outside the group: it is assigned its partitions by hand, commits
    /// nothing, and is told about the end of each partition.
    pub fn reader(&self) -> ClientConfig {
        let mut config = self.config(
            Side::Consumer,
            "reader",
            &[("fetch.queue.backoff.ms", "10"), RECONNECT, REFRESH, QUEUED_RECORDS, QUEUED_KB],
        );
        config
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true");
        config
    }

    /// Configures a client that queries topics and groups, and creates topics.
    pub fn admin(&self) -> ClientConfig {
        self.config(Side::Admin, "admin", &[])
    }

    /// Builds a configuration. The user's settings replace `defaults`, but nothing that is set afterwards.
    fn config(&self, side: Side, part: &str, defaults: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Warning);
        for (key, value) in defaults {
            config.set(*key, *value);
        }
        for (key, value) in &self.passed_on {
            if side.knows(key) && reserved(key).is_none() {
                config.set(key, value);
            }
        }
        let client = config.get("client.id").unwrap_or("redrive").to_owned();
        config.set("client.id", format!("{client}_{part}"));
        config.set("bootstrap.servers", self.brokers.join(","));
        config
    }

    /// Returns the faults of the user's settings, each with its key and without its value, which may be a secret.
    pub fn passed_on_faults(&self) -> Vec<(String, Refusal)> {
        let fault = |(key, value): &(String, String)| Some((key.clone(), fault_of(key, value)?));
        self.passed_on.iter().filter_map(fault).collect()
    }
}

/// Why a setting cannot be passed on to librdkafka. Never contains the value: it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub problem: String,
    /// Empty if the problem text implies it.
    pub fix: String,
}

impl Refusal {
    fn plain(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), fix: String::new() }
    }
}

/// Why a key cannot be passed on. Connects to nothing.
pub fn fault_of(key: &str, value: &str) -> Option<Refusal> {
    let build = Build::of_this();
    reserved(key)
        .map(Refusal::plain)
        .or_else(|| build.lacks(key, value).map(|(problem, fix)| Refusal { problem, fix }))
        .or_else(|| refused(key, value).map(Refusal::plain))
}

fn reserved(key: &str) -> Option<&'static str> {
    RESERVED.iter().find(|(name, _)| *name == key).map(|(_, instead)| *instead)
}

/// Returns why librdkafka rejects a key, without its value.
fn refused(key: &str, value: &str) -> Option<String> {
    let mut config = ClientConfig::new();
    config.set(key, value);
    match config.create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(_, why, ..)) if value.is_empty() => Some(why),
        Err(KafkaError::ClientConfig(_, why, ..)) => Some(why.replace(value, "…")),
        Err(_) => Some("librdkafka does not take it".to_owned()),
    }
}
