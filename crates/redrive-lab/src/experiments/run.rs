//! One experiment from its order to its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::registry::{EXPERIMENTS, Experiment};
use super::setting::{LabEngine, Setting};
use crate::bench::machine;
use crate::results::summary::About;
use crate::results::{Outcome, ResultFault, Summary, files};
use crate::scenario::{Clock, Scenario, ScenarioFault, Size};
use crate::testbed::Watch;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("there is no scenario `{name}`; there are {known}", known = known())]
    Unknown { name: String },
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("scenario file: {0}")]
    Scenario(#[from] ScenarioFault),
    #[error("the run failed: {0}")]
    Run(String),
    #[error("scenario `{name}` runs on the embedded engine only: {why}")]
    NoKafka { name: String, why: &'static str },
    #[error(transparent)]
    Result(#[from] ResultFault),
}

fn known() -> String {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ")
}

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

/// The scenario that an order names.
pub fn scenario(name: &str, file: Option<&Path>) -> Result<(&'static Experiment, Scenario), LabError> {
    let experiment = Experiment::named(name).ok_or_else(|| LabError::Unknown { name: name.to_owned() })?;
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
    if engine != LabEngine::Embedded
        && let Some(why) = no_kafka(&scenario)
    {
        return Err(LabError::NoKafka { name: experiment.name.to_owned(), why });
    }
    let (size, postgres) = (order.size, order.postgres.as_deref());
    let setting = Setting { seed: order.seed, size, engine, postgres, watch };
    let began = Instant::now();
    let outcome = (experiment.run)(&scenario, &setting)?;
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
fn no_kafka(scenario: &Scenario) -> Option<&'static str> {
    match scenario.clock {
        Clock::Virtual => Some("its clock is virtual, and no broker waits by it"),
        Clock::Model => Some("it is a model"),
        Clock::Real => None,
    }
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
