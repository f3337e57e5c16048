//! The engine of one pipeline: it wires the parts, each of which owns its state.
//!
//! - `open`: opens the topics, joins the group, makes the parts
//! - `engine`: what happens when partitions come and go, records arrive and time passes
//! - `settle`: what becomes of a delivery, up to the acknowledgement of its copy
//! - `serve`: the seam to the dispatcher

mod engine;
mod open;
mod serve;
mod settle;

pub use engine::KafkaEngine;
pub(crate) use open::open;
