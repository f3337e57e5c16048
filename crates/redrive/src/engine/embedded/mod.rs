//! The embedded engine: an append-only log on one disk.

pub mod disk;
pub mod disk_sim;
pub mod frame;

mod batch;
mod log_error;
mod log_open;
mod log_options;
mod scan;
mod segment;
mod segments;

pub mod log;
pub mod reader;
