//! The JSON of replays: what a job would do, and how one stands.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::answers::Instant;

/// What a replay would do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DryReplay {
    pub would_replay: u64,
    pub skips: BTreeMap<String, u64>,
    pub rate: Option<f64>,
    pub about_seconds: Option<f64>,
    /// `pipeline` or `source`; nothing from an older processor.
    pub to: Option<String>,
    pub topic: Option<String>,
    pub key_order: bool,
    pub canary: u64,
    pub stop_at: Option<String>,
    pub ambiguous: u64,
    pub ambiguous_new_id: u64,
    pub ambiguous_undecided: bool,
    pub ledger_horizon: Option<String>,
    pub beyond_ledger: u64,
    pub superseded: Superseded,
    pub taken: Vec<TakenByReplay>,
    pub tenants: Vec<TenantLetters>,
    pub beyond_quota: u64,
    pub oldest: Option<Instant>,
    pub breaker: Option<String>,
    pub budget_remaining: Option<u64>,
    pub paused: bool,
    pub last: Option<LastReplay>,
    /// Who else reads the topic that the letters would go onto.
    pub other_groups: Option<Vec<String>>,
}

/// Letters whose key has had a later success.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Superseded {
    pub keys: u64,
    pub letters: u64,
    pub since: Option<Instant>,
    pub shown: Vec<KeyLetters>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyLetters {
    pub key: String,
    pub letters: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TenantLetters {
    pub tenant: String,
    pub letters: u64,
}

/// Letters that wait in another replay.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TakenByReplay {
    pub replay: String,
    pub letters: u64,
}

/// The last replay of the same selection.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LastReplay {
    pub id: String,
    pub state: String,
    pub created: Option<Instant>,
    pub succeeded: u64,
    pub dead_again: u64,
    pub untouched: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ReplayView {
    pub id: String,
    #[serde(default)]
    pub pipeline: String,
    pub state: ReplayState,
    #[serde(default)]
    pub selection: String,
    #[serde(default)]
    pub total: u64,
    #[serde(default)]
    pub published: u64,
    #[serde(default)]
    pub succeeded: u64,
    #[serde(default)]
    pub under_way: u64,
    #[serde(default)]
    pub dead_again: u64,
    #[serde(default)]
    pub forgotten: u64,
    #[serde(default)]
    pub skipped: u64,
    #[serde(default)]
    pub untouched: u64,
    #[serde(default)]
    pub actor: String,
    #[serde(default)]
    pub rate: Option<f64>,
    #[serde(default)]
    pub canary: Option<Canary>,
    /// Nothing from an older processor.
    #[serde(default)]
    pub sent_twice_max: Option<u64>,
    #[serde(default)]
    pub tenants: Vec<TenantLetters>,
    #[serde(default)]
    pub created: Option<Instant>,
    /// Why it was stopped.
    #[serde(default)]
    pub note: Option<String>,
    /// The breaker now, of a job that was stopped.
    #[serde(default)]
    pub breaker: Option<String>,
    /// What was known before it began; only in the answer to its start.
    #[serde(default)]
    pub plan: Option<DryReplay>,
}

/// How the letters ended that went first.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Canary {
    pub letters: u64,
    pub succeeded: u64,
    pub over: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Replays {
    pub replays: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayState {
    Running,
    Paused,
    Done,
    Aborted,
    /// Too many letters died again; it can be resumed.
    Stopped,
    /// It cannot go on.
    Failed,
}

impl ReplayState {
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
