//! Retrying permanent failures and not retrying transient ones: the cost of each mistake.

use std::time::Duration;

use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, unprotected};
use crate::fate::{Fate, Rates};
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::trace::quantile;
use crate::testbed::{Classes, Fates, Load, MessageRecord, Subject, Trace};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MisclassificationParameters {
    rate: f64,
    arrive_for: Span,
    tiers: Vec<Span>,
    transient: Share,
    poison: Share,
    classify: bool,
    poison_recognised: Share,
    transient_mistaken: Share,
    concurrency: u32,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &MisclassificationParameters = &variant.parameters;
        let rates = Rates { poison: p.poison.0, transient: p.transient.0 };
        let classes =
            Classes { poison_recognised: p.poison_recognised.0, transient_mistaken: p.transient_mistaken.0 };
        let load = Load {
            fates: Fates::Rates(rates),
            classes,
            follow: Duration::from_mins(1),
            ..Load::steady(setup.seed, p.rate, p.arrive_for.0)
        };
        let policy = built(&unprotected(&p.tiers).classify(p.classify))?;
        let waiting = policy.forecast().waiting_max;
        let trace = setup.play(scenario, &load, &Subject::plain(policy, p.concurrency), stage)?;
        let Some(trace) = trace else { return Ok(None) };
        let (result, curve) = measure(&variant.name, &trace);
        let line = (!p.classify).then(|| {
            let what = "time to a dead letter without classification: the sum of the tiers";
            let (sum, parked) = (waiting.as_secs_f64(), result.get("park_min_ms") / 1000.0);
            ForecastLine::new(what, Unit::Seconds, sum, parked, Bound::AtLeast)
        });
        Ok(Some((result, (curve, line))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (curves, lines): (Vec<Curve>, Vec<Option<ForecastLine>>) = rest.into_iter().unzip();
    let notes = boundary(&variants).into_iter().collect();
    let forecasts = lines.into_iter().flatten().collect();
    let title = "How long poison stays before it is parked";
    let plot = Plot::new("time-to-park", title, "seconds", "share of the poison that is parked", curves);
    let plots = vec![plot.x_scale(Scale::Log(0.001)).y_scale(Scale::Share)];
    Ok(Outcome { columns: columns(), variants, forecasts, plots, notes, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("attempts wasted on poison", "wasted", Unit::Count),
        Column::new("per poison message", "wasted_per_poison", Unit::Times),
        Column::new("time to park p50", "park_p50_ms", Unit::Milliseconds),
        Column::new("max", "park_max_ms", Unit::Milliseconds),
        Column::new("transient parked by mistake", "lost", Unit::Count),
        Column::new("of all transient", "lost_share", Unit::Share),
    ]
}

fn measure(name: &str, trace: &Trace) -> (VariantResult, Curve) {
    let of = |wanted: fn(Fate) -> bool| -> Vec<&MessageRecord> {
        let is = |number: u64| wanted(trace.load.fate(number));
        trace.arrived().filter(|(number, _)| is(*number)).map(|(_, record)| record).collect()
    };
    let poison = of(|fate| fate == Fate::Poison);
    let transient = of(|fate| matches!(fate, Fate::Transient { .. }));
    let wasted: u64 = poison.iter().map(|record| u64::from(record.calls.saturating_sub(1))).sum();
    let lost = transient.iter().filter(|record| record.is_dead()).count() as f64;
    let parked = || poison.iter().filter(|record| record.is_dead()).map(|record| record.took_ms());
    let result = VariantResult::new(name, Some(trace.audit))
        .with("wasted", wasted as f64)
        .with("wasted_per_poison", wasted as f64 / poison.len() as f64)
        .with("park_min_ms", quantile(parked(), 0.0))
        .with("park_p50_ms", quantile(parked(), 0.5))
        .with("park_max_ms", quantile(parked(), 1.0))
        .with("lost", lost)
        .with("lost_share", lost / transient.len() as f64);
    (result, Curve::share_over_seconds(name, parked(), poison.len()))
}

/// How to classify an error that may be either.
fn boundary(variants: &[VariantResult]) -> Option<String> {
    let named = |name: &str| variants.iter().find(|variant| variant.name == name);
    let (off, on) = (named("classification off")?, named("classification on")?);
    let calls = off.get("wasted_per_poison") - on.get("wasted_per_poison");
    let seconds = (off.get("park_p50_ms") - on.get("park_p50_ms")) / 1000.0;
    Some(format!(
        "A permanent error that is retried costs {calls:.1} calls in vain and {seconds:.1} s until somebody sees it, and nothing \
         else. A transient error that is parked costs a message that would have succeeded, and a person who replays it. With c for \
         a call, d for a second of delay and m for such a message, an error of which a share p is permanent belongs with the \
         transient ones while p < m / (m + {calls:.1} c + {seconds:.1} d). For example, with m = 100 c and d = 0: while p < {:.0} %.",
        100.0 * 100.0 / (100.0 + calls)
    ))
}
