//! The health of a pipeline's sink: breaker, permits, endpoints and the last outage.

use redrive_core::endpoints::WaitReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Instant;

/// Breaker, permits, budget and suspects, with the latest changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SinkHealth {
    /// Since when the breaker has been open, or closed again.
    pub since: Option<Instant>,
    /// Why the breaker is open.
    pub reason: Option<String>,
    pub next_probe: Option<Instant>,
    /// Until when nothing is sent because of a Retry-After.
    pub waits_until: Option<Instant>,
    /// The message that received that Retry-After, the status, and whether the wait was cut.
    pub waits_because: Option<String>,
    pub rounds: u32,
    pub probes: u32,
    /// Calls that may run at once now.
    pub permits: u64,
    pub permits_max: u64,
    /// Retries left in the budget.
    pub budget_remaining: Option<u32>,
    /// Why the dead-letter guard has paused the pipeline.
    pub paused_because: Option<String>,
    /// Messages that may have crashed the process.
    pub suspects: u64,
    pub resets: Resets,
    /// For a sink with an endpoint per message.
    pub endpoints: Option<Endpoints>,
    pub if_closed_now: Option<Recovery>,
    pub incident: Option<Incident>,
    pub history: Vec<HealthChange>,
}

/// Connections that receivers closed while they handled a message.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Resets {
    /// In the last one to two minutes.
    pub lately: u64,
    /// Messages that run one at a time at their endpoint because of that.
    pub apart: u64,
}

/// Endpoints and origins whose messages wait.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Endpoints {
    /// What counts as an endpoint, by `limit_by`.
    #[schemars(extend("enum" = ["endpoint", "tenant", "key"]))]
    pub unit: String,
    /// Endpoints in cooldown because they fail or have sent a Retry-After.
    #[serde(alias = "left_alone")]
    pub in_cooldown: u64,
    /// Origins in cooldown.
    #[serde(alias = "origins_left_alone")]
    pub origins_in_cooldown: u64,
    /// Endpoints and origins whose messages wait, for whatever reason.
    pub waiting: u64,
    /// The most serious of these waits, at most 32.
    pub waits: Vec<EndpointWait>,
}

/// An endpoint or origin whose messages wait, and why.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EndpointWait {
    #[schemars(extend("enum" = ["endpoint", "tenant", "key", "origin"]))]
    pub unit: String,
    /// The sixteen digits of `endpoint_hash` in the log; never a URL. With `limit_by`, the hash of the tenant or key.
    pub hash: String,
    #[schemars(extend("enum" = WaitReason::ALL.map(WaitReason::name)))]
    pub why: String,
    /// When the next message may start; with `rate`, the last of those that have a turn. Null if that depends on
    /// running calls.
    pub until: Option<Instant>,
    /// Failed probes so far.
    pub rounds: u32,
    /// Messages that wait in memory; others wait in the store.
    pub queued: u64,
}

/// The expected recovery if the sink were back now.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recovery {
    pub permits_from: u64,
    pub permits_to: u64,
    pub ramp_seconds: u64,
    /// Calls per second at first; they grow every half minute up to what the permits allow. Null without a limit
    /// (`breaker.reload`), or if nothing was delivered before.
    pub begins_per_second: Option<f64>,
    /// Calls per second that the permits allow, if the duration of a call is known.
    pub rate_per_second: Option<f64>,
    pub live_per_second: f64,
    /// Null if more messages arrive than can be sent, or if nothing is known.
    pub backlog_seconds: Option<u64>,
}

/// The current outage, or the last one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Incident {
    pub from: Instant,
    pub until: Option<Instant>,
    pub failed_attempts: u64,
    pub failed_probes: u64,
    /// Letters since it opened, for whatever reason.
    pub dead: u64,
    pub dead_for_the_outage: u64,
    pub expired: u64,
    /// The most calls in one second after it closed.
    pub peak_per_second: u64,
    /// The most concurrent calls after it closed, as a share of the limit.
    pub peak_of_limit: f64,
    /// Whether the permits are back at their limit, so that nothing is counted any more.
    pub over: bool,
}

/// A change of the sink's health, in words.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HealthChange {
    pub at: Instant,
    pub what: String,
}
