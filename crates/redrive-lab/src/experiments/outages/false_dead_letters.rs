//! False dead letters: good messages that die because an outage lasted too long.

use std::time::Duration;

use redrive::BreakerSettings;
use redrive_core::OutageForecast;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, tiers};
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Span, Variant};
use crate::testbed::{Audit, Load, Outage, Stage, Subject, Trace};

const FORECAST_MESSAGES: u32 = 50_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutageSweepParameters {
    rate: f64,
    before: Span,
    after: Span,
    /// Lengths of the outages.
    outages: Vec<Span>,
    tiers: Vec<Span>,
    jitter: String,
    /// Also turns on the outage gate.
    breaker: bool,
    permits: u32,
}

/// An outage, and the fate of the messages that arrived in it.
struct OutageResult {
    lasts: Duration,
    arrived: u64,
    dead: f64,
    /// The forecast of `check` for the same outage; `None` with breaker and outage gate, which it does not model.
    forecast: Option<f64>,
    audit: Audit,
}

impl OutageResult {
    /// Whether nothing died and `check` does not expect deaths either: zero of a few messages alone proves little.
    fn is_survived(&self) -> bool {
        self.dead == 0.0 && self.forecast.is_none_or(|forecast| forecast == 0.0)
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let Some(results) = sweep(scenario, variant, setup, stage)? else { return Ok(None) };
        let lines = forecasts(variant, &results);
        let notes = unlucky(&variant.name, &results);
        let (result, curve) = measured(&variant.name, &results);
        Ok(Some((result, (curve, (lines, notes)))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (curves, rest): (Vec<Curve>, Vec<_>) = rest.into_iter().unzip();
    let (lines, notes): (Vec<Vec<ForecastLine>>, Vec<Vec<String>>) = rest.into_iter().unzip();
    let (title, x) = ("Dead for an outage, by its length", "seconds that the outage lasts");
    let plot = Plot::new("dead", title, x, "share of the messages that arrived in it", curves);
    let plots = vec![plot.y_scale(Scale::Share)];
    let columns = vec![
        Column::new("after 1 min", "dead_60_s", Unit::Share),
        Column::new("after 5 min", "dead_300_s", Unit::Share),
        Column::new("after 10 min", "dead_600_s", Unit::Share),
        Column::new("most", "dead_max", Unit::Share),
        Column::new(
            "longest outage without a dead letter, measured and forecast",
            "survived_seconds",
            Unit::Seconds,
        ),
    ];
    let forecasts = lines.into_iter().flatten().collect();
    let notes = notes.into_iter().flatten().collect();
    Ok(Outcome { columns, variants, forecasts, plots, notes, is_partial, ..Outcome::default() })
}

fn subject(p: &OutageSweepParameters) -> Result<Subject, LabError> {
    let policy = built(&tiers(&p.tiers).jitter(p.jitter.as_str()).outage_gate(p.breaker))?;
    let breaker = if p.breaker { BreakerSettings::default() } else { BreakerSettings::off() };
    Ok(Subject { breaker, ..Subject::plain(policy, p.permits) })
}

/// Runs every outage; `None` if interrupted.
fn sweep(
    scenario: &Scenario,
    variant: &Variant<OutageSweepParameters>,
    setup: &ExperimentSetup<'_>,
    stage: Stage<'_>,
) -> Result<Option<Vec<OutageResult>>, LabError> {
    let p = &variant.parameters;
    let subject = subject(p)?;
    let mut results = Vec::new();
    for (i, lasts) in p.outages.iter().enumerate() {
        let outage = Outage::refusing(p.before.0, lasts.0);
        let load = Load {
            outage: Some(outage),
            follow: p.after.0,
            ..Load::steady(setup.seed, p.rate, outage.end() + p.before.0)
        };
        let part = stage.part(i, p.outages.len());
        let Some(trace) = setup.play(scenario, &load, &subject, part)? else { return Ok(None) };
        let forecast =
            (!p.breaker).then(|| OutageForecast::of(&subject.policy, lasts.0, FORECAST_MESSAGES).dead);
        let (arrived, dead) = arrived_and_dead(&trace, outage);
        let dead = dead as f64 / arrived.max(1) as f64;
        results.push(OutageResult { lasts: lasts.0, arrived, dead, forecast, audit: trace.audit });
    }
    Ok(Some(results))
}

/// The number of messages that arrived in the outage, and how many of them died.
fn arrived_and_dead(trace: &Trace, outage: Outage) -> (u64, u64) {
    let span = outage.at.as_millis() as u32..outage.end().as_millis() as u32;
    let arrived: Vec<bool> = trace
        .arrived()
        .filter(|(_, record)| span.contains(&record.arrived_ms))
        .map(|(_, record)| record.is_dead())
        .collect();
    (arrived.len() as u64, arrived.iter().filter(|is_dead| **is_dead).count() as u64)
}

fn measured(name: &str, results: &[OutageResult]) -> (VariantResult, Curve) {
    let audit = results.iter().fold(Audit::default(), |sum, result| sum.plus(&result.audit));
    let survived = results.iter().filter(|result| result.is_survived()).map(|result| result.lasts).max();
    let mut variant = VariantResult::new(name, Some(audit))
        .with("dead_max", results.iter().map(|result| result.dead).fold(0.0, f64::max))
        .with("survived_seconds", survived.map_or(f64::NAN, |lasts| lasts.as_secs_f64()));
    for result in results {
        variant = variant.with(&format!("dead_{}_s", result.lasts.as_secs()), result.dead);
    }
    let points = results.iter().map(|result| (result.lasts.as_secs_f64(), result.dead)).collect();
    (variant, Curve::new(name, points))
}

/// Notes on outages in which nothing died although `check` expects deaths.
fn unlucky(name: &str, results: &[OutageResult]) -> Vec<String> {
    let note = |result: &OutageResult| {
        let forecast = result.forecast.filter(|forecast| *forecast > 0.0 && result.dead == 0.0)?;
        Some(format!(
            "{name}, outage of {} s: none of {} messages died. That is no claim that none can: `redrive check` expects {} of \
             them, {:.1} messages.",
            result.lasts.as_secs(),
            Unit::Count.text(result.arrived as f64),
            Unit::Share.text(forecast),
            forecast * result.arrived as f64
        ))
    };
    results.iter().filter_map(note).collect()
}

/// The forecasts of `check` for the same outages; none with breaker and outage gate.
fn forecasts(variant: &Variant<OutageSweepParameters>, results: &[OutageResult]) -> Vec<ForecastLine> {
    // With few messages the result varies more.
    let by = 0.01 + 0.2 / variant.parameters.rate.sqrt();
    let line = |result: &OutageResult| {
        let what = format!("dead for an outage of {} s, {}", result.lasts.as_secs(), variant.name);
        let line = ForecastLine::new(&what, Unit::Share, result.forecast?, result.dead, Bound::About(by));
        Some(line.of(result.arrived))
    };
    results.iter().filter_map(line).collect()
}
