//! More and more messages fail at first: throughput, volume of retries, records per message.

use std::time::Duration;

use redrive_core::forecast::Shares;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, against_first, built, complete, tier_lines, unprotected};
use crate::fate::{Fate, Rates};
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::trace::quantile;
use crate::testbed::{Fates, Load, Subject, Trace};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureSweepParameters {
    rate: f64,
    arrive_for: Span,
    tiers: Vec<Span>,
    transient: Share,
    poison: Share,
    concurrency: u32,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &FailureSweepParameters = &variant.parameters;
        let rates = Rates { poison: p.poison.0, transient: p.transient.0 };
        let load = Load {
            fates: Fates::Rates(rates),
            follow: Duration::from_mins(1),
            ..Load::steady(setup.seed, p.rate, p.arrive_for.0)
        };
        let policy = built(&unprotected(&p.tiers))?;
        let shares = Shares {
            transient: p.transient.0.as_f64(),
            failing_twice: 1.0 / 3.0,
            poison: p.poison.0.as_f64(),
        };
        let forecast = policy.forecast().load(shares);
        let trace = setup.play(scenario, &load, &Subject::plain(policy, p.concurrency), stage)?;
        let Some(trace) = trace else { return Ok(None) };
        let (result, curve) = measure(&variant.name, &trace);
        // Drawn fates scatter around the shares.
        let by = 3.0 * (3.0 / trace.audit.produced.max(1) as f64).sqrt();
        let (what, measured) =
            (format!("records per message at {}", variant.name), result.get("amplification"));
        let line = ForecastLine::new(&what, Unit::Times, forecast.amplification, measured, Bound::About(by));
        let tiers =
            tier_lines(&variant.name, &forecast, &trace.tier_load(p.tiers.len()), trace.audit.produced);
        Ok(Some((result, (curve, std::iter::once(line).chain(tiers).collect::<Vec<_>>()))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (curves, forecasts): (Vec<Curve>, Vec<Vec<ForecastLine>>) = rest.into_iter().unzip();
    let forecasts = forecasts.into_iter().flatten().collect();
    let variants = against_first(variants, "first_attempts_per_second", "happy_ratio");
    let plots = vec![Plot::new("calls", "Calls of the downstream", "seconds", "calls per second", curves)];
    Ok(Outcome { columns: columns(), variants, forecasts, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("first attempts", "first_attempts_per_second", Unit::PerSecond),
        Column::new("of no failures", "happy_ratio", Unit::Share),
        Column::new("retries", "retries", Unit::Count),
        Column::new("records per message", "amplification", Unit::Times),
        Column::new("transient that recovered", "recovered", Unit::Share),
        Column::new("once failed, end to end p99", "once_failed_p99_ms", Unit::Milliseconds),
    ]
}

fn measure(name: &str, trace: &Trace) -> (VariantResult, Curve) {
    let audit = trace.audit;
    let retries = trace.total_calls().saturating_sub(audit.produced) as f64;
    let transient = || {
        let is = |number| matches!(trace.load.fate(number), Fate::Transient { .. });
        trace.arrived().filter(move |(number, _)| is(*number))
    };
    let recovered = transient().filter(|(_, record)| record.has_succeeded()).count() as f64;
    let once = trace.arrived().filter(|(_, record)| record.calls == 2 && record.has_succeeded());
    let result = VariantResult::new(name, Some(audit))
        .with("first_attempts_per_second", trace.first_attempts_per_second())
        .with("retries", retries)
        .with("amplification", trace.amplification())
        .with("recovered", recovered / transient().count() as f64)
        .with("once_failed_p99_ms", quantile(once.map(|(_, record)| record.took_ms()), 0.99));
    (result, Curve::new(name, trace.calls_per_second()))
}
