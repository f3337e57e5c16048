//! What the API shows of the health of a pipeline's sink.

use redrive::dispatch::{EndpointFigures, Incident, health};
use redrive::{Figures, HealthFigures, timestamp};
use redrive_core::breaker::BreakerState;
use redrive_core::endpoints::EndpointWait;
use serde::Serialize;

/// Breaker, permits, budget and suspects, with the latest changes.
#[derive(Debug, Serialize)]
pub struct HealthView {
    /// Since when the breaker is open, or has been closed again.
    since: Option<String>,
    reason: Option<String>,
    next_probe: Option<String>,
    /// Until when nothing is sent because of a Retry-After, and which message received it.
    waits_until: Option<String>,
    waits_because: Option<String>,
    rounds: u32,
    probes: u32,
    permits: usize,
    permits_max: usize,
    budget_remaining: Option<u32>,
    /// Why the dead-letter guard has paused the pipeline.
    paused_because: Option<String>,
    suspects: u64,
    resets: ResetsView,
    /// For a sink with an endpoint per message.
    endpoints: Option<EndpointsView>,
    if_closed_now: Option<RecoveryView>,
    incident: Option<IncidentView>,
    history: Vec<ChangeView>,
}

/// Connections that receivers closed while they handled a message.
#[derive(Debug, Serialize)]
struct ResetsView {
    /// In the last two minutes.
    lately: u64,
    /// Messages that run one at a time at their endpoint.
    apart: u64,
}

/// Endpoints and origins whose messages wait.
#[derive(Debug, Serialize)]
struct EndpointsView {
    /// What an endpoint is here: an endpoint, a tenant or a key.
    unit: &'static str,
    /// In cooldown.
    left_alone: u64,
    origins_left_alone: u64,
    /// For whatever reason.
    waiting: u64,
    /// The most serious of them.
    waits: Vec<WaitView>,
}

/// One of them, and why.
#[derive(Debug, Serialize)]
struct WaitView {
    unit: &'static str,
    /// The digits of `endpoint_hash` in the log; never a URL.
    hash: String,
    why: &'static str,
    until: Option<String>,
    /// Failed probes.
    rounds: u32,
    /// Messages that wait in memory; others wait in the store.
    queued: u64,
}

impl EndpointsView {
    fn of(all: &EndpointFigures) -> Self {
        let wait = |wait: &EndpointWait| WaitView {
            unit: wait.unit.name(all.limit_by),
            hash: format!("{:016x}", wait.number),
            why: wait.why.name(),
            until: wait.until.map(timestamp::print),
            rounds: wait.rounds,
            queued: wait.queued,
        };
        Self {
            unit: all.limit_by.name(),
            left_alone: all.endpoints,
            origins_left_alone: all.origins,
            waiting: all.waiting,
            waits: all.waits.iter().map(wait).collect(),
        }
    }
}

/// What would happen if the sink were back now.
#[derive(Debug, Serialize)]
struct RecoveryView {
    permits_from: usize,
    permits_to: usize,
    ramp_seconds: u64,
    /// What the permits allow, if it is known how long a call takes.
    rate_per_second: Option<f64>,
    live_per_second: f64,
    /// How long it would take until nothing is held; unknown, or never, is null.
    backlog_seconds: Option<u64>,
}

/// The outage that runs, or was last.
#[derive(Debug, Serialize)]
struct IncidentView {
    from: String,
    until: Option<String>,
    failed_attempts: u64,
    failed_probes: u64,
    dead: u64,
    dead_for_the_outage: u64,
    expired: u64,
    peak_per_second: u64,
    peak_of_limit: f64,
    /// Whether the permits are back at their limit, so that nothing is counted any more.
    over: bool,
}

#[derive(Debug, Serialize)]
struct ChangeView {
    at: String,
    what: String,
}

impl HealthView {
    pub fn of(figures: &Figures) -> Self {
        let HealthFigures { breaker, permits, limit, budget_remaining, flood, suspects, history, .. } =
            &figures.health;
        let change = |entry: &redrive::HealthEntry| ChangeView {
            at: timestamp::print(entry.at),
            what: entry.change.to_string(),
        };
        let is_open = breaker.state != BreakerState::Closed;
        Self {
            since: breaker.since.map(timestamp::print),
            reason: breaker.cause.as_ref().filter(|_| is_open).map(health::cause),
            next_probe: breaker.next_probe.map(timestamp::print),
            waits_until: figures.health.wait.as_ref().map(|wait| timestamp::print(wait.until)),
            waits_because: figures.health.wait.as_ref().map(health::asked),
            rounds: breaker.rounds,
            probes: breaker.probes,
            permits: *permits,
            permits_max: *limit,
            budget_remaining: *budget_remaining,
            paused_because: flood.as_ref().map(health::flood),
            suspects: *suspects,
            resets: ResetsView { lately: figures.health.resets.lately, apart: figures.health.resets.apart },
            endpoints: figures.health.endpoints.as_ref().map(EndpointsView::of),
            if_closed_now: is_open.then(|| {
                RecoveryView::of(&figures.health, figures.pending.waiting(), figures.arrivals_per_second)
            }),
            incident: figures.health.incident.map(|incident| IncidentView::of(&incident, *limit)),
            history: history.iter().map(change).collect(),
        }
    }
}

/// Shorter calls are not told apart by the clock that times them.
const CALL_SECONDS_MIN: f64 = 0.001;

impl RecoveryView {
    fn of(health: &HealthFigures, waiting: u64, live: f64) -> Self {
        let HealthFigures { limit, ramp: (permits_from, took), call_took, .. } = *health;
        let rate = call_took.map(|call| limit as f64 / call.as_secs_f64().max(CALL_SECONDS_MIN));
        let gains = rate.map(|rate| rate - live).filter(|gains| *gains > 0.0);
        let tenths = |number: f64| (number * 10.0).round() / 10.0;
        Self {
            permits_from,
            permits_to: limit,
            ramp_seconds: took.as_secs(),
            rate_per_second: rate.map(tenths),
            live_per_second: tenths(live),
            backlog_seconds: gains.map(|gains| (waiting as f64 / gains).ceil() as u64),
        }
    }
}

impl IncidentView {
    fn of(incident: &Incident, limit: usize) -> Self {
        let of_limit = incident.peak_running as f64 / limit.max(1) as f64;
        Self {
            from: timestamp::print(incident.from),
            until: incident.until.map(timestamp::print),
            failed_attempts: incident.failed,
            failed_probes: incident.failed_probes,
            dead: incident.dead,
            dead_for_the_outage: incident.dead_for_outage,
            expired: incident.expired,
            peak_per_second: incident.peak_per_second,
            peak_of_limit: (of_limit * 100.0).round() / 100.0,
            over: incident.is_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_backlog_is_gone_once_more_is_sent_than_comes() {
        let of = |held, live, call_took| {
            let ramp = (5, Duration::from_secs(7));
            RecoveryView::of(
                &HealthFigures { limit: 64, ramp, call_took, ..HealthFigures::default() },
                held,
                live,
            )
        };
        let call = Some(Duration::from_micros(10_500));
        let view = of(6_361_204, 2_000.0, call);
        assert_eq!((view.permits_from, view.permits_to, view.ramp_seconds), (5, 64, 7));
        assert_eq!((view.rate_per_second, view.backlog_seconds), (Some(6_095.2), Some(1_554)));
        assert_eq!(of(100, 9_000.0, call).backlog_seconds, None, "never, if more comes than can be sent");
        assert_eq!(of(100, 0.0, None).rate_per_second, None, "nothing was ever delivered");
    }
}
