//! The experiments: one file each. What is asked, with which parameters and what is expected stands in `lab/scenarios`.
//!
//! - [`registry`]: all of them, by name; [`mod@run`]: one of them from its order to its result
//! - [`setting`]: what every experiment gets; [`fault`]: why one could not be run; the others: one experiment each

pub mod fault;
pub mod registry;
pub mod run;
pub mod setting;

mod backoff_sweep;
mod blocking;
mod bloom;
mod budgets;
mod failure_sweep;
mod false_dead_letters;
mod jitter_comparison;
mod kills;
mod lateness;
mod metastability;
mod misclassification;
mod noisy_endpoint;
mod ordering;
mod poison_growth;
mod replay;
mod replay_engine;
mod replay_store;
mod retry_storm;
mod soak;
mod time_to_dead_letter;

pub use fault::LabError;
pub use registry::{EXPERIMENTS, Experiment};
pub use run::{Finished, Order, expected_runs, refuse_kafka, run};
pub use setting::{LabEngine, ExperimentSetup};
