//! The health of a pipeline's sink, in the API.

use redrive::internal::dispatch::{self, EndpointFigures, health};
use redrive::{Figures, HealthFigures};
use redrive_api::{EndpointWait, Endpoints, HealthChange, Incident, Instant, Recovery, Resets, SinkHealth};
use redrive_core::Time;
use redrive_core::breaker::BreakerState;
use redrive_core::reload::Reload;

/// Breaker, permits, budget and suspects, with the latest changes.
pub fn sink_health(figures: &Figures) -> SinkHealth {
    let HealthFigures { breaker, permits, limit, budget_remaining, flood, suspects, history, wait, .. } =
        &figures.health;
    let change =
        |entry: &redrive::HealthEntry| HealthChange { at: Instant(entry.at), what: entry.change.to_string() };
    let is_open = breaker.state != BreakerState::Closed;
    let resets = &figures.health.resets;
    SinkHealth {
        since: breaker.since.map(Instant),
        reason: breaker.cause.as_ref().filter(|_| is_open).map(health::cause),
        next_probe: breaker.next_probe.map(Instant),
        waits_until: wait.as_ref().map(|wait| Instant(wait.until)),
        waits_because: wait.as_ref().map(health::asked),
        rounds: breaker.rounds,
        probes: breaker.probes,
        permits: *permits as u64,
        permits_max: *limit as u64,
        budget_remaining: *budget_remaining,
        paused_because: flood.as_ref().map(health::flood),
        suspects: *suspects,
        resets: Resets { lately: resets.lately, apart: resets.apart },
        endpoints: figures.health.endpoints.as_ref().map(endpoints),
        if_closed_now: is_open
            .then(|| recovery(&figures.health, figures.pending.waiting(), figures.arrivals_per_second)),
        incident: figures.health.incident.map(|running| incident(&running, *limit)),
        history: history.iter().map(change).collect(),
    }
}

fn endpoints(all: &EndpointFigures) -> Endpoints {
    let wait = |wait: &redrive_core::endpoints::EndpointWait| EndpointWait {
        unit: wait.unit.name(all.limit_by).to_owned(),
        hash: format!("{:016x}", wait.number),
        why: wait.why.name().to_owned(),
        until: wait.until.map(Instant),
        rounds: wait.rounds,
        queued: wait.queued,
    };
    Endpoints {
        unit: all.limit_by.name().to_owned(),
        in_cooldown: all.endpoints,
        origins_in_cooldown: all.origins,
        waiting: all.waiting,
        waits: all.waits.iter().map(wait).collect(),
    }
}

/// The resolution of the clock that times calls.
const CALL_SECONDS_MIN: f64 = 0.001;

/// What would happen if the sink recovered now.
fn recovery(health: &HealthFigures, waiting: u64, live: f64) -> Recovery {
    let HealthFigures { limit, ramp: (permits_from, took), call_took, .. } = *health;
    let rate = call_took.map(|call| limit as f64 / call.as_secs_f64().max(CALL_SECONDS_MIN));
    let factor = health.reload.as_f64();
    let usual = health.usual_per_second.filter(|_| factor > 0.0);
    let gone = rate.and_then(|rate| match usual {
        Some(usual) => Reload::forecast(usual, factor, rate, live, waiting).map(|gone| gone.as_secs_f64()),
        None => Some(waiting as f64 / (rate - live)).filter(|_| rate > live),
    });
    let tenths = |number: f64| (number * 10.0).round() / 10.0;
    Recovery {
        permits_from: permits_from as u64,
        permits_to: limit as u64,
        ramp_seconds: took.as_secs(),
        begins_per_second: usual.map(|usual| tenths(Reload::new(usual, factor, Time::ZERO).per_second())),
        rate_per_second: rate.map(tenths),
        live_per_second: tenths(live),
        backlog_seconds: gone.map(|seconds| seconds.ceil() as u64),
    }
}

fn incident(incident: &dispatch::Incident, limit: usize) -> Incident {
    let of_limit = incident.peak_running as f64 / limit.max(1) as f64;
    Incident {
        from: Instant(incident.from),
        until: incident.until.map(Instant),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_core::Ratio;

    use super::*;

    #[test]
    fn a_backlog_is_gone_once_more_is_sent_than_comes() {
        let of = |held, live, call_took| {
            let ramp = (5, Duration::from_secs(7));
            recovery(&HealthFigures { limit: 64, ramp, call_took, ..HealthFigures::default() }, held, live)
        };
        let call = Some(Duration::from_micros(10_500));
        let view = of(6_361_204, 2_000.0, call);
        assert_eq!((view.permits_from, view.permits_to, view.ramp_seconds), (5, 64, 7));
        assert_eq!((view.rate_per_second, view.backlog_seconds), (Some(6_095.2), Some(1_554)));
        assert_eq!(of(100, 9_000.0, call).backlog_seconds, None, "never, if more comes than can be sent");
        assert_eq!(of(100, 0.0, None).rate_per_second, None, "nothing was ever delivered");
        let health = HealthFigures {
            limit: 64,
            call_took: call,
            usual_per_second: Some(2_000.0),
            reload: Ratio::percent(200),
            ..HealthFigures::default()
        };
        let view = recovery(&health, 6_361_204, 2_000.0);
        assert_eq!((view.begins_per_second, view.backlog_seconds), (Some(4_000.0), Some(1_578)));
    }
}
