//! What is told to others without being asked: events of a pipeline (server-sent) and notices of alerts (by webhook). Like the log
//! they hold no payload, no endpoint and no text of an error.

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
    /// Null for a message that was never tried.
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

/// The events of one subscription: `flagged`, `purged` and those that take them back.
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

/// The event `purging_stopped`: too many subscriptions were gone at once.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PurgingStoppedEvent {
    pub purged: u64,
    pub active: u64,
    /// The share of the active ones, with one decimal.
    pub percent: f64,
}

/// What an `[[alert]]` sends.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AlertNotice {
    pub alert: String,
    #[schemars(extend("enum" = ["firing", "resolved"]))]
    pub state: String,
    pub severity: String,
    /// Null if it is about the whole process.
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
    /// Where to see whether it is the service's fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status_pages: Vec<ServiceStatusPage>,
}

/// A message that was quarantined because it kills its process.
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

/// A group of dead letters that is new or back.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AlertedGroup {
    pub id: String,
    /// The normalised error, unless the pipeline redacts such texts.
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
