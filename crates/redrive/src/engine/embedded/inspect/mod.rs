//! Reads a store that may be in use, without changing anything.

mod letters;
mod log;
mod report;
mod store;

pub use store::*;
