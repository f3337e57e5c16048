//! Compares the topics of a pipeline with their requirements.

use std::time::{Duration, Instant};

use rdkafka::admin::{NewPartitions, NewTopic, TopicReplication, TopicResult};
use rdkafka::metadata::Metadata;
use rdkafka::types::RDKafkaErrorCode;

use super::describe::{Admin, connect, describe, hidden, metadata, options, wait};
use super::fault::{Repair, TopicsFault, Uneven, Wrong};
use super::names::Topics;
use super::plan::{Planned, TopicFacts, record_bytes_min};
use crate::client::build::Build;
use crate::{Cluster, KafkaPipeline};

/// How long it may take until a cluster knows new topics.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// The findings about a pipeline's topics.
#[derive(Clone, Debug)]
pub struct Survey {
    pub topics: Topics,
    pub brokers: usize,
    pub source: TopicFacts,
    /// The pipeline's own topics that exist.
    pub found: Vec<TopicFacts>,
    pub missing: Vec<Planned>,
    /// Topics that this user may not see, whether or not they exist.
    pub hidden: Vec<String>,
    /// Topics whose settings this user may not read.
    pub unread: Vec<String>,
    pub wrong: Vec<Wrong>,
    /// The first tier or replay topic with another number of partitions than the source. It stops a pipeline with
    /// ordered keys.
    pub uneven: Option<Uneven>,
    /// Problems that do not stop the pipeline.
    pub warnings: Vec<String>,
}

/// Queries the cluster and changes nothing.
pub fn survey(cluster: &Cluster, pipeline: &KafkaPipeline) -> Result<Survey, TopicsFault> {
    let admin = connect(cluster)?;
    let metadata = metadata(cluster, &admin)?;
    let mut topics = Topics::of(pipeline);
    let mut retired: Vec<_> = metadata
        .topics()
        .iter()
        .map(rdkafka::metadata::MetadataTopic::name)
        .filter(|name| Topics::is_tier_of(&pipeline.name, name))
        .filter(|name| *name != topics.source && topics.tiers.iter().all(|(_, tier)| tier != name))
        .map(str::to_owned)
        .collect();
    retired.sort();
    topics.retired = retired;

    let owned = topics.owned();
    let names: Vec<_> =
        std::iter::once(topics.source.as_str()).chain(owned.iter().map(|(_, name)| *name)).collect();
    let mut facts = describe(cluster, &admin, &metadata, &names)?.into_iter();
    let Some(source) = facts.next().filter(|facts| facts.name == topics.source) else {
        if !hidden(cluster, &[&topics.source])?.is_empty() {
            return Err(TopicsFault::Hidden { topics: vec![topics.source] });
        }
        return Err(TopicsFault::NoSource { topic: topics.source });
    };
    let found: Vec<_> = facts.collect();
    let build = Build::of_this();
    let absent: Vec<&str> = names.iter().filter(|name| !exists(&found, &source, name)).copied().collect();
    let hidden = if absent.is_empty() { Vec::new() } else { hidden(cluster, &absent)? };
    let unread = found.iter().chain([&source]).filter(|facts| !facts.settings_known);
    let unread: Vec<String> = unread.map(|facts| facts.name.clone()).collect();
    let mut missing = Vec::new();
    let readable = found.iter().chain([&source]).filter(|facts| facts.settings_known);
    let mut wrong: Vec<Wrong> = readable.filter_map(|facts| codec_fault(&build, facts)).collect();
    let mut warnings = Vec::new();
    for (role, name) in owned {
        let planned = Planned::new(role, name, &source);
        match found.iter().find(|facts| facts.name == name) {
            None if hidden.iter().any(|hidden| hidden == name) => {}
            None => missing.push(planned),
            Some(facts) => {
                wrong.extend(faults(&planned, facts, &source));
                warnings.extend(little_room(&planned, facts, &source, cluster.bootstrap()));
                if facts.replication < source.replication {
                    warnings.push(format!(
                        "{name} has {} replicas, its source {}: it is lost with fewer brokers",
                        facts.replication, source.replication
                    ));
                }
            }
        }
    }
    for name in &unread {
        warnings.push(format!(
            "the settings of {name} may not be read (DescribeConfigs), so it is unknown whether its records expire"
        ));
    }
    for name in &topics.retired {
        warnings.push(format!(
            "{name} is a retired tier: it is read until it is empty, and nothing is written to it"
        ));
    }
    let uneven = uneven(&topics, &metadata, &source);
    Ok(Survey {
        topics,
        brokers: metadata.brokers().len(),
        source,
        found,
        missing,
        hidden,
        unread,
        wrong,
        uneven,
        warnings,
    })
}

fn exists(found: &[TopicFacts], source: &TopicFacts, name: &str) -> bool {
    source.name == name || found.iter().any(|facts| facts.name == name)
}

/// Returns the first tier, retired tier or replay topic with another number of partitions than the source.
fn uneven(topics: &Topics, metadata: &Metadata, source: &TopicFacts) -> Option<Uneven> {
    let read = topics.tiers.iter().map(|(_, name)| name).chain(&topics.retired).chain([&topics.replay]);
    read.into_iter().find_map(|name| {
        let found = metadata.topics().iter().find(|topic| topic.name() == name)?;
        let of_tier = i32::try_from(found.partitions().len()).unwrap_or(i32::MAX);
        (of_tier != source.partitions && of_tier > 0).then(|| Uneven {
            source: source.name.clone(),
            of_source: source.partitions,
            tier: name.clone(),
            of_tier,
        })
    })
}

/// Reports a topic that this build cannot read. Existing records stay as they are, so the repair helps only new ones.
fn codec_fault(build: &Build, facts: &TopicFacts) -> Option<Wrong> {
    let problem = build.lacks_codec(&facts.compression)?;
    let repair = Repair::Setting("compression.type", "producer".to_owned());
    Some(Wrong { topic: facts.name.clone(), problem, repair })
}

fn faults(planned: &Planned, facts: &TopicFacts, source: &TopicFacts) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let mut fault = |problem: String, repair: Repair| {
        wrong.push(Wrong { topic: facts.name.clone(), problem, repair });
    };
    if facts.partitions < planned.partitions {
        let problem = format!("has {} partitions, its source {}", facts.partitions, planned.partitions);
        fault(problem, Repair::Partitions(planned.partitions));
    }
    if !facts.settings_known {
        return wrong;
    }
    let wanted =
        |key: &'static str| Repair::Setting(key, planned.setting(key).unwrap_or_default().to_owned());
    if planned.role.is_compacted() {
        if facts.cleanup != "compact" {
            let problem = format!("has cleanup.policy={}: states would expire", facts.cleanup);
            fault(problem, wanted("cleanup.policy"));
        }
        return wrong;
    }
    if facts.cleanup != "delete" {
        let problem =
            format!("has cleanup.policy={}: of records with one key only the last would stay", facts.cleanup);
        fault(problem, wanted("cleanup.policy"));
    }
    if facts.retention_ms >= 0 {
        let problem = format!("has retention.ms={}: what waits longer would be lost", facts.retention_ms);
        fault(problem, wanted("retention.ms"));
    }
    if facts.retention_bytes >= 0 {
        let problem = format!("has retention.bytes={}: what is beyond would be lost", facts.retention_bytes);
        fault(problem, wanted("retention.bytes"));
    }
    if source.settings_known && facts.max_message_bytes < record_bytes_min(source) {
        let problem = format!(
            "has max.message.bytes={}: a record as large as the source allows would not fit with its headers",
            facts.max_message_bytes
        );
        fault(problem, wanted("max.message.bytes"));
    }
    wrong
}

/// Warns about a topic that accepts what the source accepts uncompressed, but not everything that a compressed batch
/// may hold: it was created by an earlier version, or in a cluster with a limit of its own. It works, so it is no
/// fault.
fn little_room(
    planned: &Planned,
    facts: &TopicFacts,
    source: &TopicFacts,
    bootstrap: &str,
) -> Option<String> {
    let room: i64 = planned.setting("max.message.bytes")?.parse().ok()?;
    let is_little = facts.max_message_bytes < room;
    let is_wrong = source.settings_known && facts.max_message_bytes < record_bytes_min(source);
    (facts.settings_known && is_little && !is_wrong).then(|| {
        let Planned { name, .. } = planned;
        format!(
            "{name} has max.message.bytes={}: a larger record, which the source may hold in a compressed batch, becomes a \
             truncated letter; kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics \
             --entity-name {name} --add-config max.message.bytes={room}",
            facts.max_message_bytes
        )
    })
}

/// Creates missing topics and extends those that have not grown with their source.
pub(super) fn make(cluster: &Cluster, found: &Survey) -> Result<(), TopicsFault> {
    let admin = connect(cluster)?;
    let grown: Vec<_> = found
        .wrong
        .iter()
        .filter_map(|wrong| match wrong.repair {
            Repair::Partitions(count) => Some(NewPartitions::new(&wrong.topic, count as usize)),
            Repair::Setting(..) => None,
        })
        .collect();
    let mut results = Vec::new();
    if !found.missing.is_empty() {
        let made = create(cluster, &admin, &found.missing)?;
        let (refused, rest): (Vec<_>, Vec<_>) = made.into_iter().partition(is_against_policy);
        results.extend(rest);
        // A managed cluster may allow less than a message can have; the survey warns about that afterwards.
        let again = found.missing.iter().filter(|planned| {
            refused.iter().any(|result| matches!(result, Err((topic, _)) if *topic == planned.name))
        });
        let again: Vec<_> = again.map(|planned| planned.clone().with_less_room(&found.source)).collect();
        if !again.is_empty() {
            results.extend(create(cluster, &admin, &again)?);
        }
    }
    if !grown.is_empty() {
        let made = wait(admin.create_partitions(grown.iter(), &options()));
        results.extend(made.map_err(|error| cluster.unreachable(&error))?);
    }
    for result in results {
        match result {
            // Another process of the group was faster.
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists | RDKafkaErrorCode::InvalidPartitions)) => {}
            Err((topic, code)) => return Err(TopicsFault::NotMade { topic, problem: code.to_string() }),
        }
    }
    settle(cluster, found)
}

fn create(cluster: &Cluster, admin: &Admin, planned: &[Planned]) -> Result<Vec<TopicResult>, TopicsFault> {
    let new: Vec<_> = planned
        .iter()
        .map(|planned| {
            let replication = TopicReplication::Fixed(planned.replication);
            let topic = NewTopic::new(&planned.name, planned.partitions, replication);
            planned.settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
        })
        .collect();
    wait(admin.create_topics(new.iter(), &options())).map_err(|error| cluster.unreachable(&error))
}

fn is_against_policy(result: &TopicResult) -> bool {
    matches!(result, Err((_, RDKafkaErrorCode::PolicyViolation | RDKafkaErrorCode::InvalidConfig)))
}

/// Waits until the whole cluster knows the new topics, which would look missing until then.
fn settle(cluster: &Cluster, found: &Survey) -> Result<(), TopicsFault> {
    let admin = connect(cluster)?;
    let until = Instant::now() + SETTLE_MAX;
    while Instant::now() < until {
        let metadata = metadata(cluster, &admin)?;
        let is_there = |planned: &Planned| {
            metadata.topics().iter().any(|topic| {
                topic.name() == planned.name
                    && topic.partitions().len() >= planned.partitions as usize
                    && topic.partitions().iter().all(|partition| partition.leader() >= 0)
            })
        };
        if found.missing.iter().all(is_there) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
