//! Which other groups read a topic; to be checked before letters are replayed to it.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use redrive::internal::engine::EngineError;

use super::mirror::partitions_in;
use crate::Cluster;
use crate::topics::scan;

const WAIT: Duration = Duration::from_secs(10);

/// Returns the groups besides our own that read `topic`, ordered by name: those that have committed an offset for it,
/// even if they have no members now, those with a member that has subscribed to it, and all share groups. A consumer
/// without a group cannot be seen.
pub fn other_groups(cluster: &Cluster, topic: &str) -> Result<Vec<String>, EngineError> {
    let failed = |error: KafkaError| {
        EngineError::Unavailable(format!("the consumer groups of `{topic}` cannot be listed: {error}"))
    };
    let consumer: BaseConsumer = cluster.reader().create().map_err(failed)?;
    let metadata = consumer.fetch_metadata(Some(topic), WAIT).map_err(failed)?;
    let partitions = partitions_in(&metadata);
    let list = consumer.fetch_group_list(None, WAIT).map_err(failed)?;
    let mut found = Vec::new();
    for group in list.groups() {
        if group.name() == cluster.group {
            continue;
        }
        let subscribed =
            group.members().iter().any(|member| member.metadata().is_some_and(|bytes| names(bytes, topic)));
        if subscribed || has_committed(cluster, group.name(), topic, partitions).map_err(failed)? {
            found.push(group.name().to_owned());
        } else if is_of_another_kind(group.protocol_type(), group.state()) {
            let kind = "a share group, or of another kind that this client cannot describe";
            found.push(format!("{} ({kind}; which topics it reads cannot be seen)", group.name()));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Whether a group is not a classic one. A broker lists share groups, but describes them as dead to a client that asks
/// for classic groups; dead classic groups are not listed.
fn is_of_another_kind(protocol_type: &str, state: &str) -> bool {
    protocol_type == "share" || state == "Dead"
}

/// Queries the offsets as the group itself would, without joining it.
fn has_committed(cluster: &Cluster, group: &str, topic: &str, partitions: i32) -> Result<bool, KafkaError> {
    let mut config = cluster.reader();
    config.set("group.id", group);
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition(topic, partition);
    }
    let committed = scan::committed(&consumer, &list)?;
    Ok(committed.elements().iter().any(|element| matches!(element.offset(), Offset::Offset(_))))
}

/// Whether a member's subscription (a version, then topic names) contains this topic. `false` if its format is unknown.
fn names(subscription: &[u8], topic: &str) -> bool {
    let mut rest = subscription.get(2..).unwrap_or_default();
    let mut take = |len: usize| {
        let (part, after) = rest.split_at_checked(len)?;
        rest = after;
        Some(part)
    };
    let Some(count) = take(4).and_then(|count| count.try_into().ok()).map(i32::from_be_bytes) else {
        return false;
    };
    for _ in 0..count {
        let Some(len) = take(2).map(|len| u16::from_be_bytes([len[0], len[1]])) else { return false };
        match take(usize::from(len)) {
            Some(name) if name == topic.as_bytes() => return true,
            Some(_) => {}
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_subscription_names_its_topics() {
        let subscription = b"\0\x03\0\0\0\x02\0\x06orders\0\x04push\xff\xff\xff\xff";
        assert!(names(subscription, "orders") && names(subscription, "push"));
        assert!(!names(subscription, "order") && !names(subscription, "mail"));
        for len in 0..subscription.len() {
            names(&subscription[..len], "mail");
        }
    }
}
