//! A processor from its configuration: stores, sinks, pipelines, API, and clean shutdown.
//!
//! - [`mod@assemble`]: makes pipelines and what serves them
//! - `orphans`: finds stores that are not served
//! - `subscriptions`: loads the tables of push pipelines
//! - `kafka`: where messages live that come from topics
//! - [`tokens`]: who may change something
//! - [`run`]: starts and ends it all
//! - [`signals`]: when to end
//! - [`hangup`]: when to read the certificate of the API again
//! - [`log`]: writes what happens
//! - `delivered_log`: what was delivered
//! - `health_log`: what happens to the health of a sink
//! - `events`: what others follow
//! - `engine_failed`: how a command ends whose engine failed
//! - `stuck`: ends a process that hangs
//! - [`files`]: raises the limit of open files
//! - [`alerts`]: tells people what is wrong
//! - `on_purged`: tells the owner of subscriptions which are purged
//! - `outlet`: delivers what those two say
//! - `auto_replay`: starts the controllers that replay letters by themselves
//! - `retention`: starts the sweeps that discard old letters
//! - [`supervise`]: starts all of that again when it dies
//! - [`restarts`]: whether and when it does
//! - `oom_kills`: whether the system killed processes for lack of memory

pub mod alerts;
pub mod assemble;
mod auto_replay;
mod delivered_log;
pub mod engine_failed;
mod events;
pub mod files;
pub mod hangup;
mod health_log;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod log;
mod on_purged;
mod oom_kills;
mod orphans;
mod outlet;
pub mod restarts;
mod retention;
pub mod run;
pub mod signals;
mod stuck;
mod subscriptions;
pub mod supervise;
pub mod tokens;

pub use assemble::{Assembled, assemble};
pub use run::{RunEnd, Runtimes};
pub use signals::Signals;
