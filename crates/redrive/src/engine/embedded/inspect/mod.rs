//! Reads a store that may be in use, and changes nothing.

mod letters;
mod log;
mod report;
mod store;

pub use store::*;
