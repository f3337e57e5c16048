//! A topic that was given more partitions: the tiers follow, and a member that owns too few partitions rejoins. With
//! key order nothing is delivered until an operator has decided.

use std::collections::HashMap;
use std::sync::Arc;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::metadata::MetadataTopic;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::commit::progress::CommitNote;
use crate::consume::callbacks::ConsumerCallbacks;
use crate::consume::plan::{ASK_MAX, AssignFault, ReadPlan};
use crate::options::TopicsMode;
use crate::topics::LaneKind;
use crate::topics::scan;
use crate::topics::{self, TopicsFault, Uneven};

/// Returns how many partitions the topics have. If the source has grown, the tiers are enlarged first. With key order
/// that is refused: the retries of a key would wait in another partition than its new messages, perhaps at another
/// member.
pub fn follow(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    plan: &ReadPlan,
) -> Result<HashMap<Arc<str>, i32>, AssignFault> {
    let counts = partition_counts(consumer)?;
    let of_source = counts.get(&plan.source).copied().unwrap_or(0);
    let tiers = plan.topics.iter().filter(|(_, kind)| **kind != LaneKind::Source);
    let mut counted = tiers.filter_map(|(topic, _)| Some((topic, *counts.get(topic)?)));
    if plan.ordered {
        let uneven = counted.find(|(_, count)| *count != of_source);
        let Some((tier, of_tier)) = uneven else { return Ok(counts) };
        let (source, tier) = (plan.source.to_string(), tier.to_string());
        let uneven = Uneven { source, of_source, tier, of_tier };
        return Err(TopicsFault::Uneven(uneven).into());
    }
    let Some((tier, _)) = counted.find(|(_, count)| *count < of_source) else { return Ok(counts) };
    if plan.cluster.topics == TopicsMode::Create {
        tracing::warn!(source = %plan.source, of_source, "the source has grown; its tiers grow too");
        topics::prepare(&plan.cluster, &plan.description, TopicsMode::Create)?;
        return Ok(partition_counts(consumer)?);
    }
    tracing::warn!(
        source = %plan.source, of_source, %tier,
        "the source has grown and the tiers have not; they are shared by more partitions. `redrive check --kafka` shows how \
         to make them larger"
    );
    Ok(counts)
}

fn partition_counts(
    consumer: &BaseConsumer<ConsumerCallbacks>,
) -> Result<HashMap<Arc<str>, i32>, KafkaError> {
    let metadata = consumer.fetch_metadata(None, ASK_MAX)?;
    Ok(metadata
        .topics()
        .iter()
        .map(|topic| (Arc::from(topic.name()), i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX)))
        .collect())
}

/// Whether a topic has partitions that were never assigned to any member. A returning static member gets its old
/// assignment, even if topics have grown since. The owner of a partition commits where it begins, so one without a
/// committed offset has no owner.
pub fn has_orphans(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    plan: &ReadPlan,
    assigned: &TopicPartitionList,
) -> Result<bool, KafkaError> {
    if plan.cluster.member.is_none() {
        return Ok(false);
    }
    for topic in plan.topics.keys() {
        let committed = committed_of(consumer, topic)?;
        let nobodys = |place: &Committed| {
            place.note.is_none() && assigned.find_partition(topic, place.partition).is_none()
        };
        if committed.iter().any(|place| place.note.is_some()) && committed.iter().any(nobodys) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Counts the messages that wait in the tiers when the first record of a new source partition is about to be delivered:
/// their keys may map to other partitions from now on. Only the member that begins the first of the new partitions
/// counts them.
pub fn overtaken(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    plan: &ReadPlan,
    assigned: &TopicPartitionList,
) -> Result<u64, KafkaError> {
    if !plan.ordered || !plan.topics.contains_key(&plan.source) {
        return Ok(0);
    }
    let sources = committed_of(consumer, &plan.source)?;
    let first_new = sources.iter().find(|place| place.note.is_none());
    let begins = first_new.is_some_and(|new| assigned.find_partition(&plan.source, new.partition).is_some());
    if !begins || sources.iter().all(|place| place.note.is_none()) {
        return Ok(0);
    }
    let mut waiting = 0;
    for topic in plan.topics.iter().filter(|(_, kind)| **kind != LaneKind::Source).map(|(topic, _)| topic) {
        for place in committed_of(consumer, topic)? {
            let Some((offset, note)) = place.note else { continue };
            let (_, end) = consumer.fetch_watermarks(topic, place.partition, ASK_MAX)?;
            let done: u64 = note.runs.iter().map(|(_, count)| *count).sum();
            waiting += (end.max(0) as u64).saturating_sub(offset).saturating_sub(done);
        }
    }
    Ok(waiting)
}

/// A partition, and what the group has committed for it.
struct Committed {
    partition: i32,
    note: Option<(u64, CommitNote)>,
}

/// Whether the group has committed anything for a topic.
pub fn any_committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
) -> Result<bool, KafkaError> {
    Ok(committed_of(consumer, topic)?.iter().any(|place| place.note.is_some()))
}

fn committed_of<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
) -> Result<Vec<Committed>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), ASK_MAX)?;
    let mut all = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(MetadataTopic::partitions) {
        all.add_partition(topic, partition.id());
    }
    if all.count() == 0 {
        return Ok(Vec::new());
    }
    let committed = scan::committed(consumer, &all)?;
    let read = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
        let Offset::Offset(offset) = element.offset() else { return None };
        let offset = offset.max(0) as u64;
        Some((offset, CommitNote::read(element.metadata(), offset)))
    };
    let mut places: Vec<_> = committed
        .elements()
        .iter()
        .map(|element| Committed { partition: element.partition(), note: read(element) })
        .collect();
    places.sort_by_key(|place| place.partition);
    Ok(places)
}
