//! librdkafka: how its clients are configured, what this build supports, and what its errors mean.

pub mod build;
mod config;
pub mod reach;

pub(crate) mod problems;
pub(crate) mod reports;
pub(crate) mod threads;

pub use config::{RESERVED, Refusal, fault_of};
