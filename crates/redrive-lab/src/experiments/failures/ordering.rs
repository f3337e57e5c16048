//! Order by key: how often a later message passes a failed one, and what it costs that none does.

use std::collections::HashMap;
use std::time::Duration;

use redrive::DeliveryOrder;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, against_first, built, complete, unprotected};
use crate::fate::Rates;
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::trace::quantile;
use crate::testbed::{Fates, Load, Subject, Trace};

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
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &OrderingParameters = &variant.parameters;
        let rates = Rates { poison: p.poison.0, transient: p.transient.0 };
        let load = Load {
            fates: Fates::Rates(rates),
            keys: p.keys,
            follow: Duration::from_mins(3),
            ..Load::steady(setup.seed, p.rate, p.arrive_for.0)
        };
        let ordering = if p.ordering == "key" { DeliveryOrder::Key } else { DeliveryOrder::None };
        let policy = built(&unprotected(&p.tiers))?;
        let subject = Subject { ordering, ..Subject::plain(policy, p.concurrency) };
        let trace = setup.play(scenario, &load, &subject, stage)?;
        Ok(trace.map(|trace| measure(&variant.name, &trace)))
    })?;
    let (variants, curves, is_partial) = complete(each);
    let variants = against_first(variants, "succeeded_per_second", "throughput_ratio");
    let title = "End to end, messages that do not fail themselves";
    let plot = Plot::new("end-to-end", title, "share of the messages, %", "milliseconds", curves);
    let plots = vec![plot.y_scale(Scale::Log(1.0))];
    Ok(Outcome { columns: columns(), variants, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("out of order", "out_of_order", Unit::Share),
        Column::new("throughput", "succeeded_per_second", Unit::PerSecond),
        Column::new("p99 good key", "good_p99_ms", Unit::Milliseconds),
        Column::new("p99 blocked key", "blocked_p99_ms", Unit::Milliseconds),
        Column::new("messages behind a failed one", "blocked_share", Unit::Share),
    ]
}

fn measure(name: &str, trace: &Trace) -> (VariantResult, Curve) {
    let (good, blocked) = by_key(trace);
    let during = trace.load.arrive_for.as_millis() as u32;
    let succeeded = trace.arrived().filter(|(_, r)| r.has_succeeded() && r.ended_ms < during).count();
    let all = (good.len() + blocked.len()).max(1) as f64;
    let result = VariantResult::new(name, Some(trace.audit))
        .with("out_of_order", trace.out_of_order())
        .with("succeeded_per_second", succeeded as f64 / trace.load.arrive_for.as_secs_f64())
        .with("good_p99_ms", quantile(good.iter().copied(), 0.99))
        .with("blocked_p99_ms", quantile(blocked.iter().copied(), 0.99))
        .with("blocked_share", blocked.len() as f64 / all);
    let took: Vec<u32> = good.into_iter().chain(blocked).collect();
    let shares = Curve::share_over_ms(took, 0);
    (result, Curve::new(name, shares.into_iter().map(|(ms, share)| (share * 100.0, ms)).collect()))
}

/// How long messages took that succeeded at once, by whether an earlier message of their key had failed and was not over
/// when they arrived.
fn by_key(trace: &Trace) -> (Vec<u32>, Vec<u32>) {
    // Until when the key has a failed message that is not over.
    let mut failing_until: HashMap<u64, u32> = HashMap::new();
    let (mut good, mut blocked) = (Vec::new(), Vec::new());
    for (number, record) in trace.arrived() {
        let until = failing_until.entry(trace.load.key(number)).or_default();
        if record.calls == 1 && record.has_succeeded() {
            let took = record.took_ms();
            if *until > record.arrived_ms { blocked.push(took) } else { good.push(took) }
        } else {
            *until = (*until).max(record.ended_ms);
        }
    }
    (good, blocked)
}
