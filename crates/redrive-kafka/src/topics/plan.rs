//! What a topic must be like, the command that makes it so, and what the cluster must allow.

use super::{TopicFacts, Topics};
use crate::{Cluster, KafkaPipeline};

/// Room for our headers beyond what the source allows for a record.
const HEADER_ROOM_BYTES: i64 = 128 * 1024;

/// What a topic of the pipeline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Tier,
    Replay,
    Letters,
    LetterStates,
    Progress,
    Control,
}

impl Role {
    /// Tables of keys and their latest values; the others are logs that must keep everything.
    pub const fn is_compacted(self) -> bool {
        matches!(self, Self::LetterStates | Self::Progress | Self::Control)
    }
}

/// A topic as it must be: as safe as the source, with room for our headers, and nothing in it expires.
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
            // What is being written to is never compacted, so it must not be all there is.
            settings.push(("segment.bytes", "16777216".to_owned()));
            settings.push(("segment.ms", "3600000".to_owned()));
            settings.push(("delete.retention.ms", "3600000".to_owned()));
        } else {
            settings.push(("cleanup.policy", "delete".to_owned()));
            settings.push(("retention.ms", "-1".to_owned()));
            settings.push(("retention.bytes", "-1".to_owned()));
            settings.push(("max.message.bytes", (source.max_message_bytes + HEADER_ROOM_BYTES).to_string()));
        }
        // As we write it: what the cluster makes of it by default may be something that a reader does not know.
        settings.push(("compression.type", "producer".to_owned()));
        settings.push(("min.insync.replicas", source.min_insync.to_string()));
        Self {
            role,
            name: name.to_owned(),
            partitions: if role == Role::Control { 1 } else { source.partitions },
            replication: source.replication,
            settings,
        }
    }

    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }

    /// The command that makes it, to be copied as it stands.
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

/// What the cluster must allow, as lines for people: `read orders, orders.retry.* …`.
pub fn acls(cluster: &Cluster, pipeline: &KafkaPipeline) -> Vec<String> {
    let Topics { source, replay, dlq, dlq_state, progress, control, .. } = Topics::of(pipeline);
    let (name, group) = (&pipeline.name, &cluster.group);
    vec![
        format!(
            "read      topic {source}, prefix {name}.retry., topics {replay}, {dlq}, {dlq_state}, {progress}, {control}"
        ),
        format!("write     prefix {name}.retry., topics {replay}, {dlq}, {dlq_state}, {progress}, {control}"),
        format!(
            "describe, describe configs   the same topics; cluster: idempotent write (brokers before 3.0)"
        ),
        format!("read      group {group}"),
        format!("write     transactional id redrive-replay-{group}-{name}"),
        format!(
            "delete    prefix {name}.retry., topics {replay}, {dlq}   (what is done is cut off; optional)"
        ),
        format!("create    the same topics, only with topics = \"create\""),
    ]
}
