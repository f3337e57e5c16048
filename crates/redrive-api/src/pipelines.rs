//! Pipelines: figures, settings, and problems that need attention.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Instant, LetterCounts, SinkHealth};

/// All pipelines of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pipelines {
    pub pipelines: Vec<PipelineView>,
}

/// A pipeline with its figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Pipeline")]
#[serde(default)]
pub struct PipelineView {
    pub name: String,
    pub paused: bool,
    pub mode: String,
    pub ordering: String,
    pub engine: String,
    /// The topic it reads, if its messages come from Kafka.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub sink: String,
    /// The target of the sink in words; never a path or a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub policy: PolicyView,
    pub pending: Pending,
    pub letters: LetterCounts,
    pub oldest_pending: Option<Instant>,
    pub oldest_letter: Option<Instant>,
    pub succeeded: u64,
    pub dead: u64,
    pub retried: u64,
    pub attempts: u64,
    /// Since the process started; `recent` has the last minutes.
    pub late_p99_ms: Option<f64>,
    /// Since the process started; `recent` has the last minutes.
    pub end_to_end_p99_ms: Option<f64>,
    pub recent: Recent,
    /// Notices for a person on call, the most urgent first.
    pub attention: Vec<AttentionNotice>,
    #[schemars(extend("enum" = ["closed", "open", "half_open"]))]
    pub breaker: String,
    pub health: SinkHealth,
    pub condition: ConditionView,
    pub store: StoreHealth,
}

/// The condition of the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StoreHealth {
    /// Damaged places found by the last scrub.
    pub damaged: u64,
    /// When everything was last read; null if that has not happened yet, or never happens.
    pub scrubbed: Option<Instant>,
    /// How often the index was rebuilt since the process started.
    pub index_rebuilds: u64,
}

/// Messages that are not terminal, by state.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pending {
    pub ready: u64,
    pub delayed: u64,
    pub key_wait: u64,
    pub in_flight: u64,
    pub held: u64,
}

/// The policy in the terms of the configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Policy")]
#[serde(default)]
pub struct PolicyView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    pub retries: u32,
    pub jitter: String,
    pub ttl: Option<String>,
    pub hold_max: String,
    /// Whether no message is dead-lettered for exhaustion while the sink is unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_gate: Option<bool>,
    pub timeout: String,
    pub concurrency: u32,
    #[schemars(extend("enum" = ["on", "off"]))]
    pub classify: String,
}

/// How delays grow: by a factor, not at all, or as the program computes them (`"custom"`).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Backoff {
    Exponential { base: String, multiplier: f64, cap: Option<String> },
    Fixed { fixed: String },
    Custom(String),
}

/// Figures of the last minutes of a pipeline, without the time for which messages were held.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recent {
    /// The length of the window in seconds.
    pub window_s: u64,
    /// From creation to success, without the time held.
    pub end_to_end_p99_ms: Option<f64>,
    /// From the due time to the start, without the time held.
    pub late_p99_ms: Option<f64>,
    /// Messages that succeeded after sending was blocked for a while (breaker, Retry-After, pause).
    pub held: u64,
    pub held_p99_ms: Option<f64>,
    /// Failed attempts by kind, the most frequent first.
    pub failed: Vec<FailedKind>,
    pub failed_total: u64,
    /// Of these, attempts of replayed letters.
    pub failed_replayed: u64,
}

/// Failed attempts of one kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FailedKind {
    /// timeout, refused, dns, tls, proxy, reset, other, or a status.
    pub kind: String,
    pub attempts: u64,
}

/// A notice for a person on call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Notice")]
#[serde(default)]
pub struct AttentionNotice {
    pub subject: Subject,
    /// bad: messages do not move, or data is damaged.
    pub level: Level,
    /// A few words, for a line or a label.
    pub short: String,
    pub text: String,
    /// The command that changes the situation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Pages with more information, such as the status page of a push service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// How urgent a notice is.
// Variants have no doc comments: each would become a schema of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    // Messages do not move, or data is damaged.
    Bad,
    // Messages move, but slower or not all of them; also any level of a newer server that this client does not know.
    #[default]
    #[serde(other)]
    Warning,
}

/// The subject of a notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Paused,
    Guard,
    Breaker,
    Outage,
    RetryAfter,
    Partition,
    Store,
    Standstill,
    Suspects,
    Resets,
    Budget,
    Endpoints,
    Subscriptions,
    Replay,
    Ramp,
    // Any subject of a newer server that this client does not know.
    #[default]
    #[schemars(skip)]
    #[serde(other)]
    Other,
}

/// Partitions, spooled records, and problems that need a person.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Condition")]
#[serde(default)]
pub struct ConditionView {
    pub partitions: Partitions,
    /// Complete records on the local disk whose letters had to be truncated.
    pub spooled: u64,
    /// Duplicate records of one dead letter.
    pub letter_twins: u64,
    /// Records in the dead letter topic that were not written by Redrive, or are damaged.
    pub foreign_letters: u64,
    /// Records that were not delivered because another record of the same message was used.
    pub passed_over: u64,
    pub letters_loading: bool,
    pub problems: Vec<PipelineProblem>,
}

/// Kafka partitions of this process.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Partitions {
    pub reading: u64,
    /// Partitions with a record that cannot be written.
    pub blocked: u64,
    /// Partitions of which nothing more can be read.
    pub stopped: u64,
    /// Partitions of the whole group.
    pub unassigned: u64,
}

/// A problem that keeps messages from moving.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PipelineProblem {
    /// The pipeline, if the answer is about all pipelines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    #[schemars(extend("enum" = ["write", "decode", "read", "lost_range", "assign", "letters", "reach", "membership"]))]
    pub kind: String,
    pub place: String,
    pub problem: String,
}
