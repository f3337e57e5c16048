//! The producer: orders at a fixed rate that does not slow down with the consumer (an open model).
//!
//! # Layout, in the order an order meets it
//!
//! - [`options`]: the settings; [`schedule`]: which orders are due when, pure
//! - [`batch`]: the orders, with their fates
//! - [`target`]: where they go, over HTTP ([`http`]) or in process; [`answer`]: the possible answers
//! - `offer`: offers a batch until it is acknowledged; `pace`: offers all batches on time
//! - [`lateness`], [`progress`], [`report`]: how far the run is behind its schedule, and its result
//! - `server`: the metrics
//!
//! No order is skipped. When the limit of requests in flight is reached, the schedule waits, the wait shows up as
//! lateness, and the run then catches up. A refused batch is offered again with the same ids.

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
