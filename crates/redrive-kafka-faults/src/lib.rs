//! Breaks the Kafka engine on purpose, on a real broker. Never published.
//!
//! The program `member` is one process of a group: the library, the engine, and a handler that writes down what it did in
//! a file of its own. The tests kill it, freeze it, take its broker away, and cut its connections with the [`proxy`]; then
//! `redrive_lab::kafka::audit` compares what went in with what was done and what lies in the dead-letter topic.
//!
//! The program `storm` breaks a cluster of three brokers and three real processors: [`storm`].

pub mod pill;
pub mod proxy;
pub mod storm;
