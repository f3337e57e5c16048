//! The producer: orders at a fixed rate that does not slow down when the consumer does (an open model).
//!
//! # Layout, in the order an order meets it
//!
//! - [`options`]: what is set; [`schedule`]: which orders are due when, pure
//! - [`batch`]: the orders themselves, with their fates
//! - [`target`]: who takes them, over HTTP ([`http`]) or in process; [`answer`]: what it may say
//! - `offer`: one batch until it is acknowledged; `pace`: all of them in time
//! - [`lateness`], [`progress`], [`report`]: how far behind its own schedule it is, and how it went
//! - `server`: the metrics
//!
//! An order is never skipped. When the bound on requests in flight is reached, the schedule waits, the wait shows as
//! lateness, and afterwards it catches up. What is refused is offered again with the same id.

pub mod options;
pub mod schedule;

pub mod answer;
pub mod batch;
pub mod http;
pub mod target;

mod offer;
mod pace;

pub mod lateness;
pub mod progress;
pub mod report;

mod server;

pub use answer::BatchAnswer;
pub use batch::OrderBatch;
pub use http::{Bearer, HttpTarget, TargetFault};
pub use lateness::Lateness;
pub use options::{OptionsFault, ProducerError, ProducerOptions};
pub use pace::{Producer, run};
pub use progress::Progress;
pub use report::ProducerReport;
pub use schedule::Schedule;
pub use target::Target;
