//! The experiments: one file each, by subject. What is asked, with which parameters and what is expected stands in `lab/scenarios`.
//!
//! - [`registry`]: all of them, by name; [`mod@run`]: one of them from its order to its result
//! - [`setup`]: what every experiment gets; [`fault`]: why one could not be run
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
