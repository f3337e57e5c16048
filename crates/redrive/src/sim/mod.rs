//! The simulation: the dispatch machine on the memory engine, on a virtual clock, with all kinds of faults.
//!
//! A seed gives a plan (policy, ordering, fates of messages, faults), and the same seed gives the same run. First
//! faults are on and the checkers run after every step (safety); then faults are off and every message must become
//! terminal within the bound of the policy's forecast (liveness).
//!
//! # Layout, in reading order
//!
//! - [`plan`]: all options of a run, derived from its seed
//! - [`downstream`]: outcomes of calls; outages, hangs, and the ledger of effects
//! - [`witness`]: an independent record of every message: what was promised and what happened
//! - [`checkers`]: one named checker per invariant
//! - `world`: the steps of a run; `faults`: what goes wrong; `operator`: actions of operators
//! - [`mod@run`]: the two phases, and the report of a failing seed

pub mod checkers;
pub mod downstream;
pub mod plan;
pub mod witness;

mod faults;
mod operator;
mod world;

pub mod run;

pub use checkers::{Broken, CHECKERS};
pub use plan::Plan;
pub use run::{BrokenInvariant, Summary, check_seeds, run};
