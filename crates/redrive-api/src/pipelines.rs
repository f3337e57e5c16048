//! Pipelines: figures, settings, and what needs attention.

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
    /// The topic it reads, where its messages come from Kafka.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub sink: String,
    /// Where the sink delivers to, in words; never a path or a secret.
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
    /// What somebody on call should know, the most urgent first.
    pub attention: Vec<AttentionNotice>,
    #[schemars(extend("enum" = ["closed", "open", "half_open"]))]
    pub breaker: String,
    pub health: SinkHealth,
    pub condition: ConditionView,
    pub store: StoreHealth,
}

/// What the store has found about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StoreHealth {
    /// Damaged places that the last scrub found.
    pub damaged: u64,
    /// When everything was last read; null if that has not happened yet, or if it never does.
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

/// The policy in the words of the configuration.
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
    /// Whether nothing is given up for exhaustion while the sink is unhealthy.
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

/// The last minutes of a pipeline, without the time for which messages were held.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recent {
    /// How far back it looks, in seconds.
    pub window_s: u64,
    /// From creation to success, without the time held.
    pub end_to_end_p99_ms: Option<f64>,
    /// From the due time to the start, without the time held.
    pub late_p99_ms: Option<f64>,
    /// Messages that succeeded after nothing could be sent for a while (breaker, Retry-After, pause).
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

/// One thing that somebody on call should know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Notice")]
#[serde(default)]
pub struct AttentionNotice {
    pub subject: Subject,
    /// bad: messages do not move, or data is damaged.
    pub level: Level,
    /// In few words, for a line or a label.
    pub short: String,
    pub text: String,
    /// The command that changes it.
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
    // Messages move, but slower or not all of them; also what a newer server says and this client does not know.
    #[default]
    #[serde(other)]
    Warning,
}

/// What a notice is about.
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
    // What a newer server says and this client does not know.
    #[default]
    #[schemars(skip)]
    #[serde(other)]
    Other,
}

/// Partitions, what is stored aside, and what needs a person.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Condition")]
#[serde(default)]
pub struct ConditionView {
    pub partitions: Partitions,
    /// Whole records on the local disk whose letters had to be cut.
    pub spooled: u64,
    /// Second records of one dead letter.
    pub letter_twins: u64,
    /// Records among the dead letters that are not ours, or are damaged.
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
    /// A record of theirs cannot be written.
    pub blocked: u64,
    /// Nothing more can be read.
    pub stopped: u64,
    /// Of the whole group.
    pub unassigned: u64,
}

/// Something that keeps messages from moving.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PipelineProblem {
    /// Named where the answer is about all pipelines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    #[schemars(extend("enum" = ["write", "decode", "read", "lost_range", "assign", "letters", "reach", "membership"]))]
    pub kind: String,
    pub place: String,
    pub problem: String,
}
