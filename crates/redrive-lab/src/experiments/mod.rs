//! The experiments: one file each. What is asked, with which parameters and what is expected stands in `lab/scenarios`.
//!
//! - [`registry`]: all of them, by name; [`mod@run`]: one of them from its order to its result
//! - [`setting`]: what every experiment gets; the others: one experiment each

pub mod registry;
pub mod run;
pub mod setting;

mod backoff_sweep;
mod blocking;
mod bloom;
mod budgets;
mod failure_sweep;
mod jitter_comparison;
mod metastability;
mod misclassification;
mod ordering;
mod poison_growth;
mod replay;
mod replay_engine;
mod replay_store;
mod retry_storm;
mod time_to_dead_letter;

pub use registry::{EXPERIMENTS, Experiment};
pub use run::{Finished, LabError, Order, run};
pub use setting::{LabEngine, Setting};
