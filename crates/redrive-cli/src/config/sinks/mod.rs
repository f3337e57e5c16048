//! `[pipeline.sink.NAME]`: all sinks and their settings.
//!
//! - [`kind`]: the interface of every sink's settings; [`registry`]: one line per sink; `section`: selects the one that
//!   a pipeline names
//! - [`webhook`] with `webhook_settings`, `classes` and [`identity`], [`stdout`], [`webpush`], [`apns`], [`fcm`]: the
//!   settings of one sink each
//! - `common`: settings that several sinks share; `push`: what the three push sinks have in common

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
