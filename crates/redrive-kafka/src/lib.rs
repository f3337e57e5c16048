//! The Kafka engine: the messages of a pipeline live in a topic, its retries in tiers beside it, its dead letters in
//! `T.DLQ`, and everything can be read with any Kafka tool.
//!
//! # Layout, in the order a record meets it
//!
//! - [`options`]: which cluster, which topics, how they are read

pub mod letters;
pub mod options;

pub use options::{Cluster, KafkaPipeline, Only, Start, TopicsMode};
