//! The inputs of every experiment, such as seed, size and progress reporting, and helpers that most of them share.

use std::sync::Arc;

use redrive::{Mode, Policy};
use redrive_core::PolicyBuilder;
use redrive_core::forecast::RetryLoad;
use serde::de::DeserializeOwned;

use super::fault::LabError;
use crate::results::{Bound, ForecastLine, Unit, VariantResult};
use crate::scenario::{Clock, Scenario, Size, Span, Variant};
#[cfg(not(feature = "kafka"))]
use crate::testbed::Error;
#[cfg(feature = "kafka")]
use crate::testbed::kafka::{run as on_kafka, run_with as logged_on_kafka};
use crate::testbed::{CallLog, Load, RunEnd, Stage, Subject, Trace, Watch, real, simulated};

/// Variants of a full run on Kafka that run concurrently; each is a pipeline with about ten clients.
const KAFKA_SIDE_BY_SIDE: usize = 12;

/// The engine for scenarios on the real clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabEngine<'a> {
    #[default]
    Embedded,
    /// A broker at this address.
    Kafka(&'a str),
}

#[derive(Clone, Copy)]
pub struct ExperimentSetup<'a> {
    pub seed: u64,
    pub size: Size,
    pub engine: LabEngine<'a>,
    /// The database for effects, for experiments that can use one.
    pub postgres: Option<&'a str>,
    /// The command of a process to kill.
    pub victim: &'a [String],
    pub watch: &'a dyn Watch,
}

impl std::fmt::Debug for ExperimentSetup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExperimentSetup")
            .field("seed", &self.seed)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// The result of each variant with its additional data; `None` where interrupted.
pub type Each<T> = Vec<Option<(VariantResult, T)>>;

impl ExperimentSetup<'_> {
    /// Runs the load on the clock of the scenario; `None` if interrupted.
    pub fn play(
        &self,
        scenario: &Scenario,
        load: &Load,
        subject: &Subject,
        stage: Stage<'_>,
    ) -> Result<Option<Trace>, LabError> {
        let played = match (scenario.clock, self.engine) {
            (Clock::Real, LabEngine::Embedded) => real::run(load, subject, stage),
            (Clock::Real, LabEngine::Kafka(brokers)) => on_kafka(load, subject, brokers, stage),
            (Clock::Virtual | Clock::Model, _) => simulated::run(load, subject, stage).map_err(Into::into),
        };
        played.map_err(|error| LabError::Run(error.to_string()))
    }

    /// Runs the load on the real clock with the given log; `None` if interrupted.
    pub fn play_with(
        &self,
        load: &Load,
        subject: &Subject,
        log: Arc<dyn CallLog>,
        stage: Stage<'_>,
    ) -> Result<Option<RunEnd>, LabError> {
        let played = match self.engine {
            LabEngine::Embedded => real::run_with(load, subject, log, stage),
            LabEngine::Kafka(brokers) => logged_on_kafka(load, subject, brokers, log, stage),
        };
        played.map_err(|error| LabError::Run(error.to_string()))
    }

    /// How many variants that mostly wait may run concurrently.
    fn side_by_side(&self) -> usize {
        match self.engine {
            LabEngine::Kafka(_) if !self.size.quick => KAFKA_SIDE_BY_SIDE,
            LabEngine::Kafka(_) | LabEngine::Embedded => usize::MAX,
        }
    }

    /// Runs every variant. Variants that mostly wait, as in a quick run on the real clock, run concurrently.
    pub fn each<P, T>(
        &self,
        scenario: &Scenario,
        run: impl Fn(&Variant<P>, Stage<'_>) -> Result<Option<(VariantResult, T)>, LabError> + Sync,
    ) -> Result<Each<T>, LabError>
    where
        P: DeserializeOwned + Sync,
        T: Send,
    {
        let variants = scenario.variants::<P>(self.size)?;
        let (of, watch) = (variants.len(), self.watch);
        let one = |i: usize| run(&variants[i], Stage::of(watch, &variants[i].name, i, of));
        if scenario.clock != Clock::Real || !(self.size.quick || scenario.side_by_side) {
            return (0..of).map(one).collect();
        }
        let one = &one;
        let mut ended = Vec::with_capacity(of);
        for first in (0..of).step_by(self.side_by_side()) {
            let last = first.saturating_add(self.side_by_side()).min(of);
            ended.extend(std::thread::scope(|scope| {
                let threads: Vec<_> = (first..last).map(|i| scope.spawn(move || one(i))).collect();
                let end = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread.join().unwrap_or_else(|_| Err(LabError::Run("a variant panicked".to_owned())))
                };
                threads.into_iter().map(end).collect::<Vec<_>>()
            }));
        }
        ended.into_iter().collect()
    }
}

/// Reports the progress of one part of a longer run.
struct PartWatch<'a> {
    watch: &'a dyn Watch,
    part: usize,
    of: usize,
}

impl Watch for PartWatch<'_> {
    fn progress(&self, done: f64, doing: &str) {
        self.watch.progress((self.part as f64 + done) / self.of as f64, doing);
    }

    fn is_interrupted(&self) -> bool {
        self.watch.is_interrupted()
    }
}

impl ExperimentSetup<'_> {
    /// Runs every variant `times` times, taking turns, so that changes on the machine affect all of them alike.
    /// Figures are medians; for those in `spread`, minimum and maximum are kept as `NAME_least` and `NAME_most`. The
    /// additional data is that of the last turn.
    pub fn by_turns<P, T>(
        &self,
        scenario: &Scenario,
        (times, spread): (usize, &[&str]),
        run: impl Fn(&Variant<P>, Stage<'_>) -> Result<Option<(VariantResult, T)>, LabError> + Sync,
        compare: impl Fn(Vec<VariantResult>) -> Vec<VariantResult>,
    ) -> Result<(Vec<VariantResult>, Vec<T>, bool), LabError>
    where
        P: DeserializeOwned + Sync,
        T: Send,
    {
        let (mut turns, mut last) = (Vec::new(), Vec::new());
        for part in 0..times {
            let watch = PartWatch { watch: self.watch, part, of: times };
            let (variants, rest, is_partial) =
                complete(ExperimentSetup { watch: &watch, ..*self }.each(scenario, &run)?);
            if is_partial {
                // Keep the complete turns and drop the partial one, unless it is the first.
                let is_first = turns.is_empty();
                let (variants, rest) =
                    if is_first { (compare(variants), rest) } else { (medians(&turns, spread), last) };
                return Ok((variants, rest, true));
            }
            turns.push(compare(variants));
            last = rest;
        }
        Ok((medians(&turns, spread), last, false))
    }
}

/// The medians of every variant over all turns.
fn medians(turns: &[Vec<VariantResult>], spread: &[&str]) -> Vec<VariantResult> {
    let of = |(index, first): (usize, &VariantResult)| {
        let runs: Vec<&VariantResult> = turns.iter().map(|turn| &turn[index]).collect();
        let audit = runs.iter().filter_map(|run| run.audit).reduce(|sum, audit| sum.plus(&audit));
        first.figures.keys().fold(VariantResult::new(&first.name, audit), |result, figure| {
            let mut values: Vec<f64> = runs.iter().map(|run| run.get(figure)).collect();
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            let result = result.with(figure, values[values.len() / 2]);
            if !spread.contains(&figure.as_str()) {
                return result;
            }
            result.with(&format!("{figure}_least"), least).with(&format!("{figure}_most"), most)
        })
    };
    turns.first().into_iter().flatten().enumerate().map(of).collect()
}

#[cfg(not(feature = "kafka"))]
const NO_KAFKA: &str = "this build has no Kafka engine; build it with the feature `kafka`";

#[cfg(not(feature = "kafka"))]
fn on_kafka(_: &Load, _: &Subject, _: &str, _: Stage<'_>) -> Result<Option<Trace>, Error> {
    Err(NO_KAFKA.into())
}

#[cfg(not(feature = "kafka"))]
fn logged_on_kafka(
    _: &Load,
    _: &Subject,
    _: &str,
    _: Arc<dyn CallLog>,
    _: Stage<'_>,
) -> Result<Option<RunEnd>, Error> {
    Err(NO_KAFKA.into())
}

/// The complete variants, and whether any is missing.
pub fn complete<T>(each: Each<T>) -> (Vec<VariantResult>, Vec<T>, bool) {
    let is_partial = each.iter().any(Option::is_none);
    let (variants, rest) = each.into_iter().flatten().unzip();
    (variants, rest, is_partial)
}

/// Parses `blocking`; anything else is non-blocking.
pub fn mode(name: &str) -> Mode {
    if name == "blocking" { Mode::Blocking } else { Mode::NonBlocking }
}

/// A policy with these delays.
pub fn tiers(spans: &[Span]) -> PolicyBuilder {
    Policy::tiers(spans.iter().map(|span| span.0))
}

/// The same without jitter, classification and outage gate, which would change the answer of most experiments.
pub fn unprotected(spans: &[Span]) -> PolicyBuilder {
    tiers(spans).jitter("none").classify(false).outage_gate(false)
}

/// Adds `ratio`: the figure relative to the first variant, which has no failures or no protection.
pub fn against_first(variants: Vec<VariantResult>, figure: &str, ratio: &str) -> Vec<VariantResult> {
    let first = variants.first().map_or(f64::NAN, |first| first.get(figure));
    let compared = |variant: VariantResult| {
        let value = variant.get(figure) / first;
        variant.with(ratio, value)
    };
    variants.into_iter().map(compared).collect()
}

/// Compares messages per tier with the forecast of `check`; leaves out tiers without an expected message.
pub fn tier_lines(name: &str, forecast: &RetryLoad, measured: &[f64], messages: u64) -> Vec<ForecastLine> {
    let line = |(tier, (expected, measured)): (usize, (&f64, &f64))| {
        // Random fates vary around the shares.
        let by = 4.0 * (expected * (1.0 - expected) / messages.max(1) as f64).sqrt();
        let what = format!("messages in tier {} at {name}", tier + 1);
        ForecastLine::new(&what, Unit::Share, *expected, *measured, Bound::About(by)).of(messages)
    };
    let tiers = forecast.retries.iter().zip(measured).enumerate();
    tiers.filter(|(_, (expected, _))| **expected > 0.0).map(line).collect()
}

pub fn built(policy: &PolicyBuilder) -> Result<Policy, LabError> {
    policy.build().map_err(|faults| LabError::Run(faults.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Audit;

    #[test]
    fn of_turns_the_median_counts_with_its_spread_and_every_audit() {
        let turn =
            |ms: f64, audit: Audit| vec![VariantResult::new("a", Some(audit)).with("ms", ms).with("n", ms)];
        let good = Audit { produced: 2, succeeded: 2, engine_accepted: 2, ..Audit::default() };
        let bad = Audit { applied_twice: 1, ..good };
        let turns = [turn(4.0, good), turn(37.0, bad), turn(5.0, good)];
        let result = medians(&turns, &["ms"]).remove(0);
        let figures: Vec<f64> = ["ms", "ms_least", "ms_most", "n"].map(|figure| result.get(figure)).to_vec();
        assert_eq!(figures, [5.0, 4.0, 37.0, 5.0]);
        assert!(result.get("n_least").is_nan());
        let audit = result.audit.unwrap();
        assert!(
            audit.produced == 6 && !audit.balances(),
            "one that does not balance is not outvoted: {audit}"
        );
    }
}
