//! Runs one experiment from its order to its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::fault::LabError;
use super::registry::{EXPERIMENTS, Experiment};
use super::setup::{ExperimentSetup, LabEngine};
use crate::bench::machine;
use crate::results::page::ScenarioWords;
use crate::results::summary::About;
use crate::results::{Outcome, ResultKind, ScenarioRuns, Summary, files};
use crate::scenario::{Clock, RangesOf, Scenario, Size};
use crate::testbed::Watch;

/// A request to run an experiment.
#[derive(Clone, Debug)]
pub struct Order {
    pub name: String,
    /// Overrides the scenario file that is compiled in.
    pub file: Option<PathBuf>,
    pub seed: u64,
    pub quick: bool,
    /// Index of the scenario's change that breaks a claim; for tests.
    pub broken: Option<usize>,
    /// `None` selects the virtual clock if the scenario has one, else the embedded engine.
    pub engine: Option<OrderedEngine>,
    /// A database for experiments that can use one: `postgres://…`.
    pub postgres: Option<String>,
    /// The command of a process to kill, for experiments that kill. It calls [`crate::testbed::victim::run`] with the
    /// argument that is appended.
    pub victim: Vec<String>,
    /// Directory for the result, which gets a folder per scenario, seed, engine and kind of run. `None` writes
    /// nothing.
    pub out: Option<PathBuf>,
    /// The command that repeats the run.
    pub command: String,
}

/// An engine that the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderedEngine {
    Embedded,
    /// The broker at this address.
    Kafka(String),
}

impl OrderedEngine {
    const fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Kafka(_) => "kafka",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Finished {
    pub summary: Summary,
    pub outcome: Outcome,
    /// The directory of the written result.
    pub dir: Option<PathBuf>,
}

fn unknown(name: &str) -> LabError {
    let known = EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
    LabError::Unknown { name: name.to_owned(), known }
}

/// Looks up the experiment and parses its scenario.
pub fn scenario(name: &str, file: Option<&Path>) -> Result<(&'static Experiment, Scenario), LabError> {
    let experiment = Experiment::named(name).ok_or_else(|| unknown(name))?;
    let scenario = match file {
        None => experiment.scenario()?,
        Some(path) => {
            let fault = |error| LabError::File { path: path.to_owned(), error };
            Scenario::parse(&std::fs::read_to_string(path).map_err(fault)?)?
        }
    };
    Ok((experiment, scenario))
}

pub fn run(order: &Order, watch: &dyn Watch) -> Result<Finished, LabError> {
    let (experiment, ordered) = scenario(&order.name, order.file.as_deref())?;
    if let Some(engine) = &order.engine {
        refuse(experiment.name, &ordered, engine.name())?;
    }
    let real = order.engine.as_ref().and_then(|_| ordered.by_the_real_clock());
    let ranges_of = match order.engine {
        Some(OrderedEngine::Kafka(_)) => RangesOf::Kafka,
        Some(OrderedEngine::Embedded) | None => RangesOf::Embedded,
    };
    let size = Size { quick: order.quick, broken: order.broken, real: real.is_some(), engine: ranges_of };
    let scenario = real.unwrap_or(ordered);
    let engine = match &order.engine {
        Some(OrderedEngine::Kafka(brokers)) => LabEngine::Kafka(brokers),
        Some(OrderedEngine::Embedded) | None => LabEngine::Embedded,
    };
    let postgres = order.postgres.as_deref();
    let setup = ExperimentSetup { seed: order.seed, size, engine, postgres, victim: &order.victim, watch };
    // Before the run, so that the reported load comes from other processes.
    let (machine, began) = (machine(order.out.as_deref()), Instant::now());
    let outcome = (experiment.run)(&scenario, &setup)?;
    let about = About {
        name: experiment.name,
        scenario: &scenario,
        ran_on: ran_on(scenario.clock, engine).to_owned(),
        seed: order.seed,
        size,
        command: order.command.clone(),
        machine,
        took_seconds: began.elapsed().as_secs_f64(),
    };
    let summary = Summary::of(about, &outcome);
    let engine = match (engine, size.real) {
        (LabEngine::Kafka(_), _) => "-kafka",
        (LabEngine::Embedded, true) => "-embedded",
        (LabEngine::Embedded, false) => "",
    };
    let kind = ResultKind { custom: order.file.is_some(), quick: size.quick, partial: outcome.is_partial };
    let folder = format!("{}{engine}{kind}", order.seed);
    let dir = order.out.as_ref().map(|out| out.join(experiment.name).join(folder));
    if let Some(dir) = &dir {
        let downstream = scenario.downstream.to_string();
        let words = ScenarioWords { explains: &scenario.explains, downstream: &downstream };
        files::write(dir, &summary, words, &outcome)?;
    }
    Ok(Finished { summary, outcome, dir })
}

const fn ran_on(clock: Clock, engine: LabEngine<'_>) -> &'static str {
    match (clock, engine) {
        (Clock::Real, LabEngine::Embedded) => "embedded engine, real clock",
        (Clock::Real, LabEngine::Kafka(_)) => "Kafka engine, real clock",
        (Clock::Virtual, _) => "dispatch machine on the memory engine, virtual clock",
        (Clock::Model, _) => "model, no pipeline",
    }
}

/// Why the scenario cannot run on an engine, if so.
fn unfit(scenario: &Scenario) -> Option<&'static str> {
    match scenario.clock {
        Clock::Virtual if scenario.by_the_real_clock().is_none() => {
            Some("its clock is virtual, and an engine cannot run on a virtual clock; leave --engine out")
        }
        Clock::Model => Some("it is a model, and no messages are delivered in it; leave --engine out"),
        Clock::Real | Clock::Virtual => None,
    }
}

fn refuse(name: &str, scenario: &Scenario, engine: &str) -> Result<(), LabError> {
    let refused = |why| LabError::Unfit { name: name.to_owned(), engine: engine.to_owned(), why };
    unfit(scenario).map_or(Ok(()), |why| Err(refused(why)))
}

/// Whether an order for Kafka can run; checked before a broker is started for it.
pub fn check_kafka(name: &str, file: Option<&Path>) -> Result<(), LabError> {
    let (experiment, scenario) = scenario(name, file)?;
    refuse(experiment.name, &scenario, "kafka")
}

/// Every scenario with the runs whose results should be committed.
pub fn expected_runs() -> Result<Vec<ScenarioRuns>, LabError> {
    let of = |experiment: &Experiment| {
        let scenario = experiment.scenario()?;
        let command = format!("redrive lab run {}", experiment.name);
        let on = |clock, engine, command| (ran_on(clock, engine).to_owned(), command);
        let mut runs = vec![on(scenario.clock, LabEngine::Embedded, command.clone())];
        if scenario.by_the_real_clock().is_some() {
            runs.push(on(Clock::Real, LabEngine::Embedded, format!("{command} --engine embedded")));
        }
        if unfit(&scenario).is_none() {
            runs.push(on(Clock::Real, LabEngine::Kafka(""), format!("{command} --engine kafka")));
        }
        let downstream = scenario.downstream.to_string();
        let Scenario { title, explains, hash, .. } = scenario;
        Ok(ScenarioRuns { name: experiment.name.to_owned(), title, hash, explains, downstream, runs })
    };
    EXPERIMENTS.iter().map(of).collect()
}

/// The machine properties that matter for the figures. The load shows whether anything else was running.
fn machine(out: Option<&Path>) -> BTreeMap<String, String> {
    let described = machine::describe(out.unwrap_or(Path::new(".")));
    let wanted = ["cores", "cpu", "kernel", "commit", "checked out", "load at start"];
    let mut machine: BTreeMap<String, String> = described
        .into_iter()
        .filter(|(name, _)| wanted.contains(name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    machine.insert("build".to_owned(), build.to_owned());
    machine
}
