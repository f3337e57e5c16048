//! The requirements for a topic, the command that creates it, and the permissions that the cluster must grant.

use redrive_core::message::limits;

use super::names::{Role, Topics};
use crate::{Cluster, KafkaPipeline, TopicsMode};

/// Room for our headers beyond those of the message itself.
const HEADER_ROOM_BYTES: i64 = 128 * 1024;
/// The largest record that we ever write: the largest possible message with our headers. The source's own limit is no
/// bound, since it applies to the compressed batch, and a producer may compress better than we do.
const RECORD_BYTES_MAX: i64 =
    (limits::PAYLOAD_BYTES_MAX + limits::HEADERS_BYTES_MAX + limits::KEY_BYTES_MAX + limits::ID_BYTES_MAX)
        .cast_signed() as i64
        + HEADER_ROOM_BYTES;

/// An existing topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFacts {
    pub name: String,
    pub partitions: i32,
    /// Replicas of the partition that has the fewest.
    pub replication: i32,
    pub min_insync: i32,
    /// Negative: forever.
    pub retention_ms: i64,
    /// Per partition; negative: unbounded.
    pub retention_bytes: i64,
    pub max_message_bytes: i64,
    pub cleanup: String,
    /// `producer` keeps the producer's compression.
    pub compression: String,
    /// Whether the settings could be read. If not, they are Kafka's defaults here, which must not be relied on.
    pub settings_known: bool,
}

/// A topic as required: as safe as the source, with room for any message and our headers, and without expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub role: Role,
    pub name: String,
    pub partitions: i32,
    pub replication: i32,
    pub settings: Vec<(&'static str, String)>,
}

impl Planned {
    pub fn new(role: Role, name: &str, source: &TopicFacts) -> Self {
        let mut settings = vec![];
        if role.is_compacted() {
            settings.push(("cleanup.policy", "compact".to_owned()));
            settings.push(("min.cleanable.dirty.ratio", "0.1".to_owned()));
            // The active segment is never compacted, so it must not be the only one.
            settings.push(("segment.bytes", "16777216".to_owned()));
            settings.push(("segment.ms", "3600000".to_owned()));
            settings.push(("delete.retention.ms", "3600000".to_owned()));
        } else {
            settings.push(("cleanup.policy", "delete".to_owned()));
            settings.push(("retention.ms", "-1".to_owned()));
            settings.push(("retention.bytes", "-1".to_owned()));
            let bytes = RECORD_BYTES_MAX.max(record_bytes_min(source));
            settings.push(("max.message.bytes", bytes.to_string()));
        }
        // Keep our compression: the cluster's default may be a codec that a reader does not know.
        settings.push(("compression.type", "producer".to_owned()));
        if source.settings_known {
            settings.push(("min.insync.replicas", source.min_insync.to_string()));
        }
        Self {
            role,
            name: name.to_owned(),
            partitions: if role.has_one_partition() { 1 } else { source.partitions },
            replication: source.replication,
            settings,
        }
    }

    /// The same topic for a cluster that forbids such large records, with the least room that is required.
    #[must_use]
    pub(super) fn with_less_room(mut self, source: &TopicFacts) -> Self {
        let room = self.settings.iter_mut().find(|(key, _)| *key == "max.message.bytes");
        if let Some((_, bytes)) = room {
            *bytes = record_bytes_min(source).to_string();
        }
        self
    }

    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the command that creates it, ready to be copied.
    pub fn command(&self, bootstrap: &str) -> String {
        let settings: Vec<_> =
            self.settings.iter().map(|(key, value)| format!("--config {key}={value}")).collect();
        format!(
            "kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {} --partitions {} --replication-factor {} \\\n  {}",
            self.name,
            self.partitions,
            self.replication,
            settings.join(" ")
        )
    }
}

/// Returns the least a topic must accept: a record as large as the source accepts uncompressed, with our headers.
pub(super) fn record_bytes_min(source: &TopicFacts) -> i64 {
    source.max_message_bytes + HEADER_ROOM_BYTES
}

/// Returns the commands that grant a user what a pipeline needs, ready to be copied; the second list is needed only for
/// replays with `--to source`.
pub fn acl_commands(cluster: &Cluster, pipeline: &KafkaPipeline) -> (Vec<String>, Vec<String>) {
    let Topics { source, replay, dlq, dlq_state, progress, control, subscriptions, .. } =
        Topics::of(pipeline);
    let (name, group) = (&pipeline.name, &cluster.group);
    let user = cluster.passed_on.iter().rev().find(|(key, _)| key == "sasl.username");
    let user = user.map_or("NAME", |(_, value)| value.as_str());
    let add = |operations: &[&str], resource: &str| {
        let operations: Vec<_> =
            operations.iter().map(|operation| format!("--operation {operation}")).collect();
        format!(
            "kafka-acls.sh --bootstrap-server {} --add --allow-principal User:{user} {} {resource}",
            cluster.bootstrap(),
            operations.join(" ")
        )
    };
    let all = ["Read", "Write", "Describe", "DescribeConfigs", "Delete"];
    let mut own = all.to_vec();
    if cluster.topics == TopicsMode::Create {
        own.extend(["Create", "Alter"]);
    }
    let topics = [&replay, &dlq, &dlq_state, &progress, &control].into_iter().chain(&subscriptions);
    let topics: Vec<_> = topics.map(|topic| format!("--topic {topic}")).collect();
    let commands = vec![
        add(&["Read", "Describe", "DescribeConfigs"], &format!("--topic {source}")),
        add(&own, &format!("--resource-pattern-type prefixed --topic {name}.retry.")),
        add(&own, &topics.join(" ")),
        add(&["Read", "Describe"], &format!("--group {group}")),
        add(&["Write", "Describe"], &format!("--transactional-id redrive-replay-{group}-{name}")),
    ];
    let to_source = vec![
        add(&["Write"], &format!("--topic {source}")),
        // Other readers of the source are reported before anything is written to it.
        add(&["Describe"], "--group *"),
    ];
    (commands, to_source)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE_BYTES: i64 = 1_048_588;

    fn source() -> TopicFacts {
        TopicFacts {
            name: "orders".to_owned(),
            partitions: 12,
            replication: 3,
            min_insync: 2,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            max_message_bytes: SOURCE_BYTES,
            cleanup: "delete".to_owned(),
            compression: "producer".to_owned(),
            settings_known: true,
        }
    }

    #[test]
    fn where_the_largest_record_is_forbidden_a_topic_takes_the_largest_of_the_source_with_our_headers() {
        let planned = Planned::new(Role::Letters, "orders.DLQ", &source());
        let bytes = |planned: &Planned| planned.setting("max.message.bytes").map(str::to_owned);
        assert_eq!(bytes(&planned), Some(RECORD_BYTES_MAX.to_string()));
        let less = planned.clone().with_less_room(&source());
        assert_eq!(bytes(&less), Some((SOURCE_BYTES + HEADER_ROOM_BYTES).to_string()));
        assert_eq!(bytes(&less), Some(record_bytes_min(&source()).to_string()));
        let others = |planned: &Planned| {
            planned
                .settings
                .iter()
                .filter(|(key, _)| *key != "max.message.bytes")
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(others(&less), others(&planned));
        // A compacted topic has no such setting, and gets none.
        let state = Planned::new(Role::LetterStates, "orders.DLQ.state", &source());
        assert_eq!(state.clone().with_less_room(&source()), state);
    }
}
