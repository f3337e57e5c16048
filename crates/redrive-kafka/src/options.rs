//! The settings of a cluster and of the pipelines whose messages live there.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redrive_core::Pick;

/// One cluster as every pipeline of a process sees it.
#[derive(Clone)]
pub struct Cluster {
    pub brokers: Vec<String>,
    pub group: String,
    /// Static membership: a restart under the same name moves no partition.
    pub member: Option<String>,
    /// Where a group without committed offsets begins. There is no default: it is never guessed.
    pub start: Option<GroupStart>,
    pub topics: TopicsMode,
    /// Local files that can be thrown away: spilled look-ahead, the mirror of the letters. The spool is the exception.
    pub state_dir: PathBuf,
    /// Passed on to librdkafka as they are. Values may be secrets.
    pub passed_on: Vec<(String, String)>,
}

impl fmt::Debug for Cluster {
    /// Never prints a value that was passed on: it may be a password.
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

/// Whether missing topics are made or reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TopicsMode {
    #[default]
    Verify,
    Create,
}

/// Which records a process takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Only {
    #[default]
    Everything,
    Source,
    /// Retries and replays.
    Tiers,
}

/// One pipeline as the engine needs to know it.
#[derive(Clone, Debug)]
pub struct KafkaPipeline {
    /// Prefix of every topic the pipeline owns.
    pub name: String,
    pub source: String,
    /// Delays of the tiers, shortest first.
    pub tiers: Vec<Duration>,
    /// Where the stable id comes from; the record's place otherwise.
    pub id: Option<Pick>,
    pub tenant: Option<Pick>,
    /// How long after its creation a message may be attempted.
    pub ttl: Option<Duration>,
    /// Retries happen in place: one delivery at a time for each partition.
    pub blocking: bool,
    pub only: Only,
    /// Whether its sink keeps a table of subscriptions, which is a topic of its own.
    pub subscriptions: bool,
}
