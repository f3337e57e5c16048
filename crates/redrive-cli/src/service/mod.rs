//! A processor from its configuration: stores, sinks, pipelines, API, and an end in good order.
//!
//! Read in this order: [`mod@assemble`] makes pipelines and what serves them, `orphans` finds stores that nobody serves,
//! `kafka` says where messages live that come from topics, [`tokens`] says who may, [`tls`] reads the certificate of the API, [`run`] starts and
//! ends it all, [`signals`] hears when, [`log`] writes what happens, `health_log` what happens to the health of a sink,
//! `stuck` ends a process that hangs. [`files`] raises the limit of open files. [`alerts`] tells people what is wrong. [`supervise`] starts all of that again when it
//! dies, as [`restarts`] says.

pub mod alerts;
pub mod assemble;
pub mod files;
mod health_log;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod log;
mod oom_kills;
mod orphans;
pub mod restarts;
pub mod run;
pub mod signals;
mod stuck;
pub mod supervise;
pub mod tls;
pub mod tokens;

pub use assemble::{Assembled, assemble};
pub use run::{Ended, Runtimes};
pub use signals::Signals;
