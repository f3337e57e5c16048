//! The Kafka engine: the messages of a pipeline live in a topic, its retries in tiers beside it, its dead letters in
//! `T.DLQ`, and everything can be read with any Kafka tool.
//!
//! # Layout, in the order a record meets it
//!
//! - [`options`]: which cluster, which topics, how they are read
//! - [`client`]: how librdkafka is set up for each of its parts; [`topics`]: which topics there are and must be
//! - [`record`]: from a record to a message and back
//! - [`letters`]: dead letters, mirrored in this process; replay, discard, undo

pub mod client;
pub mod options;
pub mod record;
pub mod topics;

pub mod letters;

pub use options::{Cluster, KafkaPipeline, Only, Start, TopicsMode};
