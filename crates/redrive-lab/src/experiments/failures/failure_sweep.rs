//! A growing share of messages fails at first: throughput, number of retries, records per message.

use std::time::Duration;

use redrive_core::forecast::Shares;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, against_first, built, complete, mode, tier_lines, unprotected};
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
    /// Saturates the engine instead of using `rate`.
    saturated: bool,
    /// When saturated: how long messages arrive, how many wait for their first call at any time, and a rate that is
    /// never reached.
    saturated_for: Span,
    waiting: u64,
    rate_max: f64,
    /// `blocking` breaks the claim.
    #[serde(default)]
    mode: String,
}

impl FailureSweepParameters {
    fn load(&self, seed: u64) -> Load {
        let rates = Rates { poison: self.poison.0, transient: self.transient.0 };
        let steady = if self.saturated {
            let steady = Load::steady(seed, self.rate_max, self.saturated_for.0);
            Load { waiting: Some(self.waiting), ..steady }
        } else {
            Load::steady(seed, self.rate, self.arrive_for.0)
        };
        Load { fates: Fates::Rates(rates), follow: Duration::from_mins(1), ..steady }
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &FailureSweepParameters = &variant.parameters;
        let load = p.load(setup.seed);
        let policy = built(&unprotected(&p.tiers).mode(mode(&p.mode)))?;
        let shares = Shares {
            transient: p.transient.0.as_f64(),
            failing_twice: 1.0 / 3.0,
            poison: p.poison.0.as_f64(),
        };
        let forecast = policy.forecast().load(shares);
        let trace = setup.play(scenario, &load, &Subject::plain(policy, p.concurrency), stage)?;
        let Some(trace) = trace else { return Ok(None) };
        let (result, curve) = measure(&variant.name, &trace, p);
        // Random fates vary around the shares.
        let by = 3.0 * (3.0 / trace.audit.produced.max(1) as f64).sqrt();
        let (what, measured) =
            (format!("records per message at {}", variant.name), result.get("amplification"));
        let line = ForecastLine::new(&what, Unit::Times, forecast.amplification, measured, Bound::About(by));
        let tiers =
            tier_lines(&variant.name, &forecast, &trace.tier_load(p.tiers.len()), trace.audit.produced);
        Ok(Some((result, (p.saturated, curve, std::iter::once(line).chain(tiers).collect::<Vec<_>>()))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (mut compared, mut forecasts) = (Vec::new(), Vec::new());
    let mut plots = Vec::new();
    for (is_saturated, name, title) in [
        (false, "calls", "Calls of the downstream"),
        (true, "saturated", "Calls of the downstream, saturated"),
    ] {
        let (mut same, mut curves) = (Vec::new(), Vec::new());
        let of_kind = variants.iter().zip(&rest).filter(|(_, (saturated, ..))| *saturated == is_saturated);
        for (variant, (_, curve, lines)) in of_kind {
            same.push(variant.clone());
            curves.push(curve.clone());
            forecasts.extend(lines.iter().cloned());
        }
        compared.extend(against_first(same, "first_attempts_per_second", "happy_ratio"));
        plots.push(Plot::new(name, title, "seconds", "calls per second", curves));
    }
    let variants = compared;
    Ok(Outcome { columns: columns(), variants, forecasts, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("first attempts", "first_attempts_per_second", Unit::PerSecond),
        Column::new("of no failures", "happy_ratio", Unit::Share),
        Column::new("of the most that arrives", "of_limit", Unit::Share),
        Column::new("retries", "retries", Unit::Count),
        Column::new("records per message", "amplification", Unit::Times),
        Column::new("transient that recovered", "recovered", Unit::Share),
        Column::new("once failed, end to end p99", "once_failed_p99_ms", Unit::Milliseconds),
    ]
}

/// First attempts per second, from the time when all tiers return retries until arrivals end.
fn first_attempts(trace: &Trace, p: &FailureSweepParameters) -> f64 {
    if !p.saturated {
        return trace.first_attempts_per_second();
    }
    let (from, to) = (p.tiers.iter().map(|tier| tier.0).sum::<Duration>(), p.saturated_for.0);
    let span = from.as_millis() as u32..to.as_millis() as u32;
    let count = trace.arrived().filter(|(_, record)| span.contains(&record.first_ms)).count();
    count as f64 / to.saturating_sub(from).as_secs_f64()
}

fn measure(name: &str, trace: &Trace, p: &FailureSweepParameters) -> (VariantResult, Curve) {
    let audit = trace.audit;
    let retries = trace.total_calls().saturating_sub(audit.produced) as f64;
    let transient = || {
        let is = |number| matches!(trace.load.fate(number), Fate::Transient { .. });
        trace.arrived().filter(move |(number, _)| is(*number))
    };
    let recovered = transient().filter(|(_, record)| record.has_succeeded()).count() as f64;
    let once = trace.arrived().filter(|(_, record)| record.calls == 2 && record.has_succeeded());
    let result = VariantResult::new(name, Some(audit))
        .with("first_attempts_per_second", first_attempts(trace, p))
        .with("retries", retries)
        .with("amplification", trace.amplification())
        .with("recovered", recovered / transient().count() as f64)
        .with("once_failed_p99_ms", quantile(once.map(|(_, record)| record.took_ms()), 0.99));
    let of_limit = if p.saturated { first_attempts(trace, p) / p.rate_max } else { f64::NAN };
    (result.with("of_limit", of_limit), Curve::new(name, trace.calls_per_second()))
}
