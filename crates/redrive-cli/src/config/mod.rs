//! Turns `redrive.toml`, the environment and flags into one checked configuration.
//!
//! Every setting is declared in [`declared`]. Read in this order: a [`source`] is the text, a `tree` holds the given
//! values and their locations, the `reader` extracts typed values and collects [`fault`]s, one file per table
//! interprets the values, `named` checks the files they name, [`load`] combines everything, and [`resolved`] shows
//! every value with its origin.

pub mod declared;
pub mod fault;
pub mod keys;
pub mod source;
mod tree;

mod example;
mod named;
mod reader;

mod alert;
mod auto_replay;
mod engine;
mod flags;
mod groups;
mod headers;
mod kafka;
mod pipeline;
mod policy;
mod protection;
mod secrets;
pub mod server;
pub mod sinks;

pub mod default;
pub mod load;
mod profile_table;
pub mod resolved;
pub mod schema;
pub mod words;

pub use alert::AlertConfig;
pub use alert::target::AlertTarget;
pub use auto_replay::AutoReplayConfig;
pub use engine::{EngineConfig, EngineKind};
pub use fault::{Fault, Faults, Severity};
pub use flags::ProcessorFlags;
pub use headers::{HeaderConfig, HeaderValue};
pub use kafka::{KafkaConfig, MissingTopics, Part, PassedOn, PassedValue, StartAt};
pub use load::{Config, Environment, Loaded};
pub use pipeline::PipelineConfig;
pub use server::{ServerConfig, TokenConfig};
pub use sinks::webhook::{Target, WebhookConfig};
pub use sinks::{SinkConfig, SinkKind, SinkSettings};
pub use source::Source;
pub use tree::At;
