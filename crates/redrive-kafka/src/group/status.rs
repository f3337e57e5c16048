//! The state of this process in its group, with the counters of its partitions, for people and metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use redrive::internal::engine::{ClusterStanding, Condition, PartitionFlow, ProblemKind};

use super::watcher::Watcher;
use crate::backlog::lane::PartitionLane;
use crate::backlog::lanes::Lanes;
use crate::consume::mailbox::Mailbox;

#[derive(Debug)]
pub(crate) struct GroupStatus {
    group: String,
    watcher: Watcher,
    mailbox: Arc<Mailbox>,
    /// Records read since the start, by partition, including partitions that are gone.
    read: HashMap<(Arc<str>, i32), u64>,
    rebalances: u64,
    commit_failures: u64,
}

impl GroupStatus {
    pub fn new(group: String, watcher: Watcher, mailbox: &Arc<Mailbox>) -> Self {
        let mailbox = Arc::clone(mailbox);
        Self { group, watcher, mailbox, read: HashMap::new(), rebalances: 0, commit_failures: 0 }
    }

    pub fn name(&self) -> &str {
        &self.group
    }

    pub fn count_read(&mut self, lane: &PartitionLane, records: u64) {
        *self.read.entry((Arc::clone(&lane.topic), lane.partition)).or_default() += records;
    }

    pub fn count_rebalance(&mut self) {
        self.rebalances += 1;
    }

    pub fn count_commit_failure(&mut self) {
        self.commit_failures += 1;
    }

    /// Returns every partition that is or was read here, ordered by name.
    fn flows(&self, lanes: &Lanes) -> Vec<PartitionFlow> {
        let here = lanes.iter().map(|lane| (Arc::clone(&lane.topic), lane.partition));
        let elsewhere = self.read.keys().filter(|(topic, partition)| !lanes.contains(topic, *partition));
        let mut flows: Vec<PartitionFlow> = here
            .chain(elsewhere.cloned())
            .map(|name| {
                let lane = lanes.find(&name.0, name.1).map(|at| &lanes[at]);
                let stalled_for = lane.and_then(PartitionLane::stalled_for).unwrap_or_default();
                let (lag, consumed) =
                    (lane.map(PartitionLane::lag), self.read.get(&name).copied().unwrap_or(0));
                PartitionFlow { lag, topic: name.0, partition: name.1, consumed, stalled_for }
            })
            .collect();
        flows.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        flows
    }

    /// Adds what is known about the cluster and the problems in it.
    pub fn describe(&self, lanes: &Lanes, condition: &mut Condition) {
        let (now, found) = (Instant::now(), self.watcher.found());
        condition.flows = self.flows(lanes);
        condition.cluster = Some(ClusterStanding {
            member: self.mailbox.is_member(),
            reachable: found.is_reachable(),
            rebalances: self.rebalances,
            commit_failures: self.commit_failures,
        });
        if !found.is_reachable() {
            let why = found.silence.as_deref().unwrap_or("no answer");
            condition.problem(ProblemKind::Reach, &*self.group, format!("Kafka does not answer: {why}"));
        } else if self.watcher.is_absent(now) {
            let text = "the process is in no group, so it is given no partitions; it keeps trying to join";
            condition.problem(ProblemKind::Membership, &*self.group, text);
        }
        let mut unowned = found.unowned();
        if let Some((topic, partition)) = unowned.next() {
            condition.partitions.unassigned = 1 + unowned.count() as u64;
            let text = format!(
                "{} partitions are read by no member of the group {}; `redrive status --members` shows who has which",
                condition.partitions.unassigned, self.group
            );
            condition.problem(ProblemKind::Assign, format!("{topic}/{partition}"), text);
        }
    }

    /// Updates the ends of partitions from which nothing is fetched. The client learns the end of a partition with the
    /// records it fetches, so for one that is stopped, or whose records wait for room, the watcher asks.
    pub fn watch(&mut self, lanes: &mut Lanes, now: Instant) {
        self.watcher.note_membership(self.mailbox.is_member(), now);
        let behind = lanes.iter().filter(|lane| lane.stopped.is_some() || lane.unread() > 0);
        self.watcher.ask_ends(behind.map(|lane| (Arc::clone(&lane.topic), lane.partition)).collect());
        for ((topic, partition), end) in self.watcher.found().ends {
            if let Some(at) = lanes.find(&topic, partition) {
                lanes[at].end = lanes[at].end.max(end);
            }
        }
    }
}
