//! Builds and runs a processor from its configuration: stores, sinks, pipelines, API, and clean shutdown.
//!
//! - [`mod@assemble`]: builds the pipelines and their parts
//! - `orphans`: finds stores without a pipeline
//! - `subscriptions`: loads the tables of push pipelines
//! - `kafka`: builds the Kafka engine
//! - [`tokens`]: finds the tokens that allow changes
//! - [`run`]: starts and stops everything
//! - [`signals`]: SIGTERM and ^C
//! - [`hangup`]: reloads the certificate of the API on SIGHUP
//! - [`log`]: sets up the log
//! - `delivered_log`: logs deliveries
//! - `health_log`: logs the health of sinks
//! - `events`: events for clients
//! - `engine_failed`: the exit code for a failed engine
//! - `stuck`: ends a process that hangs
//! - [`files`]: raises the limit of open files
//! - [`alerts`]: notifies people of problems
//! - `on_purged`: announces purges to the owner of the subscriptions
//! - `outlet`: delivers notices and announcements
//! - `auto_replay`: starts the controllers of automatic replay
//! - `retention`: starts the sweeps that discard old letters
//! - [`supervise`]: restarts the worker when it dies
//! - [`restarts`]: decides whether and when to restart
//! - `oom_kills`: counts processes that the system killed for lack of memory

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
