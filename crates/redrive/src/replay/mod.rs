//! Replay jobs: a frozen selection of letters is put back, paced, each letter once, also over restarts.

pub mod job;
pub mod pace;

mod files;
mod live;
mod run;

mod replays;

pub use job::{ReplaySpec, ReplayState, ReplayView, Skipped};
pub use pace::Pace;
pub use replays::{ReplayError, Replays};
