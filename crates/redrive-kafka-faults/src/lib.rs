//! Breaks the Kafka engine on purpose, on a real broker. Never published.
//!
//! The program `member` is one process of a group: the library, the engine, and a handler that records what it did in a
//! file of its own. The tests kill it, freeze it, stop its broker, and cut its connections with the [`proxy`]; then
//! `redrive_lab::kafka::audit` compares what was produced with what was done and with the dead-letter topic.
//!
//! The program `storm` breaks a cluster of three brokers and three real processors: [`storm`].

pub mod pill;
pub mod proxy;
pub mod storm;
