//! The journal: frames in segments, with one writer and many readers, and the records in the frames.
//!
//! A [`frame`] is the unit of the [`log`]; [`record`] defines what frames mean; the [`watermark`] records how far they
//! are durable.

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
