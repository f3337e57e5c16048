//! The Kafka engine: the messages of a pipeline live in a topic, its retries in tiers beside it, its dead letters in
//! `T.DLQ`, and everything can be read with any Kafka tool.
//!
//! # Layout, in the order a record meets it
//!
//! - [`options`]: which cluster, which topics, how they are read
//! - [`client`]: how librdkafka is set up for each of its parts; [`build`]: what it can do; [`reach`]: why a cluster does not
//!   answer; [`topics`]: which topics there are and must be
//! - [`poll`]: the polling thread, with `rebalance`, `rejoin` and `read`; [`committer`]: commits that wait for their answer; [`desk`]: what its callbacks hear; [`assign`], [`begin`]: where partitions begin, `growth`: when there are more of them;
//!   [`mailbox`], [`room`]: between it and the engine
//! - [`record`]: from a record to a message and back; [`waiting`]: a message in memory; `meeting`, `twins`, `died`, `late`: which of two records of a message counts
//! - [`lane`]: one partition; [`lookahead`], [`spill`]: what waits for its time; [`keys`], `blocked`: what waits for its key
//! - [`engine`]: the parts together, `open`, `take`, `settle`, `absorb` and `tend`: what it does; `serve`: the seam;
//!   [`stores`] opens one for each pipeline
//! - [`produce`], [`outbox`]: copies on their way; `unwritten`: partitions that are held because of one; `cut`, [`spool`]: what
//!   Kafka will never take as it is
//! - [`commit`]: batches until they are durable; [`progress`]: what is committed beside an offset
//! - [`control`]: what holds for the whole group: a pause
//! - [`letters`]: dead letters, their states, and their way back
//! - [`trim`]: what is done is cut off
//! - `flow`, [`standing`]: figures of partitions and of the cluster
//! - [`members`], [`scan`]: for who asks from outside: the group, and topics record by record

pub mod build;
pub mod client;
pub mod options;
pub mod reach;
pub mod topics;

mod absent;
pub mod assign;
pub mod begin;
pub mod committer;
pub mod desk;
mod fenced;
mod growth;
mod locked;
pub mod mailbox;
pub mod poll;
mod read;
mod rebalance;
mod rejoin;
pub mod room;
mod trouble;

mod died;
mod late;
mod meeting;
pub mod record;
mod replaces;
mod twins;
pub mod waiting;

mod blocked;
pub mod keys;
mod kind;
pub mod lane;
pub mod lookahead;
pub mod spill;

mod absorb;
pub mod engine;
mod open;
mod pending;
mod serve;
mod settle;
pub mod stores;
mod take;
mod tend;

pub mod commit;
mod condition;
pub mod control;
pub mod crashes;
mod cut;
mod flow;
pub mod outbox;
pub mod produce;
pub mod progress;
pub mod reservation;
mod reserve;
pub mod spool;
pub mod started;
pub mod suspects;
mod unwritten;

pub mod letters;

pub mod members;
pub mod scan;
pub mod standing;
pub mod trim;

pub use engine::KafkaEngine;
pub use options::{Cluster, KafkaPipeline, Only, Start, TopicsMode};
pub use stores::KafkaStores;
