//! Writing records: `producer` hands them to librdkafka, [`outbox`] retries them, `spool` stores what Kafka refuses.

pub mod outbox;
mod producer;
pub(crate) mod spool;

pub use producer::{Body, Ended, Production};
pub(crate) use producer::{Report, Reports, connect, send};
