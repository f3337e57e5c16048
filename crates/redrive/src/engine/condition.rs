//! The condition of an engine apart from its messages: which partitions are stuck, and why.

#![warn(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

/// Problems that are listed. Further ones are left out.
pub const PROBLEMS_MAX: usize = 16;

/// The current condition of an engine. Empty for engines without partitions.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Condition {
    /// The partitions assigned to this process.
    pub partitions: Partitions,
    /// Complete records kept on the local disk because their dead letters had to be truncated to Kafka's size limit.
    pub spooled: u64,
    /// Duplicate letters: a crash left two copies of a message, and both died.
    pub letter_twins: u64,
    /// Records in the dead-letter topic that are damaged or were not written by Redrive.
    pub foreign_letters: u64,
    /// Records skipped since the engine was opened because another record of the same message is delivered instead.
    pub passed_over: u64,
    /// Whether dead letters are still being read, so that their counts are incomplete.
    pub letters_loading: bool,
    /// The partitions that this process reads, one entry each; empty for engines without partitions.
    pub flows: Vec<PartitionFlow>,
    /// `None` for engines without a cluster.
    pub cluster: Option<ClusterStanding>,
    /// At most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
}

/// The read progress of one partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionFlow {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Records not delivered yet. `None` if the partition has moved to another process.
    pub lag: Option<u64>,
    /// Records read since the engine was opened.
    pub consumed: u64,
    /// How long the oldest record that was read but not started has been waiting; zero if there is none.
    pub stalled_for: Duration,
}

/// The relation of a process to its Kafka cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClusterStanding {
    /// Whether the process is currently a member of its group.
    pub member: bool,
    /// Whether the cluster answers.
    pub reachable: bool,
    /// How often partitions were assigned to it since the engine was opened.
    pub rebalances: u64,
    /// Commits that failed since the engine was opened. The next commit covers the same offsets.
    pub commit_failures: u64,
}

/// The partitions assigned to this process, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Partitions {
    /// Partitions that make progress.
    pub reading: u64,
    /// Partitions of which nothing more is delivered, because a retry or a dead letter cannot be written.
    pub blocked: u64,
    /// Partitions that cannot be read any further.
    pub stopped: u64,
    /// Partitions of the whole group that no member reads.
    pub unassigned: u64,
}

/// Something that keeps messages from moving until a person intervenes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem.
    pub kind: ProblemKind,
    /// `orders/3` for a partition, otherwise the name of a topic or group.
    pub place: String,
    /// What is wrong, and what to do about it.
    pub text: String,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A record cannot be written.
    Write,
    /// A record cannot be decoded.
    Decode,
    /// A partition cannot be read.
    Read,
    /// Records were lost before they were delivered.
    LostRange,
    /// The assigned partitions cannot be started.
    Assign,
    /// Dead letters cannot be read.
    Letters,
    /// The cluster does not answer.
    Reach,
    /// The process is not a member of its group, so it gets no partitions.
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

    /// The name in metrics and in the API.
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
