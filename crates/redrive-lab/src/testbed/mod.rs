//! Where scenarios run: a load on an engine on the real clock, or on the dispatch machine on a virtual clock.
//!
//! # Layout
//!
//! - [`load`]: what arrives, and what the downstream answers; [`subject`]: the settings under test
//! - [`record`]: the facts about one message; [`recorder`]: collects what the downstream saw, by id; [`trace`]: the
//!   figures derived from it; [`audit`]: whether every id ended once
//! - [`letters`]: which messages have a stored letter
//! - [`engine_metrics`]: lag and stall as the engine reports them
//! - [`call_log`]: receives the events of a run; [`byte_log`]: a log for runs of many millions of messages
//! - [`stage`]: progress, and ^C
//! - [`real`]: the embedded engine on the real clock; `kafka` (feature `kafka`): the Kafka engine; [`simulated`]: the
//!   dispatch machine on the memory engine and a virtual clock, so that an hour takes seconds; [`victim`]: a process
//!   to be killed

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
