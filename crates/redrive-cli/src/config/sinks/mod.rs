//! `[pipeline.sink.NAME]`: which sinks there are, and what each one's settings mean.
//!
//! - [`registry`]: one line per sink, and what every sink's settings can do
//! - [`webhook`] with `classes` and [`identity`], [`stdout`], [`webpush`], [`apns`], [`fcm`]: the settings of one sink each
//! - `push`: what the three push sinks have in common

pub mod apns;
mod classes;
pub mod fcm;
pub mod identity;
mod push;
pub mod registry;
pub mod stdout;
pub mod webhook;
pub mod webpush;

pub(crate) use push::hash_key;
pub use registry::{SINKS, SinkConfig, SinkKind, SinkSettings};
