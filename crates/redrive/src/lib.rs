//! The runtime and the library.

pub mod engine;
