//! One slow endpoint among many: latency of messages to the others, by the slow one's share of the traffic.

use std::time::Duration;

use redrive::Message;
use redrive::internal::dispatch::routes::Router;
use redrive_core::endpoints::Endpoint;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, tiers};
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Span, Variant};
use crate::seed;
use crate::testbed::simulated::{self, Reply, Responder};
use crate::testbed::trace::quantile;
use crate::testbed::{Audit, HandlerAnswer, Load, Silent, Stage, Subject, Trace};

const SALT: u64 = 7;
/// The number of the slow endpoint; the others follow.
const NOISY: u64 = 0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoisyEndpointParameters {
    rate: f64,
    arrive_for: Span,
    /// Number of endpoints besides the slow one.
    others: u64,
    /// Latency of the slow endpoint and of the others.
    slow: Span,
    fast: Span,
    /// Shares of the messages that go to the slow endpoint, in percent.
    shares: Vec<u64>,
    permits: u32,
    /// Concurrent calls per endpoint; 0 means no limit.
    per_endpoint: u32,
    tiers: Vec<Span>,
}

/// Assigns messages to endpoints.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    seed: u64,
    noisy_percent: u64,
    others: u64,
}

impl Traffic {
    fn endpoint(&self, number: u64) -> u64 {
        let drawn = seed::draw(self.seed, &seed::id(self.seed, number), SALT);
        if drawn % 100 < self.noisy_percent { NOISY } else { 1 + (drawn / 100) % self.others.max(1) }
    }
}

/// Endpoints that all succeed; one of them is slow.
struct EndpointServers {
    traffic: Traffic,
    slow_ms: u64,
    fast_ms: u64,
}

impl Responder for EndpointServers {
    fn call(&mut self, number: u64, _call: u16, _at: Duration) -> Reply {
        let is_slow = self.traffic.endpoint(number) == NOISY;
        Reply { answer: HandlerAnswer::Success, takes_ms: if is_slow { self.slow_ms } else { self.fast_ms } }
    }
}

/// Results of the other endpoints' messages at one share.
struct ShareResult {
    percent: u64,
    p99_ms: f64,
    audit: Audit,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &NoisyEndpointParameters = &variant.parameters;
        let mut results = Vec::new();
        for (i, percent) in p.shares.iter().enumerate() {
            stage.share(i as f64 / p.shares.len() as f64);
            if stage.is_interrupted() {
                return Ok(None);
            }
            let traffic = Traffic { seed: setup.seed, noisy_percent: *percent, others: p.others };
            let trace = play(variant, traffic)?;
            let p99_ms = p99_of_the_others(&trace, traffic);
            results.push(ShareResult { percent: *percent, p99_ms, audit: trace.audit });
        }
        Ok(Some(measured(&variant.name, &results)))
    })?;
    let (variants, curves, is_partial) = complete(each);
    let (title, x) = ("Messages for the other endpoints, p99", "share of the slow endpoint, %");
    let plot = Plot::new("dwell", title, x, "milliseconds from arrival to success", curves);
    let plots = vec![plot.y_scale(Scale::Log(1.0))];
    let columns = vec![
        Column::new("p99 of the others, slow endpoint 5 %", "p99_5_percent_ms", Unit::Milliseconds),
        Column::new("25 %", "p99_25_percent_ms", Unit::Milliseconds),
        Column::new("50 %", "p99_50_percent_ms", Unit::Milliseconds),
        Column::new("90 %", "p99_90_percent_ms", Unit::Milliseconds),
        Column::new("most", "p99_max_ms", Unit::Milliseconds),
    ];
    Ok(Outcome { columns, variants, plots, is_partial, ..Outcome::default() })
}

fn play(variant: &Variant<NoisyEndpointParameters>, traffic: Traffic) -> Result<Trace, LabError> {
    let p = &variant.parameters;
    let load = Load::steady(traffic.seed, p.rate, p.arrive_for.0);
    let place = move |message: &Message| {
        let (_, number) = seed::parse(message.id())?;
        let endpoint = traffic.endpoint(number);
        Some(Endpoint { origin: endpoint, endpoint })
    };
    let router = (p.per_endpoint > 0).then(|| Router::new(p.per_endpoint, None, place));
    let subject = Subject { router, ..Subject::plain(built(&tiers(&p.tiers))?, p.permits) };
    let ms = |span: Span| span.0.as_millis() as u64;
    let mut servers = EndpointServers { traffic, slow_ms: ms(p.slow), fast_ms: ms(p.fast) };
    // A share takes a moment, so checking for ^C between shares is enough.
    let stage = Stage::of(&Silent, "", 0, 1);
    let played = simulated::run_with(&load, &subject, &mut servers, stage);
    let trace = played.map_err(|error| LabError::Run(error.to_string()))?;
    trace.ok_or_else(|| LabError::Run("nobody interrupts it".to_owned()))
}

/// From arrival to success; messages that have not succeeded count until the end of the run.
fn p99_of_the_others(trace: &Trace, traffic: Traffic) -> f64 {
    let end = trace.ran_for.as_millis() as u32;
    let others = trace.arrived().filter(|(number, _)| traffic.endpoint(*number) != NOISY);
    quantile(others.map(|(_, record)| record.ended_ms.min(end).saturating_sub(record.arrived_ms)), 0.99)
}

fn measured(name: &str, results: &[ShareResult]) -> (VariantResult, Curve) {
    let audit = results.iter().fold(Audit::default(), |sum, result| sum.plus(&result.audit));
    let most = results.iter().map(|result| result.p99_ms).fold(0.0, f64::max);
    let mut variant = VariantResult::new(name, Some(audit)).with("p99_max_ms", most);
    for result in results {
        variant = variant.with(&format!("p99_{}_percent_ms", result.percent), result.p99_ms);
    }
    let points = results.iter().map(|result| (result.percent as f64, result.p99_ms)).collect();
    (variant, Curve::new(name, points))
}
