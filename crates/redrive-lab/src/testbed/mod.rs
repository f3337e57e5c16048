//! Where scenarios run: one load on the embedded engine by the real clock, or on the dispatch machine by a virtual one.
//!
//! # Layout
//!
//! - [`load`]: what arrives, and what the downstream answers; [`subject`]: the settings under test
//! - [`record`]: what is known of one message; [`recorder`]: fills in what the downstream saw, by id; [`trace`]: what follows
//!   from it; [`audit`]: whether every id ended once
//! - [`letters`]: which messages have a letter, read back from where letters are stored
//! - [`engine_metrics`]: lag and stall as the engine reports them
//! - [`call_log`]: what runs report to; [`byte_log`]: a log for runs of many millions of messages
//! - [`stage`]: progress, and ^C
//! - [`real`]: the embedded engine and the real clock; `kafka` (feature `kafka`): the Kafka engine; [`simulated`]: the machine that dispatches, on the memory engine and
//!   a virtual clock, so that an hour takes seconds; [`victim`]: a process to be killed

pub mod load;
pub mod subject;

pub mod audit;
pub mod byte_log;
pub mod call_log;
pub mod engine_metrics;
pub mod letters;
pub mod record;
pub mod recorder;
pub mod trace;

pub mod stage;

#[cfg(feature = "kafka")]
pub mod kafka;
mod played;
pub mod real;
mod scratch;
pub mod simulated;
pub mod victim;

pub use audit::{Audit, IdFacts};
pub use byte_log::ByteLog;
pub use call_log::CallLog;
pub use engine_metrics::EngineSample;
pub use letters::LetterSet;
pub use load::{Burst, Classes, Fates, HandlerAnswer, Load, Outage};
pub use played::Error;
pub use record::MessageRecord;
pub use recorder::Recorder;
pub use scratch::Scratch;
pub use stage::{Silent, Stage, Watch};
pub use subject::Subject;
pub use trace::{RunEnd, Trace};
