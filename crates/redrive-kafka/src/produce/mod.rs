//! Writes records.
//!
//! - `copies`: everything the engine writes; `after`: what to do when it is acknowledged; `targets`: to which topics;
//!   `cut`: truncates a copy that Kafka refuses
//! - `transit`: messages between two records; `unwritten`: partitions that are held because of a copy
//! - [`outbox`]: retries until written; `bursts`: which records leave next; `producer`: hands records to librdkafka;
//!   `spool`: stores what Kafka refuses

pub(crate) mod after;
mod bursts;
pub(crate) mod copies;
mod cut;
pub(crate) mod targets;
pub(crate) mod transit;
pub(crate) mod unwritten;

pub mod outbox;
mod producer;
pub(crate) mod spool;

pub use producer::{Body, Production, WriteOutcome};
