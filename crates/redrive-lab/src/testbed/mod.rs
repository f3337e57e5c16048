//! Where scenarios run: one load on the embedded engine by the real clock, or on the dispatch machine by a virtual one.
//!
//! # Layout
//!
//! - [`load`]: what arrives, and what the downstream answers; [`subject`]: the settings under test
//! - [`recorder`]: what the downstream saw, by id; [`trace`]: what follows from it; [`audit`]: whether every id ended once
//! - [`stage`]: progress, and ^C
//! - [`real`]: the embedded engine and the real clock; `kafka` (feature `kafka`): the Kafka engine; [`simulated`]: the machine that dispatches, on the memory engine and
//!   a virtual clock, so that an hour takes seconds

pub mod load;
pub mod subject;

pub mod audit;
pub mod recorder;
pub mod trace;

pub mod stage;

#[cfg(feature = "kafka")]
pub mod kafka;
mod played;
pub mod real;
mod scratch;
pub mod simulated;

pub use audit::Audit;
pub use load::{Answer, Burst, Classes, Fates, Load, Outage};
pub use played::Error;
pub use recorder::Recorder;
pub use scratch::Scratch;
pub use stage::{Silent, Stage, Watch};
pub use subject::Subject;
pub use trace::{Record, Trace};
