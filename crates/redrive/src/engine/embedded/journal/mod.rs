//! The journal: frames in segments, written by one and read by many, and the records that the frames carry.
//!
//! A [`frame`] is the unit of the [`log`]; [`record`] says what frames mean; the [`watermark`] says how far they are
//! durable.

pub mod batch;
pub mod error;
pub mod frame;
pub mod log;
mod mask;
pub mod options;
pub mod reader;
pub mod record;
pub mod recover;
pub mod scan;
pub mod segment;
pub mod segments;
pub(crate) mod tail;
pub mod watermark;
pub(crate) mod wipe;
