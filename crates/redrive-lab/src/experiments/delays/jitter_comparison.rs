//! Repeats AWS's comparison of jitters with the jitter of the library: clients contend for one row.
//!
//! The model is that of the published simulator (aws-samples/aws-arch-backoff-simulator): a client reads the version
//! of a row, writes it back, and backs off if another client was faster; each network hop takes 10 ms, with a
//! standard deviation of 2 ms.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use redrive_core::jitter::Unspread;
use redrive_core::{Jitter, Random, SplitMix64};
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, complete};
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::Scenario;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JitterComparisonParameters {
    clients: u32,
    /// Number of runs; the mean is reported.
    runs: u32,
    base_ms: u64,
    cap_ms: u64,
    net_mean_ms: f64,
    net_deviation_ms: f64,
    /// `off` retries at once.
    backoff: String,
}

/// Number of calls, and the time until the last client was done.
#[derive(Clone, Copy, Debug, Default)]
struct Contest {
    calls: f64,
    completion_ms: f64,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &JitterComparisonParameters = &variant.parameters;
        let jitter = match p.backoff.as_str() {
            "off" => None,
            word => {
                let jitter = word.parse::<Jitter>();
                Some(jitter.map_err(|fault| LabError::Run(fault.to_string()))?)
            }
        };
        let mut points = Vec::new();
        let steps = 10.min(p.clients);
        for step in 1..=steps {
            if stage.is_interrupted() {
                return Ok(None);
            }
            let clients = p.clients * step / steps;
            points.push((f64::from(clients), contest(p, jitter, clients, setup.seed)));
            stage.share(f64::from(step) / f64::from(steps));
        }
        let all = points.last().map_or(Contest::default(), |point| point.1);
        let result = VariantResult::new(&variant.name, None)
            .with("calls", all.calls)
            .with("completion_ms", all.completion_ms);
        let curve = |of: fn(&Contest) -> f64| {
            Curve::new(
                &variant.name,
                points.iter().map(|(clients, contest)| (*clients, of(contest))).collect(),
            )
        };
        Ok(Some((result, [curve(|contest| contest.calls), curve(|contest| contest.completion_ms)])))
    })?;
    let (variants, curves, is_partial) = complete(each);
    let columns = vec![
        Column::new("calls", "calls", Unit::Count),
        Column::new("time to completion", "completion_ms", Unit::Milliseconds),
    ];
    let (calls, times) = curves.into_iter().map(|[calls, times]| (calls, times)).unzip();
    let plots = vec![
        Plot::new("calls", "Calls until every client is done", "clients", "calls", calls)
            .y_scale(Scale::Log(10.0)),
        Plot::new("time", "Time until every client is done", "clients", "milliseconds", times)
            .y_scale(Scale::Log(100.0)),
    ];
    Ok(Outcome { columns, variants, plots, is_partial, ..Outcome::default() })
}

fn contest(p: &JitterComparisonParameters, jitter: Option<Jitter>, clients: u32, seed: u64) -> Contest {
    let mut sum = Contest::default();
    for run in 0..p.runs {
        let mut random = SplitMix64::new(seed ^ (u64::from(run) << 32) ^ u64::from(clients));
        let one = once(p, jitter, clients, &mut random);
        sum.calls += one.calls / f64::from(p.runs);
        sum.completion_ms += one.completion_ms / f64::from(p.runs);
    }
    sum
}

#[derive(Clone, Copy, Debug)]
enum ModelStep {
    /// The read arrives at the row.
    Read,
    /// The response to the read, a version, arrives at the client.
    Version(u64),
    /// The write arrives at the row.
    Write(u64),
    /// The response to the write arrives at the client.
    Written(bool),
}

/// A pending event. Ordered in reverse, so that the heap yields the earliest first.
#[derive(Debug)]
struct ModelEvent {
    at_ms: f64,
    client: usize,
    step: ModelStep,
}

impl PartialEq for ModelEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ModelEvent {}

impl PartialOrd for ModelEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ModelEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_ms.total_cmp(&self.at_ms).then(other.client.cmp(&self.client))
    }
}

fn once(
    p: &JitterComparisonParameters,
    jitter: Option<Jitter>,
    clients: u32,
    random: &mut SplitMix64,
) -> Contest {
    let mut queue = BinaryHeap::new();
    let hop = |random: &mut SplitMix64| normal(random, p.net_mean_ms, p.net_deviation_ms).abs();
    for client in 0..clients as usize {
        queue.push(ModelEvent { at_ms: hop(random), client, step: ModelStep::Read });
    }
    let mut failures = vec![0_u32; clients as usize];
    let mut previous_ms = vec![0_u64; clients as usize];
    let (mut version, mut calls, mut now) = (0_u64, 0_u64, 0.0);
    while let Some(ModelEvent { at_ms, client, step }) = queue.pop() {
        now = at_ms;
        let (wait_ms, next) = match step {
            ModelStep::Read => (0.0, ModelStep::Version(version)),
            ModelStep::Version(seen) => (0.0, ModelStep::Write(seen)),
            ModelStep::Write(seen) => {
                calls += 1;
                let wins = seen == version;
                version += u64::from(wins);
                (0.0, ModelStep::Written(wins))
            }
            ModelStep::Written(true) => continue,
            ModelStep::Written(false) => {
                failures[client] += 1;
                let delay_ms = p.base_ms.saturating_mul(1 << failures[client].min(32)).min(p.cap_ms);
                let unspread = Unspread {
                    delay_ms,
                    cap_ms: p.cap_ms,
                    base_ms: p.base_ms,
                    previous_ms: previous_ms[client],
                };
                let wait_ms = jitter.map_or(0, |jitter| jitter.apply(unspread, Random(random.draw())));
                previous_ms[client] = wait_ms;
                (wait_ms as f64, ModelStep::Read)
            }
        };
        queue.push(ModelEvent { at_ms: now + wait_ms + hop(random), client, step: next });
    }
    Contest { calls: calls as f64, completion_ms: now }
}

/// The Box–Muller transform.
fn normal(random: &mut SplitMix64, mean: f64, deviation: f64) -> f64 {
    let mut unit = || Random(random.draw()).unit();
    let (a, b) = (1.0 - unit(), unit());
    mean + deviation * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}
