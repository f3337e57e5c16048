//! How late retries start as the backlog grows.

use std::time::Duration;

use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, unprotected};
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Span};
use crate::testbed::trace::quantile;
use crate::testbed::{Burst, Fates, Load, Subject, Trace};

/// Times are recorded in whole milliseconds.
const ROUNDING_MS: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LatenessParameters {
    /// Messages that wait in the last tier from the beginning, in multiples of `thousand`.
    backlog: u64,
    /// The unit of `backlog`.
    thousand: u64,
    /// Rate of messages that fail once and are retried after `delay`.
    rate: f64,
    /// Arrivals before this time are not judged: the backlog is still moving through the tiers.
    settle: Span,
    judge: Span,
    /// Delay between the failure and the due time of the retry.
    delay: Span,
    tiers: Vec<Span>,
    concurrency: u32,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &LatenessParameters = &variant.parameters;
        let messages = p.backlog * p.thousand;
        let burst = (messages > 0).then_some(Burst { at: Duration::ZERO, messages });
        let load = Load {
            fates: Fates::FailOnceBesidePoisonBurst,
            burst,
            follow: p.delay.0 * 3,
            ..Load::steady(setup.seed, p.rate, p.settle.0 + p.judge.0)
        };
        let subject = Subject::plain(built(&unprotected(&p.tiers))?, p.concurrency);
        let Some(trace) = setup.play(scenario, &load, &subject, stage)? else { return Ok(None) };
        let (result, points) = measure(&variant.name, &trace, p);
        Ok(Some((result, (messages as f64, points))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let curve = |name: &str, which: usize| {
        let points = rest.iter().map(|(backlog, quantiles): &(f64, [f64; 3])| (*backlog, quantiles[which]));
        Curve::new(name, points.filter(|point| point.1.is_finite()).collect())
    };
    let curves = vec![curve("p50", 0), curve("p99", 1), curve("most", 2)];
    let title = "Lateness of retries, by the number of messages that wait beside them";
    let plot = Plot::new("lateness", title, "messages that wait", "milliseconds late", curves);
    let plots = vec![plot.x_scale(Scale::Log(1_000.0))];
    Ok(Outcome { columns: columns(), variants, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("retries", "retries", Unit::Count),
        Column::new("late p50", "late_p50_ms", Unit::Milliseconds),
        Column::new("p99", "late_p99_ms", Unit::Milliseconds),
        Column::new("most", "late_max_ms", Unit::Milliseconds),
        Column::new("early", "early_share", Unit::Share),
    ]
}

/// Measures from the first call, which fails at once, to the second, which succeeds at once: the delay plus the
/// lateness.
fn measure(name: &str, trace: &Trace, p: &LatenessParameters) -> (VariantResult, [f64; 3]) {
    let (settled, paced) = (p.settle.0.as_millis() as u32, trace.load.paced());
    let waits: Vec<u32> = trace
        .arrived()
        .filter(|(number, record)| {
            *number < paced && record.arrived_ms >= settled && record.calls == 2 && record.has_succeeded()
        })
        .map(|(_, record)| record.ended_ms.saturating_sub(record.first_ms))
        .collect();
    let delay_ms = p.delay.0.as_millis() as u32;
    let early = waits.iter().filter(|waited| **waited + ROUNDING_MS < delay_ms).count() as f64;
    let late = |share: f64| quantile(waits.iter().map(|waited| waited.saturating_sub(delay_ms)), share);
    let quantiles = [late(0.5), late(0.99), late(1.0)];
    let result = VariantResult::new(name, Some(trace.audit))
        .with("retries", waits.len() as f64)
        .with("late_p50_ms", quantiles[0])
        .with("late_p99_ms", quantiles[1])
        .with("late_max_ms", quantiles[2])
        .with("early_share", early / waits.len() as f64);
    (result, quantiles)
}
