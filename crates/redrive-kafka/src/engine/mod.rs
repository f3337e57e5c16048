//! The engine of one pipeline: it wires the parts, each of which owns its state.
//!
//! - `open`: opens the topics, joins the group, makes the parts
//! - `kafka`: what happens when partitions come and go, records arrive and time passes
//! - `settle`: what becomes of a delivery, up to the acknowledgement of its copy
//! - `deliver`, `keep_letters`, `query`: the seam to the dispatcher

mod deliver;
mod kafka;
mod keep_letters;
mod open;
mod query;
mod settle;

pub use kafka::KafkaEngine;
pub(crate) use open::open;
