//! Replay jobs: a frozen selection of letters is put back at a given pace, each letter once, even across restarts.
//!
//! - `plan`: what a replay would do, and the letters in replay order; `fair` interleaves the letters of tenants;
//!   `taken`: letters reserved by other jobs; `groups`: the groups of its letters
//! - `ends`: how the letters of a job ended; `held`: those that are held; `job`: parameters, progress and view of a job; `pace` and `stop`: its
//!   speed, and when it must stop
//! - `files`, `live`, `run`: one job on disk, in memory and at work
//! - `records`, `others`, `group`: jobs that several processes share
//! - `book`: the jobs that a process knows; `replays`: the entry point to start and steer them
//! - `auto`: a controller that starts jobs by itself, in one process at a time (`lease`); `stopped`: notices about
//!   stopped jobs

mod fair;
mod groups;
mod taken;

mod plan;

mod ends;
mod held;
mod job;
pub(crate) mod pace;
pub(crate) mod stop;

mod book;
mod error;
mod files;
mod live;
mod members;
mod others;
mod records;
mod run;

mod group;

mod replays;

#[allow(missing_docs)] // only `internal` leads to it
pub(crate) mod auto;
mod stopped;

#[doc(hidden)]
pub use auto::AutoReplay;
pub use ends::Canary;
pub use error::ReplayError;
#[doc(hidden)]
pub use groups::{Touched, TouchedGroups};
#[doc(hidden)]
pub use held::{HeldLetters, HeldWhy};
pub use job::{ReplaySpec, ReplayState, ReplayView, Skipped};
#[doc(hidden)]
pub use pace::Pace;
pub use plan::{Ambiguous, Plan, PlanOptions, Superseded};
pub use replays::Replays;
#[doc(hidden)]
pub use stop::{CANARY_DEFAULT, STOP_AT_DEFAULT};
#[doc(hidden)]
pub use stopped::StoppedReplays;
pub use taken::TakenCounts;

pub use crate::engine::{ReplayAnswer, ReplayTarget};
