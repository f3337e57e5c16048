//! The topics that copies are written to, and which tier takes a retry.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::topics::Topics;

/// A topic that copies are written to.
#[derive(Clone, Debug)]
pub(crate) struct TargetTopic {
    pub name: Arc<str>,
    pub partitions: i32,
}

impl TargetTopic {
    /// Returns the partition for messages of a source partition.
    pub fn partition(&self, source: i32) -> i32 {
        source.rem_euclid(self.partitions.max(1))
    }
}

/// All topics that copies are written to.
#[derive(Debug)]
pub(crate) struct TargetTopics {
    /// Shortest delay first.
    tiers: Vec<(Duration, TargetTopic)>,
    replay: TargetTopic,
    letters: TargetTopic,
    letter_states: TargetTopic,
    progress: TargetTopic,
}

impl TargetTopics {
    pub fn new(topics: &Topics, partitions: impl Fn(&str) -> i32) -> Self {
        let target = |name: &str| TargetTopic { name: name.into(), partitions: partitions(name) };
        Self {
            tiers: topics.tiers.iter().map(|(delay, name)| (*delay, target(name))).collect(),
            replay: target(&topics.replay),
            letters: target(&topics.dlq),
            letter_states: target(&topics.dlq_state),
            progress: target(&topics.progress),
        }
    }

    /// Updates the partition counts, because topics may have grown.
    pub fn update(&mut self, partitions: &HashMap<Arc<str>, i32>) {
        let others = [&mut self.replay, &mut self.letters, &mut self.letter_states, &mut self.progress];
        for target in self.tiers.iter_mut().map(|(_, target)| target).chain(others) {
            if let Some(count) = partitions.get(&target.name) {
                target.partitions = *count;
            }
        }
    }

    /// Returns the tier for a delay: that of the attempt if the delay fits, else the shortest that fits, else the last.
    pub fn tier(&self, attempts: u32, delay: Duration) -> &TargetTopic {
        let fits = |tier: &Duration| delay <= *tier * 2;
        let of_attempt = attempts.checked_sub(1).and_then(|at| self.tiers.get(at as usize));
        let tier = of_attempt.filter(|(tier, _)| fits(tier));
        let tier =
            tier.or_else(|| self.tiers.iter().find(|(tier, _)| fits(tier))).or_else(|| self.tiers.last());
        // Without tiers a retry waits in the replay topic.
        tier.map_or(&self.replay, |(_, target)| target)
    }

    /// Returns the topics that are read beside the source: every tier and the replay topic.
    pub fn beside_source(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        self.tiers.iter().map(|(_, target)| &target.name).chain([&self.replay.name])
    }

    pub fn replay(&self) -> &TargetTopic {
        &self.replay
    }

    pub fn letters(&self) -> &TargetTopic {
        &self.letters
    }

    pub fn letter_states(&self) -> &TargetTopic {
        &self.letter_states
    }

    pub fn progress(&self) -> &TargetTopic {
        &self.progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(tiers: &[u64]) -> TargetTopics {
        let topics = Topics {
            source: "orders".to_owned(),
            tiers: tiers.iter().map(|s| (Duration::from_secs(*s), format!("orders.retry.{s}s"))).collect(),
            retired: Vec::new(),
            replay: "orders.replay".to_owned(),
            dlq: "orders.DLQ".to_owned(),
            dlq_state: "orders.DLQ.state".to_owned(),
            progress: "orders.progress".to_owned(),
            control: "orders.control".to_owned(),
            subscriptions: None,
        };
        TargetTopics::new(&topics, |_| 4)
    }

    #[test]
    fn a_retry_goes_to_the_tier_of_its_attempt_unless_its_delay_does_not_fit() {
        let topics = topics(&[5, 30, 300]);
        let tier = |attempts, seconds| &*topics.tier(attempts, Duration::from_secs(seconds)).name;
        assert_eq!(tier(1, 5), "orders.retry.5s");
        assert_eq!(tier(2, 5), "orders.retry.30s");
        assert_eq!(tier(1, 20), "orders.retry.30s");
        assert_eq!(tier(9, 3), "orders.retry.5s");
        assert_eq!(tier(1, 9_000), "orders.retry.300s");
    }

    #[test]
    fn without_tiers_a_retry_waits_in_the_replay_topic() {
        assert_eq!(&*topics(&[]).tier(1, Duration::from_secs(1)).name, "orders.replay");
    }

    #[test]
    fn a_topic_with_fewer_partitions_is_shared() {
        let mut topics = topics(&[5]);
        assert_eq!(topics.letters().partition(7), 3);
        topics.update(&HashMap::from([("orders.DLQ".into(), 8)]));
        assert_eq!(topics.letters().partition(7), 7);
    }
}
