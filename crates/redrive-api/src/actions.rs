//! The action log, refused requests, and whether a process is alive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Instant, PipelineProblem};

/// The action log, the latest first. Clients that pass actions on unread take `Actions<serde_json::Value>`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Actions", bound = "A: JsonSchema + Default")]
#[serde(default)]
pub struct Actions<A = ActionView> {
    pub actions: Vec<A>,
}

/// A recorded action: who did what, and when.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Action")]
#[serde(default)]
pub struct ActionView {
    pub at: Instant,
    /// The name of the token that authorized it.
    pub actor: String,
    pub action: String,
    /// What it made or changed: `r-31`, `d-9`, `e-12`.
    pub id: Option<String>,
    pub pipeline: Option<String>,
    /// How many letters it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letters: Option<u64>,
    /// For a replay whose job is kept: letters delivered so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<u64>,
    /// For a replay whose job is kept: letters that died again so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_again: Option<u64>,
    /// Instead of `letters`, for actions on subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriptions: Option<u64>,
    pub note: Option<String>,
    /// What an edit changed: JSON pointers and headers, never a value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Requested, and not finished yet; `letters` is how many were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<bool>,
}

/// Why a request was refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
#[serde(default)]
pub struct Refusal {
    /// A stable code that programs may rely on.
    pub code: String,
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// Whether the process is alive and takes traffic.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Health")]
#[serde(default)]
pub struct Liveness {
    pub status: String,
    /// Problems that keep messages of any pipeline from moving.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<PipelineProblem>,
}
