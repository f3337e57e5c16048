//! The condition of an engine beside its messages: partitions that do not move, and why.

#![warn(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

/// Problems that are listed; beyond it the first ones stand for all.
pub const PROBLEMS_MAX: usize = 16;

/// How an engine stands right now. Empty for engines that keep everything in one place.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Condition {
    /// Which partitions this process has.
    pub partitions: Partitions,
    /// Whole records on the local disk whose dead letters had to be cut, because Kafka refuses them at their size.
    pub spooled: u64,
    /// Second records of one dead letter: a crash left two copies of a message, and both died.
    pub letter_twins: u64,
    /// Records among the dead letters that are not ours, or are damaged.
    pub foreign_letters: u64,
    /// Records that were not delivered because another record of the same message goes on, since the engine was opened.
    pub passed_over: u64,
    /// Whether dead letters are still being read, so that their counts are not complete.
    pub letters_loading: bool,
    /// The partitions that this process reads, each by itself; empty for engines without partitions.
    pub flows: Vec<PartitionFlow>,
    /// `None` for engines without a cluster.
    pub cluster: Option<ClusterStanding>,
    /// At most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
}

/// What comes of one partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionFlow {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Records that were not delivered yet. `None` if the partition belongs to another process by now.
    pub lag: Option<u64>,
    /// Records that were read, since the engine was opened.
    pub consumed: u64,
    /// How long the first record has waited that was read and not started; zero if none waits.
    pub stalled_for: Duration,
}

/// How a process stands in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClusterStanding {
    /// Whether it is a member of its group right now.
    pub member: bool,
    /// Whether the cluster answers.
    pub reachable: bool,
    /// How often it was given partitions, since the engine was opened.
    pub rebalances: u64,
    /// Commits that failed, since the engine was opened. The next commit covers the same offsets.
    pub commit_failures: u64,
}

/// Partitions that are assigned to this process, by how they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Partitions {
    /// Those that move.
    pub reading: u64,
    /// A retry or a dead letter of theirs cannot be written, so nothing more of them is delivered.
    pub blocked: u64,
    /// Nothing more of them can be read.
    pub stopped: u64,
    /// Partitions of the whole group that no member reads.
    pub unassigned: u64,
}

/// Something that keeps messages from moving until a person has acted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What it is about.
    pub kind: ProblemKind,
    /// `orders/3` for a partition, otherwise the name of a topic or group.
    pub place: String,
    /// What is wrong, and what to do about it.
    pub text: String,
}

/// What a problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A record cannot be written.
    Write,
    /// A record cannot be decoded.
    Decode,
    /// A partition cannot be read.
    Read,
    /// Records that were not delivered are gone.
    LostRange,
    /// Assigned partitions cannot begin.
    Assign,
    /// Dead letters cannot be read.
    Letters,
    /// The cluster does not answer.
    Reach,
    /// The process is in no group, so it gets no partitions.
    Membership,
}

impl ProblemKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Write,
        Self::Decode,
        Self::Read,
        Self::LostRange,
        Self::Assign,
        Self::Letters,
        Self::Reach,
        Self::Membership,
    ];

    /// The name in figures and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Decode => "decode",
            Self::Read => "read",
            Self::LostRange => "lost_range",
            Self::Assign => "assign",
            Self::Letters => "letters",
            Self::Reach => "reach",
            Self::Membership => "membership",
        }
    }
}

impl Condition {
    /// Adds a problem unless there are too many already.
    pub fn problem(&mut self, kind: ProblemKind, place: impl Into<String>, text: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { kind, place: place.into(), text: text.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_a_bound() {
        let mut condition = Condition::default();
        (0..100).for_each(|n| condition.problem(ProblemKind::Write, format!("orders/{n}"), "no"));
        assert_eq!(condition.problems.len(), PROBLEMS_MAX);
        assert_eq!(condition.problems[0].place, "orders/0");
    }
}
