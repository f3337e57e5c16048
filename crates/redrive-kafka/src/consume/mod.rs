//! Reads the group's partitions on a thread of its own.
//!
//! - `poll`, `rebalance`: the polling thread; `partition`: the queue of one partition; `callbacks`: what librdkafka
//!   reports to it
//! - `membership`: whether the process is still in its group; `ownership`: whether its partitions are certainly its own
//! - `plan`, `assign`, [`begin`], `growth`: where partitions begin, also after topics have grown
//! - [`mailbox`] (with [`handover`], its queues), `room`: between the polling thread and the engine

pub mod handover;
pub mod mailbox;
pub(crate) mod room;

pub(crate) mod callbacks;
pub(crate) mod membership;
pub(crate) mod ownership;

pub(crate) mod assign;
pub mod begin;
pub(crate) mod growth;
pub(crate) mod plan;

mod partition;
pub(crate) mod poll;
mod rebalance;
