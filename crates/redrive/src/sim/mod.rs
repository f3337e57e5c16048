//! The simulation: the dispatch machine on the memory engine, on a virtual clock, with everything that can go wrong.
//!
//! A seed gives a plan (policy, ordering, fates of messages, faults); the same seed gives the same run. First faults are
//! on and the checkers look after every step (safety), then they are off and everything must reach its end within the
//! bound that the policy's forecast prints (liveness).
//!
//! # Layout, in reading order
//!
//! - [`plan`]: all options of a run, derived from its seed
//! - [`downstream`]: what a call comes to; outages, hangs, and the ledger of effects
//! - [`witness`]: an independent record of every message: what was promised and what happened
//! - [`checkers`]: one named checker per invariant
//! - `world`: the steps a run is made of; `faults`: what goes wrong; `operator`: what people do
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
