//! What comes of each partition: records read, and records that were not delivered yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use redrive::engine::{ClusterStanding, Condition, Flow, ProblemKind};

use super::engine::KafkaEngine;
use crate::backlog::lane::Lane;

/// Counters of a process; they go on when partitions come and go.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Records that were read, by partition.
    read: HashMap<(Arc<str>, i32), u64>,
    pub rebalances: u64,
    pub commit_failures: u64,
}

impl Traffic {
    fn count_read(&mut self, lane: &Lane, records: u64) {
        *self.read.entry((Arc::clone(&lane.topic), lane.partition)).or_default() += records;
    }
}

impl KafkaEngine {
    pub(crate) fn count_read(&mut self, at: usize, records: u64) {
        self.traffic.count_read(&self.lanes[at], records);
    }

    /// Every partition that is read here or was, in the order of their names.
    fn flows(&self) -> Vec<Flow> {
        let here = self.lanes.iter().map(|lane| (Arc::clone(&lane.topic), lane.partition));
        let elsewhere = self.traffic.read.keys().filter(|name| !self.by_name.contains_key(*name)).cloned();
        let mut flows: Vec<Flow> = here
            .chain(elsewhere)
            .map(|name| {
                let lane = self.by_name.get(&name).map(|at| &self.lanes[*at]);
                let consumed = self.traffic.read.get(&name).copied().unwrap_or(0);
                Flow { lag: lane.map(Lane::lag), topic: name.0, partition: name.1, consumed }
            })
            .collect();
        flows.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        flows
    }

    /// What is known of the cluster, and which of it is a problem.
    pub(crate) fn describe_cluster(&self, condition: &mut Condition) {
        let (now, found) = (Instant::now(), self.watcher.found());
        condition.flows = self.flows();
        condition.cluster = Some(ClusterStanding {
            member: self.mailbox.is_member(),
            reachable: found.is_reachable(),
            rebalances: self.traffic.rebalances,
            commit_failures: self.traffic.commit_failures,
        });
        if !found.is_reachable() {
            let why = found.silence.as_deref().unwrap_or("no answer");
            condition.problem(ProblemKind::Reach, &*self.group, format!("Kafka does not answer: {why}"));
        } else if self.watcher.is_absent(now) {
            let text = "the process is in no group, so it is given no partitions; it goes on trying to join";
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

    /// A partition that gives no records tells no end either, so that is asked for beside it.
    pub(crate) fn watch_stopped(&mut self, now: Instant) {
        self.watcher.note_membership(self.mailbox.is_member(), now);
        let stopped = self.lanes.iter().filter(|lane| lane.stopped.is_some());
        self.watcher.ask_ends(stopped.map(|lane| (Arc::clone(&lane.topic), lane.partition)).collect());
        for (name, end) in self.watcher.found().ends {
            if let Some(at) = self.by_name.get(&name) {
                let lane = &mut self.lanes[*at];
                lane.end = lane.end.max(end);
            }
        }
    }
}
