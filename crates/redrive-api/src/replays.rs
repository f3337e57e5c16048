//! Replays: forecasts and jobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Instant, NotOpenLetter};

/// The forecast of a replay.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReplayForecast {
    pub would_replay: u64,
    /// Letters that are not put back, by reason: not_found, in_replay, succeeded, discarded, erased, too_often,
    /// damaged.
    pub skips: BTreeMap<String, u64>,
    pub rate: Option<f64>,
    pub about_seconds: Option<f64>,
    #[schemars(extend("enum" = ["pipeline", "source"]))]
    pub to: String,
    /// The topic they are put onto, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Whether letters of a key are delivered in order.
    pub key_order: bool,
    /// Imported letters with a key that have no place in the source, where keys are ordered: these are delivered in no
    /// certain order.
    pub unordered: u64,
    pub canary: u64,
    pub stop_at: Option<String>,
    /// Letters with an attempt whose end is unknown.
    pub ambiguous: u64,
    /// Of these, letters whose message got a new id from an edit.
    pub ambiguous_new_id: u64,
    /// Whether a decision about those is required first.
    pub ambiguous_undecided: bool,
    /// Letters that `ambiguous` = `skip` leaves out; they stay open.
    pub ambiguous_skipped: u64,
    /// How long the receiver remembers ids.
    pub ledger_horizon: Option<String>,
    /// Letters that were first attempted longer ago than the receiver remembers ids.
    pub beyond_ledger: u64,
    pub superseded: Superseded,
    /// Letters that `skip_superseded` leaves out; they stay open.
    #[serde(skip_serializing_if = "is_zero")]
    pub superseded_skipped: u64,
    /// Letters that wait in other replays.
    pub taken: Vec<TakenByReplay>,
    pub tenants: Vec<TenantLetters>,
    /// Letters that stay open because their tenant has more than `tenant_max`.
    pub beyond_quota: u64,
    /// When the oldest of them died.
    pub oldest: Option<Instant>,
    #[schemars(extend("enum" = ["closed", "open", "half_open", "disabled"]))]
    pub breaker: String,
    pub budget_remaining: Option<u32>,
    pub paused: bool,
    /// The last replay of the same selection, or of letters of the same groups.
    pub last: Option<LastReplay>,
    /// Letters that were named in `ids` and are not open: they are not replayed.
    pub not_open: Vec<NotOpenLetter>,
    /// With `to: source`: the other consumer groups that read the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_groups: Option<Vec<String>>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Letters whose key has had a later success since `since`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Superseded {
    pub keys: u64,
    pub letters: u64,
    /// From when on successes are known, even across a restart.
    pub since: Option<Instant>,
    /// Letters with a key whose message is older than `since`, so that an earlier success is unknown.
    pub older_letters: u64,
    /// Spans since then in which successes are unknown: a process was killed before it had saved them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<UnknownSpan>,
    /// On Kafka: only successes in partitions of the answering member are known, and only while it has them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_partitions_only: bool,
    pub shown: Vec<KeyLetters>,
}

/// A span in which successes are unknown.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnknownSpan {
    pub from: Instant,
    pub until: Instant,
}

/// Letters of a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KeyLetters {
    pub key: String,
    pub letters: u64,
}

/// Letters of a tenant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TenantLetters {
    pub tenant: String,
    pub letters: u64,
}

/// Letters that are taken by another replay.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TakenByReplay {
    pub replay: String,
    pub letters: u64,
}

/// The last replay of the same selection, or of letters of the same groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LastReplay {
    pub id: String,
    pub state: String,
    pub created: Instant,
    pub total: u64,
    pub succeeded: u64,
    pub dead_again: u64,
    pub untouched: u64,
    /// What it has in common with the selection: the same selection text, letters of a group, or perhaps letters of a
    /// group (a replay of very many groups names only some of them).
    #[schemars(extend("enum" = ["selection", "group", "perhaps_group"]))]
    pub by: String,
}

/// A replay job.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Replay")]
#[serde(default)]
pub struct ReplayJob {
    pub id: String,
    pub pipeline: String,
    pub state: JobState,
    pub selection: String,
    pub total: u64,
    /// Letters that were put back: the sum of `under_way`, `succeeded`, `dead_again` and `forgotten`.
    pub published: u64,
    pub under_way: u64,
    /// Letters under way that are held, if any are. On Kafka, those of the member that runs the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldLetters>,
    pub succeeded: u64,
    pub dead_again: u64,
    pub forgotten: u64,
    pub skipped: u64,
    /// Letters that are neither published nor skipped.
    pub untouched: u64,
    /// Letters that are not put back, by reason: not_found, in_replay, succeeded, discarded, erased, too_often,
    /// damaged.
    pub skips: BTreeMap<String, u64>,
    pub rate: Option<f64>,
    #[schemars(extend("enum" = ["pipeline", "source"]))]
    pub to: String,
    /// The result of the canary, the letters that go first.
    pub canary: Option<Canary>,
    pub stop_at: Option<String>,
    /// The most deliveries that may have been made twice because a process ended halfway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_twice_max: Option<u64>,
    pub created: Instant,
    pub actor: String,
    /// Why it stopped, if it did.
    pub note: Option<String>,
    /// The current state of the breaker, for a stopped job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<String>,
    /// The forecast before it began; only in the answer to its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<ReplayForecast>,
}

/// Letters of a job that are held: they wait without using up attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeldLetters {
    pub letters: u64,
    /// The pipeline is paused; the receiver asked to wait; the breaker is open; no call has succeeded since
    /// `last_success`, or none at all; or the receiver cannot be reached or limits calls, or the retry budget is used up.
    #[schemars(extend("enum" = ["paused", "retry_after", "breaker_open", "no_success", "other"]))]
    pub because: String,
    /// The last successful call of the pipeline, with `no_success`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Instant>,
}

/// The result of the canary, the letters that go first.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Canary {
    pub letters: u64,
    pub succeeded: u64,
    pub over: bool,
}

/// Replay jobs, the latest first. Clients that pass jobs on unread take `Replays<serde_json::Value>`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Replays", bound = "R: JsonSchema + Default")]
#[serde(default)]
pub struct Replays<R = ReplayJob> {
    pub replays: Vec<R>,
}

/// The state of a job.
// Variants have no doc comments: each would become a schema of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    #[default]
    Running,
    Paused,
    Done,
    Aborted,
    Stopped,
    Failed,
}

impl JobState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Aborted => "aborted",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}
