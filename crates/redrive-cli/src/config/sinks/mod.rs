//! `[pipeline.sink.NAME]`: which sinks there are, and what each one's settings mean.
//!
//! - [`kind`]: what every sink's settings can do; [`registry`]: one line per sink; `section`: the one that a pipeline names
//! - [`webhook`] with `webhook_settings`, `classes` and [`identity`], [`stdout`], [`webpush`], [`apns`], [`fcm`]: the settings of one sink each
//! - `common`: settings that several sinks have; `push`: what the three push sinks have in common

pub mod apns;
mod classes;
mod common;
pub mod fcm;
pub mod identity;
pub mod kind;
mod push;
pub mod registry;
pub(super) mod section;
pub mod stdout;
pub mod webhook;
mod webhook_settings;
pub mod webpush;

pub use kind::{ReachableAt, SinkConfig, SinkKind, SinkParts, SinkSettings};
pub use registry::{KEYS, SINKS};
