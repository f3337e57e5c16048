//! The names of the topics of a pipeline, and the kinds of records in those it reads.

use std::time::Duration;

use redrive_core::duration;

use crate::KafkaPipeline;

/// The names of all topics of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    pub source: String,
    /// Shortest delay first.
    pub tiers: Vec<(Duration, String)>,
    /// Tiers of an earlier configuration. They are read until they are no longer needed, and never written.
    pub retired: Vec<String>,
    pub replay: String,
    pub dlq: String,
    pub dlq_state: String,
    pub progress: String,
    /// State that all processes share, in one partition.
    pub control: String,
    /// The subscriptions of a push pipeline, in one partition.
    pub subscriptions: Option<String>,
}

impl Topics {
    /// Derives the names from the configuration; retired tiers are known only to the cluster.
    pub fn of(pipeline: &KafkaPipeline) -> Self {
        let KafkaPipeline { name, source, tiers, .. } = pipeline;
        Self {
            source: source.clone(),
            tiers: tiers
                .iter()
                .map(|delay| (*delay, format!("{name}.retry.{}", duration::print(*delay))))
                .collect(),
            retired: Vec::new(),
            replay: format!("{name}.replay"),
            dlq: format!("{name}.DLQ"),
            dlq_state: format!("{name}.DLQ.state"),
            progress: format!("{name}.progress"),
            control: format!("{name}.control"),
            subscriptions: pipeline.subscriptions.then(|| format!("{name}.subscriptions")),
        }
    }

    /// Returns the topics that the pipeline owns, with their roles.
    pub fn owned(&self) -> Vec<(Role, &str)> {
        let tiers = self.tiers.iter().map(|(_, name)| (Role::Tier, name.as_str()));
        let others = [
            (Role::Replay, self.replay.as_str()),
            (Role::Letters, self.dlq.as_str()),
            (Role::LetterStates, self.dlq_state.as_str()),
            (Role::Progress, self.progress.as_str()),
            (Role::Control, self.control.as_str()),
        ];
        let subscriptions = self.subscriptions.iter().map(|name| (Role::Subscriptions, name.as_str()));
        tiers.chain(others).chain(subscriptions).collect()
    }

    /// Whether `name` can be a tier of the pipeline `pipeline`: `orders.retry.30s`.
    pub fn is_tier_of(pipeline: &str, name: &str) -> bool {
        let delay = name.strip_prefix(pipeline).and_then(|rest| rest.strip_prefix(".retry."));
        delay.is_some_and(|delay| duration::parse(delay).is_ok())
    }
}

/// The kind of records in a topic that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    Source,
    /// Retries that wait for their due time, including those in retired tiers.
    Tier,
    /// Replayed letters.
    Replay,
}

/// The role of a topic in the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Tier,
    Replay,
    Letters,
    LetterStates,
    Progress,
    Control,
    Subscriptions,
}

impl Role {
    /// Whether every process reads the topic as a whole, so that it has one partition whatever the source has.
    pub const fn has_one_partition(self) -> bool {
        matches!(self, Self::Control | Self::Subscriptions)
    }

    /// Whether it is a table of keys and their latest values; the others are logs that must keep everything.
    pub const fn is_compacted(self) -> bool {
        matches!(self, Self::LetterStates | Self::Progress | Self::Control | Self::Subscriptions)
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::adopt::is_own_topic;

    use super::*;
    use crate::Only;

    /// An import refuses them by name, without asking the cluster.
    #[test]
    fn every_topic_of_a_pipeline_is_known_as_its_own() {
        let topics = Topics::of(&KafkaPipeline {
            name: "billing".to_owned(),
            source: "orders".to_owned(),
            tiers: vec![Duration::from_millis(100), Duration::from_secs(90)],
            id: None,
            tenant: None,
            ttl: None,
            blocking: false,
            only: Only::Everything,
            subscriptions: true,
        });
        let owned = topics.owned();
        assert_eq!(owned.len(), 8);
        for name in owned.into_iter().map(|(_, name)| name).chain(["orders"]) {
            assert!(is_own_topic("billing", &topics.source, name), "{name}");
        }
    }
}
