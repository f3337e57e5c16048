//! Order by key: how often a later message overtakes a failed one, and the cost of preventing it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use redrive::DeliveryOrder;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, against_first, built, mode, unprotected};
use crate::fate::Rates;
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span, Variant};
use crate::testbed::trace::quantile;
use crate::testbed::{Fates, Load, Stage, Subject, Trace};

/// Figures that are so close to each other that the difference in a single run may be noise.
const SPREAD: [&str; 2] = ["good_p99_ms", "throughput_ratio"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderingParameters {
    rate: f64,
    arrive_for: Span,
    tiers: Vec<Span>,
    transient: Share,
    poison: Share,
    keys: u64,
    ordering: String,
    concurrency: u32,
    /// How often each variant runs; variants take turns.
    runs: usize,
    /// `blocking` breaks the claim.
    #[serde(default)]
    mode: String,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let runs =
        scenario.variants::<OrderingParameters>(setup.size)?.first().map_or(1, |first| first.parameters.runs);
    let compare = |variants| against_first(variants, "succeeded_per_second", "throughput_ratio");
    let play = |variant: &Variant<OrderingParameters>, stage: Stage<'_>| {
        let p = &variant.parameters;
        let rates = Rates { poison: p.poison.0, transient: p.transient.0 };
        let load = Load {
            fates: Fates::Rates(rates),
            keys: p.keys,
            follow: Duration::from_mins(3),
            ..Load::steady(setup.seed, p.rate, p.arrive_for.0)
        };
        let ordering = if p.ordering == "key" { DeliveryOrder::Key } else { DeliveryOrder::None };
        let policy = built(&unprotected(&p.tiers).mode(mode(&p.mode)))?;
        let subject = Subject { ordering, ..Subject::plain(policy, p.concurrency) };
        let trace = setup.play(scenario, &load, &subject, stage)?;
        Ok(trace.map(|trace| measure(&variant.name, &trace)))
    };
    let (variants, curves, is_partial) = setup.by_turns(scenario, (runs, &SPREAD), play, compare)?;
    let title = "End to end, messages that do not fail themselves";
    let plot = Plot::new("end-to-end", title, "share of the messages, %", "milliseconds", curves);
    let plots = vec![plot.y_scale(Scale::Log(1.0))];
    Ok(Outcome { columns: columns(), variants, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("out of order", "out_of_order", Unit::Share),
        Column::new("throughput", "succeeded_per_second", Unit::PerSecond),
        Column::new("of no lock", "throughput_ratio", Unit::Share),
        Column::new("p99 good key, median run", "good_p99_ms", Unit::Milliseconds),
        Column::new("best run", "good_p99_ms_least", Unit::Milliseconds),
        Column::new("worst run", "good_p99_ms_most", Unit::Milliseconds),
        Column::new("tenths of a second with one of its slowest percent", "slowest_in", Unit::Share),
        Column::new("p99 blocked key", "blocked_p99_ms", Unit::Milliseconds),
        Column::new("messages behind a failed one", "blocked_share", Unit::Share),
    ]
}

fn measure(name: &str, trace: &Trace) -> (VariantResult, Curve) {
    let (mut arrivals, blocked) = by_key(trace);
    let slowest = slowest_in(&mut arrivals, trace.load.arrive_for);
    let good: Vec<u32> = arrivals.into_iter().map(|(_, took)| took).collect();
    let during = trace.load.arrive_for.as_millis() as u32;
    let succeeded = trace.arrived().filter(|(_, r)| r.has_succeeded() && r.ended_ms < during).count();
    let all = (good.len() + blocked.len()).max(1) as f64;
    let result = VariantResult::new(name, Some(trace.audit))
        .with("out_of_order", trace.out_of_order())
        .with("succeeded_per_second", succeeded as f64 / trace.load.arrive_for.as_secs_f64())
        .with("good_p99_ms", quantile(good.iter().copied(), 0.99))
        .with("slowest_in", slowest)
        .with("blocked_p99_ms", quantile(blocked.iter().copied(), 0.99))
        .with("blocked_share", blocked.len() as f64 / all);
    let took: Vec<u32> = good.into_iter().chain(blocked).collect();
    let shares = Curve::share_over_ms(took, 0);
    (result, Curve::new(name, shares.into_iter().map(|(ms, share)| (share * 100.0, ms)).collect()))
}

/// The share of a run's tenths of a second in which any of the slowest 1 % arrived; `arrivals` holds `(arrived,
/// took)`. If the machine stalls, all slow messages arrive within a few tenths.
fn slowest_in(arrivals: &mut [(u32, u32)], of: Duration) -> f64 {
    arrivals.sort_unstable_by_key(|(_, took)| std::cmp::Reverse(*took));
    let tenths: HashSet<u32> =
        arrivals.iter().take(arrivals.len().div_ceil(100)).map(|(arrived, _)| arrived / 100).collect();
    tenths.len() as f64 / (of.as_secs_f64() * 10.0)
}

/// Splits the messages that succeeded at once by whether an earlier message of their key had failed and was still
/// unfinished on their arrival. Returns arrival and duration of the others, and the durations of those behind a
/// failed one.
fn by_key(trace: &Trace) -> (Vec<(u32, u32)>, Vec<u32>) {
    // Per key: when its last failed message ends.
    let mut failing_until: HashMap<u64, u32> = HashMap::new();
    let (mut good, mut blocked) = (Vec::new(), Vec::new());
    for (number, record) in trace.arrived() {
        let until = failing_until.entry(trace.load.key(number)).or_default();
        if record.calls == 1 && record.has_succeeded() {
            let took = record.took_ms();
            if *until > record.arrived_ms { blocked.push(took) } else { good.push((record.arrived_ms, took)) }
        } else {
            *until = (*until).max(record.ended_ms);
        }
    }
    (good, blocked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_percent_of_a_stall_arrived_together() {
        let second = Duration::from_secs(1);
        let took = |slow: &dyn Fn(u32) -> bool| {
            let mut all: Vec<(u32, u32)> = (0..1_000).map(|ms| (ms, if slow(ms) { 40 } else { 1 })).collect();
            slowest_in(&mut all, second)
        };
        assert!((took(&|ms| (500..510).contains(&ms)) - 0.1).abs() < 1e-9, "one of ten tenths");
        assert!((took(&|ms| ms % 100 == 0) - 1.0).abs() < 1e-9, "all over the run");
    }
}
