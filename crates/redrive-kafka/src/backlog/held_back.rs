//! With key order: partitions from which nothing starts until their tiers have been read.

use std::collections::HashSet;
use std::sync::Arc;

use super::lane::PartitionLane;
use super::lanes::Lanes;
use crate::topics::LaneKind;

#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    partitions: HashSet<i32>,
}

impl HeldBack {
    pub fn holds(&self, partition: i32) -> bool {
        !self.partitions.is_empty() && self.partitions.contains(&partition)
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Holds back newly assigned partitions. `tiers` are the topics that must be assigned together with the source.
    pub fn begin<'a>(&mut self, lanes: &Lanes, tiers: &(impl Iterator<Item = &'a Arc<str>> + Clone)) {
        self.partitions.extend(lanes.iter().map(|lane| lane.partition));
        for (source, tier) in self.separated(lanes, tiers) {
            tracing::error!(
                partition = %source,
                "{tier} is not assigned to this member, so key order cannot be kept; nothing of the partition is delivered \
                 until it is"
            );
        }
        self.release_read(lanes, tiers);
    }

    /// Releases the partitions whose tiers are all assigned here and have been read to their ends.
    pub fn release_read<'a>(&mut self, lanes: &Lanes, tiers: &(impl Iterator<Item = &'a Arc<str>> + Clone)) {
        self.partitions.retain(|partition| {
            let together = tiers.clone().all(|topic| lanes.contains(topic, *partition));
            let unread = |lane: &PartitionLane| {
                lane.partition == *partition && lane.kind != LaneKind::Source && !lane.has_ended()
            };
            !together || lanes.iter().any(unread)
        });
    }

    /// Returns the held-back source partitions that have a tier partition assigned elsewhere, each with the first such
    /// tier partition.
    pub fn separated<'a>(
        &self,
        lanes: &Lanes,
        tiers: &(impl Iterator<Item = &'a Arc<str>> + Clone),
    ) -> Vec<(String, String)> {
        let mut separated = Vec::new();
        for lane in lanes.sources().filter(|lane| self.partitions.contains(&lane.partition)) {
            let partition = lane.partition;
            if let Some(tier) = tiers.clone().find(|tier| !lanes.contains(tier, partition)) {
                separated.push((format!("{}/{partition}", lane.topic), format!("{tier}/{partition}")));
            }
        }
        separated
    }

    pub fn clear(&mut self) {
        self.partitions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::tests::lanes;
    use super::*;

    #[test]
    fn a_partition_starts_once_its_tiers_are_here_and_read() {
        let (mut lanes, mut held) = (lanes(), HeldBack::default());
        let tiers: [Arc<str>; 1] = ["orders.retry.5s".into()];
        held.begin(&lanes, &tiers.iter());
        assert!(held.holds(0) && held.holds(1) && held.separated(&lanes, &tiers.iter()).is_empty());
        lanes[1].end_met();
        held.release_read(&lanes, &tiers.iter());
        assert!(!held.holds(0) && held.holds(1));
        let more: [Arc<str>; 2] = ["orders.retry.5s".into(), "orders.replay".into()];
        lanes[3].end_met();
        held.release_read(&lanes, &more.iter());
        assert!(held.holds(1), "a tier of it is read elsewhere");
        let apart = [("orders/1".to_owned(), "orders.replay/1".to_owned())];
        assert_eq!(held.separated(&lanes, &more.iter()), apart);
    }
}
