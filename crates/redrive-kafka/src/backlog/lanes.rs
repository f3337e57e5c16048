//! The partitions assigned to this process, for the duration of one assignment.

use std::collections::{HashMap, HashSet};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use redrive::internal::engine::Receipt;

use super::lane::PartitionLane;
use crate::consume::mailbox::Mailbox;
use crate::topics::LaneKind;

/// All lanes of the current assignment. A lane is identified by its index, which is valid within one epoch only.
#[derive(Debug)]
pub(crate) struct Lanes {
    epoch: u32,
    assigned: Vec<PartitionLane>,
    by_name: HashMap<(Arc<str>, i32), usize>,
    /// Wakes the polling thread when a full lane has room again.
    reader: Arc<Mailbox>,
}

impl Lanes {
    pub fn new(reader: &Arc<Mailbox>) -> Self {
        Self { epoch: 0, assigned: Vec::new(), by_name: HashMap::new(), reader: Arc::clone(reader) }
    }

    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    pub fn begin(&mut self, epoch: u32, lanes: Vec<PartitionLane>) {
        self.epoch = epoch;
        let names =
            lanes.iter().enumerate().map(|(at, lane)| ((Arc::clone(&lane.topic), lane.partition), at));
        self.by_name = names.collect();
        self.assigned = lanes;
    }

    /// Ends the assignment and returns its lanes. Copies that are acknowledged from now on have no lane to be marked
    /// in: the next assignment has this epoch or a later one, and nothing starts before it.
    pub fn end(&mut self) -> Vec<PartitionLane> {
        self.epoch = self.epoch.wrapping_add(1);
        self.by_name.clear();
        std::mem::take(&mut self.assigned)
    }

    pub fn find(&self, topic: &Arc<str>, partition: i32) -> Option<usize> {
        self.by_name.get(&(Arc::clone(topic), partition)).copied()
    }

    pub fn contains(&self, topic: &Arc<str>, partition: i32) -> bool {
        self.find(topic, partition).is_some()
    }

    /// Returns the lane of a receipt, if the receipt belongs to this assignment.
    pub fn of_receipt(&self, receipt: &Receipt) -> Option<usize> {
        let at = receipt.lane as usize;
        (receipt.epoch == self.epoch && at < self.assigned.len()).then_some(at)
    }

    pub fn get(&self, at: usize) -> Option<&PartitionLane> {
        self.assigned.get(at)
    }

    pub fn len(&self) -> usize {
        self.assigned.len()
    }

    pub fn is_empty(&self) -> bool {
        self.assigned.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, PartitionLane> {
        self.assigned.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, PartitionLane> {
        self.assigned.iter_mut()
    }

    /// Iterates over the lanes of the source topic.
    pub fn sources(&self) -> impl Iterator<Item = &PartitionLane> {
        self.assigned.iter().filter(|lane| lane.kind == LaneKind::Source)
    }

    /// Marks a record as done. Returns whether it was suspected by name.
    pub fn mark(&mut self, at: usize, offset: u64) -> bool {
        let lane = &mut self.assigned[at];
        lane.done.mark(offset);
        let was_named = lane.suspected.settled(offset);
        if lane.kind != LaneKind::Source {
            self.free(at, 0);
        }
        was_named
    }

    /// Gives back the memory of a record to its lane, and wakes the reader if the lane was full.
    pub fn free(&self, at: usize, bytes: usize) {
        if self.assigned[at].room.free(1, bytes) {
            self.reader.call_reader();
        }
    }

    /// Like [`Self::free`], for a record that counts towards its lane only while it is fresh.
    pub fn free_fresh(&self, at: usize, bytes: usize) {
        if self.assigned[at].kind == LaneKind::Source {
            self.free(at, bytes);
        }
    }

    /// Returns this member's share of the work in partitions: those assigned here, and all.
    pub fn share(&self, partitions: &HashMap<Arc<str>, i32>) -> Option<(u32, u32)> {
        let topics: HashSet<&Arc<str>> = self.assigned.iter().map(|lane| &lane.topic).collect();
        let all: i32 = topics.into_iter().filter_map(|topic| partitions.get(topic)).sum();
        let (owned, all) = (u32::try_from(self.assigned.len()).ok()?, u32::try_from(all).ok()?);
        (owned > 0 && owned <= all).then_some((owned, all))
    }
}

impl Index<usize> for Lanes {
    type Output = PartitionLane;

    fn index(&self, at: usize) -> &PartitionLane {
        &self.assigned[at]
    }
}

impl IndexMut<usize> for Lanes {
    fn index_mut(&mut self, at: usize) -> &mut PartitionLane {
        &mut self.assigned[at]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use redrive::internal::engine::completion::CompletionSet;

    use super::*;
    use crate::consume::room::LookAheadLimit;
    use crate::crash::suspects::Suspected;

    pub(crate) fn lane(kind: LaneKind, topic: &str, partition: i32) -> PartitionLane {
        let (done, room) = (CompletionSet::default(), Arc::new(LookAheadLimit::new(10, 1_000)));
        PartitionLane::new(kind, topic.into(), partition, done, Suspected::default(), room)
    }

    /// Two partitions of `orders`, each with its tier.
    pub(crate) fn lanes() -> Lanes {
        let mut lanes = Lanes::new(&Arc::new(Mailbox::default()));
        let all = [0, 1].into_iter().flat_map(|partition| {
            [lane(LaneKind::Source, "orders", partition), lane(LaneKind::Tier, "orders.retry.5s", partition)]
        });
        lanes.begin(3, all.collect());
        lanes
    }

    #[test]
    fn a_receipt_of_another_assignment_has_no_lane() {
        let mut lanes = lanes();
        let receipt = |lane, epoch| Receipt { lane, epoch, seq: 0, at: 0 };
        assert_eq!(lanes.of_receipt(&receipt(1, 3)), Some(1));
        assert_eq!(lanes.of_receipt(&receipt(9, 3)), None);
        assert_eq!(lanes.end().len(), 4);
        assert_eq!(lanes.of_receipt(&receipt(1, 3)), None);
        assert!(lanes.epoch() == 4 && lanes.find(&"orders".into(), 0).is_none());
    }

    #[test]
    fn the_share_counts_partitions_of_the_topics_that_are_read_here() {
        let counts =
            HashMap::from([("orders".into(), 4), ("orders.retry.5s".into(), 4), ("other".into(), 9)]);
        assert_eq!(lanes().share(&counts), Some((4, 8)));
    }
}
