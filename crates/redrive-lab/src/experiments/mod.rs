//! The experiments: one file each, by subject. The questions, parameters and expectations are in `lab/scenarios`.
//!
//! - [`registry`]: all experiments, by name; [`mod@run`]: runs one and writes its result
//! - [`setup`]: the inputs of every experiment; [`fault`]: why one could not run
//! - `delays`, `outages`, `failures`, `replay`, `durability`: the experiments

pub mod fault;
pub mod registry;
pub mod run;
pub mod setup;

mod delays;
mod durability;
mod failures;
mod outages;
mod replay;

pub use fault::LabError;
pub use registry::{EXPERIMENTS, Experiment};
pub use run::{Finished, Order, OrderedEngine, check_kafka, expected_runs, run};
pub use setup::{ExperimentSetup, LabEngine};
