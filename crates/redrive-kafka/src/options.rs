//! The settings of a cluster and of the pipelines whose messages live there.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redrive_core::Pick;

/// One cluster, as every pipeline of a process sees it.
#[derive(Clone)]
pub struct Cluster {
    pub brokers: Vec<String>,
    pub group: String,
    /// Name for static membership: a restart under the same name moves no partitions.
    pub member: Option<String>,
    /// Where a group without committed offsets begins. It has no default, because it is never guessed.
    pub start: Option<GroupStart>,
    pub topics: TopicsMode,
    /// Directory for local files. They can be deleted (spilled look-ahead, the mirror of the letters), except for the
    /// spool.
    pub state_dir: PathBuf,
    /// Settings passed on to librdkafka unchanged. Values may be secrets.
    pub passed_on: Vec<(String, String)>,
}

impl fmt::Debug for Cluster {
    /// Omits the values that are passed on: one may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.passed_on.iter().map(|(name, _)| name).collect();
        f.debug_struct("Cluster")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("member", &self.member)
            .field("start", &self.start)
            .field("topics", &self.topics)
            .field("passed_on", &names)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStart {
    Earliest,
    Latest,
}

/// Whether missing topics are created or reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TopicsMode {
    #[default]
    Verify,
    Create,
}

/// Which records a process handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Only {
    #[default]
    Everything,
    Source,
    /// Retries and replays only.
    Tiers,
}

/// One pipeline, as the engine needs to know it.
#[derive(Clone, Debug)]
pub struct KafkaPipeline {
    /// Prefix of every topic the pipeline owns.
    pub name: String,
    pub source: String,
    /// Delays of the tiers, shortest first.
    pub tiers: Vec<Duration>,
    /// Where the stable id is taken from; the record's position if `None`.
    pub id: Option<Pick>,
    pub tenant: Option<Pick>,
    /// How long after its creation a message may be attempted.
    pub ttl: Option<Duration>,
    /// Whether retries happen in place: one delivery at a time for each partition.
    pub blocking: bool,
    pub only: Only,
    /// Whether its sink keeps a table of subscriptions, in a topic of its own.
    pub subscriptions: bool,
}
