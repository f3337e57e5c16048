//! The engine of one pipeline: it wires the parts, each of which owns its state.
//!
//! - `open`: opens the topics, joins the group, creates the parts
//! - `kafka`: reacts when partitions come and go, when records arrive, and as time passes
//! - `settle`: carries out decisions, up to the acknowledgement of the copies
//! - `deliver`, `keep_letters`, `query`: the seam to the dispatcher

mod deliver;
mod kafka;
mod keep_letters;
mod open;
mod query;
mod settle;

pub use kafka::KafkaEngine;
pub(crate) use open::open;
