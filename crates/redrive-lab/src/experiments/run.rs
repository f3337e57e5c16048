//! One experiment from its order to its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::fault::LabError;
use super::registry::{EXPERIMENTS, Experiment};
use super::setup::{ExperimentSetup, LabEngine};
use crate::bench::machine;
use crate::results::summary::About;
use crate::results::{Outcome, ScenarioRuns, Summary, files};
use crate::scenario::{Clock, Scenario, Size};
use crate::testbed::Watch;

/// What somebody wants to be run.
#[derive(Clone, Debug)]
pub struct Order {
    pub name: String,
    /// Instead of the scenario file that is compiled in.
    pub file: Option<PathBuf>,
    pub seed: u64,
    pub size: Size,
    /// Brokers, to run on the Kafka engine; `None`: on the embedded one.
    pub kafka: Option<String>,
    /// A database for experiments that can use one: `postgres://…`.
    pub postgres: Option<String>,
    /// The command of a process that can be killed, for experiments that kill: [`crate::testbed::victim::run`] with the
    /// argument that is appended.
    pub victim: Vec<String>,
    /// Where the result goes: below it, a folder per scenario and seed. `None`: nothing is written.
    pub out: Option<PathBuf>,
    /// The command that repeats it.
    pub command: String,
}

#[derive(Clone, Debug)]
pub struct Finished {
    pub summary: Summary,
    pub outcome: Outcome,
    /// Where it was written.
    pub dir: Option<PathBuf>,
}

fn unknown(name: &str) -> LabError {
    let known = EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
    LabError::Unknown { name: name.to_owned(), known }
}

/// The scenario that an order names.
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
    let (experiment, scenario) = scenario(&order.name, order.file.as_deref())?;
    let engine = order.kafka.as_deref().map_or(LabEngine::Embedded, LabEngine::Kafka);
    if engine != LabEngine::Embedded {
        refuse_kafka(&order.name, order.file.as_deref())?;
    }
    let (size, postgres) = (order.size, order.postgres.as_deref());
    let setup = ExperimentSetup { seed: order.seed, size, engine, postgres, victim: &order.victim, watch };
    let began = Instant::now();
    let outcome = (experiment.run)(&scenario, &setup)?;
    let about = About {
        name: experiment.name,
        scenario: &scenario,
        ran_on: ran_on(scenario.clock, engine).to_owned(),
        seed: order.seed,
        quick: order.size.quick,
        command: order.command.clone(),
        machine: machine(order.out.as_deref()),
        took_seconds: began.elapsed().as_secs_f64(),
    };
    let summary = Summary::of(about, &outcome);
    let folder = if order.kafka.is_some() { format!("{}-kafka", order.seed) } else { order.seed.to_string() };
    let dir = order.out.as_ref().map(|out| out.join(experiment.name).join(folder));
    if let Some(dir) = &dir {
        files::write(dir, &summary, &outcome)?;
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

/// Why a scenario cannot run on Kafka, if it cannot.
fn no_kafka(scenario: &Scenario, name: &str) -> Option<&'static str> {
    match scenario.clock {
        Clock::Virtual => Some("its clock is virtual, and a broker cannot run on a virtual clock"),
        Clock::Model => Some("it is a model, and no messages are delivered in it"),
        Clock::Real if name == "kills" => {
            Some("it kills a process with an embedded store; `make proofs-kafka` kills members of a group")
        }
        Clock::Real => None,
    }
}

/// Why an order for Kafka cannot be carried out, before anything is started for it.
pub fn refuse_kafka(name: &str, file: Option<&Path>) -> Result<(), LabError> {
    let (experiment, scenario) = scenario(name, file)?;
    match no_kafka(&scenario, experiment.name) {
        Some(why) => Err(LabError::NoKafka { name: experiment.name.to_owned(), why }),
        None => Ok(()),
    }
}

/// Every scenario with the runs whose results should be committed.
pub fn expected_runs() -> Result<Vec<ScenarioRuns>, LabError> {
    let of = |experiment: &Experiment| {
        let scenario = experiment.scenario()?;
        let command = format!("redrive lab run {}", experiment.name);
        let on = |engine, command| (ran_on(scenario.clock, engine).to_owned(), command);
        let mut runs = vec![on(LabEngine::Embedded, command.clone())];
        if no_kafka(&scenario, experiment.name).is_none() {
            runs.push(on(LabEngine::Kafka(""), format!("{command} --engine kafka")));
        }
        Ok(ScenarioRuns { name: experiment.name.to_owned(), title: scenario.title, runs })
    };
    EXPERIMENTS.iter().map(of).collect()
}

/// What matters for the figures. The load says whether anything else ran.
fn machine(out: Option<&Path>) -> BTreeMap<String, String> {
    let described = machine::describe(out.unwrap_or(Path::new(".")));
    let wanted = ["cores", "cpu", "kernel", "commit", "load at start"];
    let mut machine: BTreeMap<String, String> = described
        .into_iter()
        .filter(|(name, _)| wanted.contains(name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    machine.insert("build".to_owned(), build.to_owned());
    machine
}
