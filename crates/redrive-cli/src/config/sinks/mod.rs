//! `[pipeline.sink.NAME]`: which sinks there are, and what each one's settings mean.
//!
//! - [`registry`]: one line per sink, and what every sink's settings can do
//! - [`webhook`] with `classes` and [`identity`], [`stdout`]: the settings of one sink each

mod classes;
pub mod identity;
pub mod registry;
pub mod stdout;
pub mod webhook;

pub use registry::{SINKS, SinkConfig, SinkKind, SinkSettings};
