//! The topics of a pipeline by name, and what the records of those it reads are.

use std::time::Duration;

use redrive_core::duration;

use crate::KafkaPipeline;

/// Every topic of a pipeline by its name.
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
    /// One partition: what holds for all processes.
    pub control: String,
    /// One partition: the subscriptions of a push pipeline.
    pub subscriptions: Option<String>,
}

impl Topics {
    /// As the configuration names them; what is retired is known only to the cluster.
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

    /// Those that the pipeline owns, with what each is for.
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

/// What the records of a topic that is read are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    Source,
    /// Retries that wait for their time; also in a tier that is no longer configured.
    Tier,
    /// Letters that were put back.
    Replay,
}

/// What a topic of the pipeline is for.
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
    /// Read from one end to the other by every process, whatever the source is like.
    pub const fn has_one_partition(self) -> bool {
        matches!(self, Self::Control | Self::Subscriptions)
    }

    /// Tables of keys and their latest values; the others are logs that must keep everything.
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
