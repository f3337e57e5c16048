//! Poison alone: its attempts, and the time until it is a dead letter.

use std::time::Duration;

use redrive_core::Ratio;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, unprotected};
use crate::fate::Rates;
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Span};
use crate::testbed::trace::quantile;
use crate::testbed::{Fates, Load, Subject, Trace};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeToDeadLetterParameters {
    rate: f64,
    arrive_for: Span,
    tiers: Vec<Span>,
    jitter: String,
    concurrency: u32,
    /// Letters that are reported but never written, to break the audit.
    #[serde(default)]
    phantom_letters: u64,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &TimeToDeadLetterParameters = &variant.parameters;
        let poison = Rates { poison: Ratio::WHOLE, transient: Ratio::ZERO };
        let waiting: Duration = p.tiers.iter().map(|tier| tier.0).sum();
        let load = Load {
            fates: Fates::Rates(poison),
            follow: waiting + Duration::from_mins(1),
            phantom_letters: p.phantom_letters,
            ..Load::steady(setup.seed, p.rate, p.arrive_for.0)
        };
        let policy = built(&unprotected(&p.tiers).jitter(p.jitter.as_str()))?;
        let forecast = policy.forecast();
        let trace = setup.play(scenario, &load, &Subject::plain(policy, p.concurrency), stage)?;
        let Some(trace) = trace else { return Ok(None) };
        let (result, curve) = measure(&variant.name, &trace);
        let seconds = |what: &str, forecast: Duration, figure: &str, bound| {
            let what = format!("{what}, {}", variant.name);
            ForecastLine::new(&what, Unit::Seconds, forecast.as_secs_f64(), result.get(figure), bound)
        };
        let lines = [
            seconds("shortest time to a dead letter", forecast.waiting_min, "min_seconds", Bound::AtLeast),
            seconds("longest, with timeouts", forecast.dead_letter_max(), "max_seconds", Bound::AtMost),
        ];
        Ok(Some((result, (curve, lines))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (curves, lines): (Vec<Curve>, Vec<[ForecastLine; 2]>) = rest.into_iter().unzip();
    let forecasts = lines.into_iter().flatten().collect();
    let plot = Plot::new("time", "Time to a dead letter", "seconds", "share that is a dead letter", curves);
    let plots = vec![plot.y_scale(Scale::Share)];
    Ok(Outcome { columns: columns(), variants, forecasts, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("attempts, least", "attempts_min", Unit::Count),
        Column::new("most", "attempts_max", Unit::Count),
        Column::new("time to dead letter, least", "min_seconds", Unit::Seconds),
        Column::new("p50", "p50_seconds", Unit::Seconds),
        Column::new("most", "max_seconds", Unit::Seconds),
    ]
}

fn measure(name: &str, trace: &Trace) -> (VariantResult, Curve) {
    let dead = || trace.arrived().map(|(_, record)| record).filter(|record| record.is_dead());
    // From the first attempt: the wait before it depends on the machine.
    let took: Vec<u32> = dead().map(|record| record.ended_ms.saturating_sub(record.first_ms)).collect();
    let calls = |share| quantile(dead().map(|record| u32::from(record.calls)), share);
    let seconds = |share| quantile(took.iter().copied(), share) / 1000.0;
    let result = VariantResult::new(name, Some(trace.audit))
        .with("attempts_min", calls(0.0))
        .with("attempts_max", calls(1.0))
        .with("min_seconds", seconds(0.0))
        .with("p50_seconds", seconds(0.5))
        .with("max_seconds", seconds(1.0));
    let of = took.len();
    (result, Curve::share_over_seconds(name, took, of))
}
