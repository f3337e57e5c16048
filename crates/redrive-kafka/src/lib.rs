//! The Kafka engine: the messages of a pipeline live in a topic, its retries in tiers beside it, its dead letters in
//! `T.DLQ`, and everything can be read with any Kafka tool.
//!
//! # Layout, in the order in which a record passes through
//!
//! - [`options`]: which cluster, which topics, how they are read; [`stores`]: opens an engine for each pipeline
//! - [`client`]: how librdkafka is configured, what this build supports, why a cluster does not answer
//! - [`topics`]: which topics exist and must exist; scanned and trimmed from outside the group
//! - [`consume`]: the polling thread, and where assigned partitions begin
//! - [`record`]: from a record to a message and back
//! - `backlog`: messages in memory, by partition, due time and key
//! - `duplicates`: which of two records of a message counts
//! - `crash`: which message may have killed a process
//! - [`engine`]: wires the parts
//! - [`produce`]: copies until they are acknowledged, and what Kafka refuses
//! - `commit`: what is done, and how that becomes durable
//! - [`letters`]: dead letters, their states, and replays
//! - [`group`]: state that all processes of the group share, and its members

mod clock;
mod locked;
mod sync;

pub mod client;
pub mod options;
pub mod stores;
pub mod topics;

pub mod consume;
pub mod record;

mod backlog;
mod crash;
mod duplicates;

pub mod engine;

mod commit;
pub mod produce;

pub mod group;
pub mod letters;

pub use engine::KafkaEngine;
pub use options::{Cluster, GroupStart, KafkaPipeline, Only, TopicsMode};
pub use stores::KafkaStores;
