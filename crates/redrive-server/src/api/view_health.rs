//! What the API shows of the health of a pipeline's sink.

use redrive::dispatch::health;
use redrive::{HealthFigures, timestamp};
use serde::Serialize;

/// Breaker, permits, budget and suspects, with the latest changes.
#[derive(Debug, Serialize)]
pub struct HealthView {
    /// Since when the breaker is open, or has been closed again.
    since: Option<String>,
    reason: Option<String>,
    next_probe: Option<String>,
    rounds: u32,
    probes: u32,
    permits: usize,
    permits_max: usize,
    budget_remaining: Option<u32>,
    /// Why the dead-letter guard has paused the pipeline.
    paused_because: Option<String>,
    suspects: u64,
    history: Vec<ChangeView>,
}

#[derive(Debug, Serialize)]
struct ChangeView {
    at: String,
    what: String,
}

impl HealthView {
    pub fn of(figures: &HealthFigures) -> Self {
        let HealthFigures { breaker, permits, limit, budget_remaining, flood, suspects, history } = figures;
        let change = |entry: &redrive::HealthEntry| ChangeView {
            at: timestamp::print(entry.at),
            what: entry.change.to_string(),
        };
        Self {
            since: breaker.since.map(timestamp::print),
            reason: breaker.cause.as_ref().filter(|_| figures.is_gated()).map(health::cause),
            next_probe: breaker.next_probe.map(timestamp::print),
            rounds: breaker.rounds,
            probes: breaker.probes,
            permits: *permits,
            permits_max: *limit,
            budget_remaining: *budget_remaining,
            paused_because: flood.as_ref().map(health::flood),
            suspects: *suspects,
            history: history.iter().map(change).collect(),
        }
    }
}
