//! What every experiment gets: seed, size, and somebody who watches. And what most of them do with it.

use redrive::Policy;
use redrive_core::PolicyBuilder;
use serde::de::DeserializeOwned;

use super::run::LabError;
use crate::results::VariantResult;
use crate::scenario::{Clock, Scenario, Size, Span, Variant};
use crate::testbed::{Load, Stage, Subject, Trace, Watch, real, simulated};

/// Where scenarios by the real clock run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabEngine<'a> {
    #[default]
    Embedded,
    /// A broker at this address.
    Kafka(&'a str),
}

#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub seed: u64,
    pub size: Size,
    pub engine: LabEngine<'a>,
    /// Where effects are stored, for experiments that can use a database.
    pub postgres: Option<&'a str>,
    pub watch: &'a dyn Watch,
}

impl std::fmt::Debug for Setting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("seed", &self.seed).field("size", &self.size).finish_non_exhaustive()
    }
}

/// What the variants of a scenario came to, with what else each of them left; `None` where it was interrupted.
pub type Each<T> = Vec<Option<(VariantResult, T)>>;

impl Setting<'_> {
    /// Runs the load by the clock that the scenario asks for; `None` if it was interrupted.
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

    /// Runs every variant. Where they spend their time waiting, as in a quick run by the real clock, they run side by side.
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
        let waits = self.size.quick && self.engine == LabEngine::Embedded;
        if scenario.clock == Clock::Real && (waits || scenario.side_by_side) {
            let run = &run;
            return std::thread::scope(|scope| {
                let threads: Vec<_> = variants
                    .iter()
                    .enumerate()
                    .map(|(i, variant)| {
                        scope.spawn(move || run(variant, Stage::of(watch, &variant.name, i, of)))
                    })
                    .collect();
                let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread.join().unwrap_or_else(|_| Err(LabError::Run("a variant panicked".to_owned())))
                };
                threads.into_iter().map(ended).collect()
            });
        }
        let all = variants.iter().enumerate();
        all.map(|(i, variant)| run(variant, Stage::of(watch, &variant.name, i, of))).collect()
    }
}

#[cfg(feature = "kafka")]
fn on_kafka(
    load: &Load,
    subject: &Subject,
    brokers: &str,
    stage: Stage<'_>,
) -> Result<Option<Trace>, crate::testbed::Error> {
    crate::testbed::kafka::run(load, subject, brokers, stage)
}

#[cfg(not(feature = "kafka"))]
fn on_kafka(_: &Load, _: &Subject, _: &str, _: Stage<'_>) -> Result<Option<Trace>, crate::testbed::Error> {
    Err("this build has no Kafka engine; build it with the feature `kafka`".into())
}

/// The complete variants, and whether one is missing.
pub fn complete<T>(each: Each<T>) -> (Vec<VariantResult>, Vec<T>, bool) {
    let is_partial = each.iter().any(Option::is_none);
    let (variants, rest) = each.into_iter().flatten().unzip();
    (variants, rest, is_partial)
}

/// A policy with these delays.
pub fn tiers(spans: &[Span]) -> PolicyBuilder {
    Policy::tiers(spans.iter().map(|span| span.0))
}

pub fn built(policy: &PolicyBuilder) -> Result<Policy, LabError> {
    policy.build().map_err(|faults| LabError::Run(faults.to_string()))
}
