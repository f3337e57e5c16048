//! `[[alert]]` while a processor runs: [`pills`] collects what dead letters tell, [`watch`] looks once a second and hands
//! notices over, [`send`] gets them out. Nothing here makes a delivery wait: queues are bounded and what does not fit is
//! dropped, and logged.

pub mod pills;
pub mod send;
pub mod watch;

pub use pills::Pills;
pub use watch::{Watched, Watching, tell_of_failed_storage};
