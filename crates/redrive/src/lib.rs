//! Redrive: retries and dead letters for messages whose downstream fails.
//!
//! # Layout, in the order a message passes through
//!
//! - [`engine`]: where messages live; the seam, and the engines behind it
//! - [`handler`], [`failure`]: what a user writes, and what it says when it fails

pub mod engine;

pub mod failure;
pub mod handler;

pub use failure::Failure;
pub use handler::{Handler, MessageExt};
pub use redrive_core::{Class, Decision, Message, Meta, Outcome, Reason, Time};
