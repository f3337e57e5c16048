//! Messages pushed to others: events of a pipeline (server-sent) and notices of alerts (by webhook). Like the log
//! they contain no payload, no endpoint and no text of an error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Instant;

/// The event `dead_letter`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeadLetterEvent {
    pub letter: String,
    pub message_id: String,
    pub correlation_id: String,
    pub reason: String,
    /// Null for a message that was never attempted.
    pub class: Option<String>,
    /// The HTTP status of the last answer, if there was one.
    pub status: Option<u16>,
    pub endpoint_hash: Option<String>,
    pub attempts: u32,
}

/// The events `breaker` and `health`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HealthEvent {
    /// What changed, in words.
    pub change: String,
    /// Whether it got worse.
    pub bad: bool,
}

/// The event `replay`: a job began, or its state changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReplayEvent {
    pub replay: String,
    pub state: String,
    pub total: u64,
    pub published: u64,
    pub succeeded: u64,
    pub dead_again: u64,
}

/// The events of one subscription: `flagged`, `purged` and those that undo them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SubscriptionEvent {
    pub endpoint_hash: Option<String>,
    /// Null for an endpoint that is not stored.
    pub subscription_id: Option<String>,
    pub status: Option<u16>,
    pub cause: Option<String>,
    pub reason: Option<String>,
}

/// The event `purging_stopped`: too many endpoints would have been purged at once.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PurgingStoppedEvent {
    pub purged: u64,
    pub active: u64,
    /// The share of the active ones in percent, with one decimal.
    pub percent: f64,
}

/// The body of an `[[alert]]` notice.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AlertNotice {
    pub alert: String,
    #[schemars(extend("enum" = ["firing", "resolved"]))]
    pub state: String,
    pub severity: String,
    /// Null if the notice concerns the whole process.
    pub pipeline: Option<String>,
    pub at: Instant,
    pub since: Instant,
    pub summary: String,
    /// State, severity and summary in one line: the one field that chat services look for.
    pub text: String,
    pub value: Option<u64>,
    pub limit: Option<u64>,
    pub runbook: String,
    pub version: String,
    /// With `poison_pill`: the pills since the last notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<Vec<QuarantinedPill>>,
    /// With `new_group` and `group_regressed`: the first few groups since the last notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<AlertedGroup>>,
    /// How many more groups there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_groups: Option<u64>,
    /// Status pages that show whether the service is at fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status_pages: Vec<ServiceStatusPage>,
}

/// A message that was quarantined because it crashes its process.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QuarantinedPill {
    pub message_id: String,
    pub crash_count: u32,
    pub first_crash_at: Option<Instant>,
    pub last_crash_at: Option<Instant>,
    pub quarantined_at: Instant,
    pub attempts: u32,
}

/// A group of dead letters that is new or has regressed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AlertedGroup {
    pub id: String,
    /// The normalised error, unless the pipeline redacts error texts.
    pub title: String,
    pub open: u64,
}

/// The public status page of a push service.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServiceStatusPage {
    pub service: String,
    pub url: String,
}
