//! The embedded engine: an append-only log on one disk.

pub mod disk;
pub mod frame;
pub mod scan;
pub mod segment;

pub mod log;
pub mod log_error;
pub mod log_open;
pub mod reader;
