//! Tier sets and jitters against an outage: who recovers, how soon, and how many calls are wasted.

use redrive_core::OutageForecast;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, tiers};
use crate::fate::Rates;
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::trace::{mean, quantile};
use crate::testbed::{Fates, Load, MessageRecord, Outage, Subject, Trace};

const FORECAST_MESSAGES: u32 = 50_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackoffSweepParameters {
    rate: f64,
    before: Span,
    outage: Span,
    after: Span,
    tiers: Vec<Span>,
    jitter: String,
    transient: Share,
    concurrency: u32,
    /// Divides every time span, for a quick run on the real clock.
    speed: f64,
}

impl BackoffSweepParameters {
    fn faster(&self) -> Self {
        let faster = |span: &Span| span.faster(self.speed);
        Self {
            before: faster(&self.before),
            outage: faster(&self.outage),
            after: faster(&self.after),
            tiers: self.tiers.iter().map(faster).collect(),
            jitter: self.jitter.clone(),
            ..*self
        }
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &BackoffSweepParameters = &variant.parameters;
        let p = &p.faster();
        let outage = Outage::refusing(p.before.0, p.outage.0);
        let rates = Rates { transient: p.transient.0, ..Rates::NONE };
        let load = Load {
            fates: Fates::Rates(rates),
            outage: Some(outage),
            follow: p.after.0,
            ..Load::steady(setup.seed, p.rate, outage.end() + p.before.0)
        };
        let policy = built(&tiers(&p.tiers).jitter(p.jitter.as_str()).outage_gate(false))?;
        let forecast = OutageForecast::of(&policy, p.outage.0, FORECAST_MESSAGES);
        let trace = setup.play(scenario, &load, &Subject::plain(policy, p.concurrency), stage)?;
        let Some(trace) = trace else { return Ok(None) };
        let (result, curve) = measure(&variant.name, &trace, outage);
        let of = p.rate * p.outage.0.as_secs_f64();
        let by = scatter(forecast.dead, of);
        let (what, dead) = (format!("dead for the outage, {}", variant.name), result.get("dead_in_outage"));
        let line = ForecastLine::new(&what, Unit::Share, forecast.dead, dead, Bound::About(by));
        let line = line.of(of as u64);
        Ok(Some((result, (curve, line))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (curves, forecasts): (Vec<Curve>, Vec<ForecastLine>) = rest.into_iter().unzip();
    let title = "Time to success of messages that failed at least once";
    let plot = Plot::new("time-to-success", title, "seconds", "share that has succeeded", curves);
    let plots = vec![plot.x_scale(Scale::Log(0.1)).y_scale(Scale::Share)];
    Ok(Outcome { columns: columns(), variants, forecasts, plots, is_partial, ..Outcome::default() })
}

/// The tolerance between a measured share and the forecast: three standard deviations, counting the messages and the
/// sample of the forecast itself. Zero where the forecast is zero.
fn scatter(forecast: f64, messages: f64) -> f64 {
    3.0 * (forecast * (1.0 - forecast) * (1.0 / messages + 1.0 / f64::from(FORECAST_MESSAGES))).sqrt()
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("recovered", "recovered", Unit::Share),
        Column::new("dead for the outage", "dead_in_outage", Unit::Share),
        Column::new("mean time to success", "mean_seconds", Unit::Seconds),
        Column::new("p99", "p99_seconds", Unit::Seconds),
        Column::new("once failed, p99", "once_failed_p99_seconds", Unit::Seconds),
        Column::new("calls in vain per message of the outage", "wasted_per_message", Unit::Times),
    ]
}

fn measure(name: &str, trace: &Trace, outage: Outage) -> (VariantResult, Curve) {
    let failed: Vec<&MessageRecord> =
        trace.arrived().map(|(_, record)| record).filter(|r| r.calls > 1 || r.is_dead()).collect();
    let succeeded = || failed.iter().filter(|record| record.has_succeeded());
    let span = outage.at.as_millis() as u32..outage.end().as_millis() as u32;
    let arrived: Vec<&MessageRecord> =
        trace.arrived().map(|(_, record)| record).filter(|r| span.contains(&r.arrived_ms)).collect();
    let dead = arrived.iter().filter(|record| record.is_dead()).count() as f64;
    let wasted = trace.failed_between(outage.at, outage.end()) as f64;
    let took = || succeeded().map(|record| record.took_ms());
    let once = succeeded().filter(|record| record.calls == 2).map(|record| record.took_ms());
    let result = VariantResult::new(name, Some(trace.audit))
        .with("recovered", took().count() as f64 / failed.len() as f64)
        .with("dead_in_outage", dead / arrived.len() as f64)
        .with("mean_seconds", mean(took()) / 1000.0)
        .with("p99_seconds", quantile(took(), 0.99) / 1000.0)
        .with("once_failed_p99_seconds", quantile(once, 0.99) / 1000.0)
        .with("wasted_per_message", wasted / arrived.len() as f64);
    (result, Curve::share_over_seconds(name, took(), failed.len()))
}
