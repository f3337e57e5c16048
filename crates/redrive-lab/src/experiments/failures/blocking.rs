//! Blocking against non-blocking retries: how a failing message affects the messages behind it.

use std::time::Duration;

use redrive_core::Ratio;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, against_first, built, complete, mode, unprotected};
use crate::fate::{Fate, Rates};
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::trace::quantile;
use crate::testbed::{Fates, Load, Subject, Trace, engine_metrics};

/// Number of points on a curve that the lab computes itself.
const STEPS: u32 = 60;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockingParameters {
    rate: f64,
    arrive_for: Span,
    tiers: Vec<Span>,
    mode: String,
    partitions: u32,
    transient: Share,
    poison: Share,
    /// A single message is poison, one tenth into the run.
    one_poison: bool,
}

impl BlockingParameters {
    fn load(&self, seed: u64) -> Load {
        let (poison, transient) = (self.poison.0, self.transient.0);
        let plain = Load::steady(seed, self.rate, self.arrive_for.0);
        let fates = if self.one_poison {
            Fates::OnePoison(plain.paced() / 10)
        } else {
            Fates::Rates(Rates { poison, transient })
        };
        Load { fates, lanes: self.partitions, ..plain }
    }

    fn fails(&self) -> bool {
        self.poison.0 != Ratio::ZERO || self.transient.0 != Ratio::ZERO
    }

    /// Allows one call at a time per partition, like a consumer of that partition.
    fn subject(&self) -> Result<Subject, LabError> {
        let policy = unprotected(&self.tiers).mode(mode(&self.mode));
        Ok(Subject::plain(built(&policy)?, 1))
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let parameters: &BlockingParameters = &variant.parameters;
        let (load, subject) = (parameters.load(setup.seed), parameters.subject()?);
        let trace = setup.play(scenario, &load, &subject, stage)?;
        Ok(trace.map(|trace| {
            let is_drawn = parameters.one_poison || parameters.fails();
            (measure(&variant.name, &trace), draw(&variant.name, &trace, parameters.one_poison, is_drawn))
        }))
    })?;
    let (variants, drawn, is_partial) = complete(each);
    let variants = against_first(variants, "first_attempts_per_second", "happy_ratio");
    let plots = plots(drawn);
    Ok(Outcome { columns: columns(), variants, plots, is_partial, ..Outcome::default() })
}

/// The curves of one variant.
struct DrawnVariant {
    is_one_poison: bool,
    /// One curve per partition; empty for the variant without failures, which is flat.
    lag: Vec<Curve>,
    wait: Vec<Curve>,
    stall: Curve,
}

/// Plots lag and stall per partition, with many failures and with one poison message, and the engine's stall for all
/// variants.
fn plots(drawn: Vec<DrawnVariant>) -> Vec<Plot> {
    let (mut lag, mut wait, mut stall) = ([vec![], vec![]], [vec![], vec![]], vec![]);
    for variant in drawn {
        let group = usize::from(variant.is_one_poison);
        lag[group].extend(variant.lag);
        wait[group].extend(variant.wait);
        stall.push(variant.stall);
    }
    let plot =
        |name: &str, title: &str, y: &str, curves: Vec<Curve>| Plot::new(name, title, "seconds", y, curves);
    let ([lag_many, lag_one], [wait_many, wait_one]) = (lag, wait);
    let (messages, seconds) = ("messages without a first attempt", "seconds without a first attempt");
    vec![
        plot("lag", "Lag of each partition, 15 % + 1 % failures (redrive_lag)", messages, lag_many),
        plot("lag-one-poison", "Lag of each partition, one poison message (redrive_lag)", messages, lag_one),
        plot(
            "stall",
            "Wait of the oldest message of each partition, 15 % + 1 % failures (redrive_stall_oldest_seconds)",
            seconds,
            wait_many,
        ),
        plot(
            "stall-one-poison",
            "Wait of the oldest message of each partition, one poison message (redrive_stall_oldest_seconds)",
            seconds,
            wait_one,
        ),
        plot(
            "stall-metric",
            "Mean stall of messages that started (redrive_stall_seconds)",
            "milliseconds",
            stall,
        )
        .y_scale(Scale::Log(1.0)),
    ]
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("first attempts", "first_attempts_per_second", Unit::PerSecond),
        Column::new("of no failures", "happy_ratio", Unit::Share),
        Column::new("lag at the end", "lag_end", Unit::Count),
        Column::new("by the engine's metric", "engine_lag_end", Unit::Count),
        Column::new("share of all", "lag_end_share", Unit::Share),
        Column::new("worst partition", "worst_partition_lag_share", Unit::Share),
        Column::new("lag growth there", "worst_partition_growth", Unit::PerSecond),
        Column::new("stall of good messages p50", "stall_p50_ms", Unit::Milliseconds),
        Column::new("p99", "stall_p99_ms", Unit::Milliseconds),
    ]
}

fn draw(name: &str, trace: &Trace, is_one_poison: bool, is_drawn: bool) -> DrawnVariant {
    let partitions = if is_drawn { trace.load.lanes } else { 0 };
    // The plot title shows the rest.
    let mode = name.split(',').next().unwrap_or(name);
    let each = |points: &dyn Fn(u32) -> Vec<(f64, f64)>| {
        (0..partitions).map(|at| Curve::new(&format!("{mode}, partition {at}"), points(at))).collect()
    };
    DrawnVariant {
        is_one_poison,
        lag: each(&|at| engine_metrics::lag(&trace.metrics, at as usize)),
        wait: each(&|at| engine_metrics::oldest(&trace.metrics, at as usize)),
        stall: Curve::new(name, engine_metrics::stall(&trace.metrics)),
    }
}

fn measure(name: &str, trace: &Trace) -> VariantResult {
    let load = &trace.load;
    let step = load.arrive_for / STEPS;
    let arriving = load.arrive_for.as_secs_f64();
    let during = |points: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
        points.into_iter().filter(|point| point.0 <= arriving + 1e-9).collect()
    };
    let lanes: Vec<Vec<(f64, f64)>> =
        (0..load.lanes.max(1)).map(|lane| during(trace.lag(Some(lane), step))).collect();
    let at_end = |lag: &[(f64, f64)]| lag.last().map_or(0.0, |point| point.1);
    let lag_end: f64 = lanes.iter().map(|lag| at_end(lag)).sum();
    let worst = lanes.iter().max_by(|a, b| at_end(a).total_cmp(&at_end(b))).cloned().unwrap_or_default();
    let produced = trace.audit.produced.max(1) as f64;
    let stall = |share: f64| quantile(stalls(trace), share);
    let climbing = worst.windows(2).filter(|pair| pair[1].1 >= pair[0].1).count() as f64;
    let engine_lag: u64 = trace.metrics.last().map_or(0, |sample| sample.lag.iter().sum());
    VariantResult::new(name, Some(trace.audit))
        .with("first_attempts_per_second", trace.first_attempts_per_second())
        .with("lag_end", lag_end)
        .with("lag_end_share", lag_end / produced)
        .with("engine_lag_end", engine_lag as f64)
        .with("worst_partition_lag_share", at_end(&worst) * f64::from(load.lanes.max(1)) / produced)
        .with("worst_partition_growth", at_end(&worst) / arriving)
        .with("worst_partition_climbs", climbing / worst.len().saturating_sub(1).max(1) as f64)
        .with("stall_p50_ms", stall(0.5))
        .with("stall_p99_ms", stall(0.99))
        .with("stall_p50_share", stall(0.5) / load.arrive_for.as_millis() as f64)
}

/// How long each good message that arrived during the run waited for its first attempt, or has waited so far.
fn stalls(trace: &Trace) -> Vec<u32> {
    let end = duration_ms(trace.load.arrive_for);
    let good = trace.arrived().filter(|(number, _)| trace.load.fate(*number) == Fate::Success);
    good.map(|(_, record)| {
        record.first_ms.min(end.max(record.arrived_ms)) - record.arrived_ms.min(record.first_ms)
    })
    .collect()
}

fn duration_ms(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}
