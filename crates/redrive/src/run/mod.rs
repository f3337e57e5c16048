//! The running part: one dispatch thread per pipeline, which owns its engine, and the runners that call handlers on
//! the caller's runtime.

pub(crate) mod clock;
pub(crate) mod random_source;
pub(crate) mod wake;
pub(crate) mod yielding;

pub(crate) mod exchange;
#[cfg(test)]
mod hand_over_tests;
pub(crate) mod runner;

pub(crate) mod arrivals;
pub(crate) mod command;
pub(crate) mod exclusive;
pub(crate) mod hooks;
pub(crate) mod last_runs;
pub(crate) mod shared_figures;
pub(crate) mod standstill;
pub(crate) mod steer;
pub(crate) mod watch;
pub(crate) mod watchdog;

pub(crate) mod dispatcher;
pub(crate) mod report;

pub(crate) mod built;
pub(crate) mod running;
