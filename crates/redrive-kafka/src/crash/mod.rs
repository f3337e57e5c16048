//! Finds out which message may have killed a process.
//!
//! - `ledger`: what runs here, and what earlier owners left
//! - `reservation`: what may run is committed before it runs; `started`: a local file of what runs
//! - `suspects`: what follows for the next owner of a partition; `crashes`: how that is written into a commit note

pub(crate) mod ledger;

pub(crate) mod crashes;
pub(crate) mod reservation;
pub(crate) mod started;
pub(crate) mod suspects;
