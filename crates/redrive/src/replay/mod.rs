//! Replay jobs: a frozen selection of letters is put back, paced, each letter once, also over restarts.
//!
//! - [`plan`]: what a replay would do, and the letters in the order they go; `fair` mixes the letters of tenants
//! - [`job`]: a job as it is described, seen and stored; [`pace`] and [`stop`]: how fast it goes, and when it must not go on
//! - `files`, `live`, `run`: one job on disk, in memory and at work
//! - `records`, `others`, `group`: jobs that several processes share
//! - `replays`: all of them
//! - [`auto`]: a controller that starts them by itself

mod fair;
pub mod plan;

pub mod job;
pub mod pace;
pub mod stop;

mod files;
mod live;
mod others;
mod records;
mod run;

mod group;

mod replays;

pub mod auto;

pub use auto::AutoReplay;
pub use job::{ReplaySpec, ReplayState, ReplayView, Skipped};
pub use pace::Pace;
pub use plan::{Ambiguous, Plan, PlanOptions};
pub use replays::{ReplayError, Replays};
pub use stop::Canary;
