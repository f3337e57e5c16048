//! `[[alert]]` while a processor runs: [`pills`] collects poison pills from dead letters, [`watch`] polls once a second
//! and queues notices, [`send`] sends them. Nothing here delays a delivery: queues are bounded, and what does not fit
//! is dropped and logged.

pub mod pills;
pub mod send;
pub mod watch;

pub use pills::Pills;
pub use watch::{Watched, Watching, tell_of_failed_storage};
