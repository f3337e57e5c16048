//! Redrive: retries and dead letters for messages whose downstream fails.
//!
//! # Layout, in the order a message passes through
//!
//! - [`engine`]: where messages live; the seam, and the engines behind it

pub mod engine;

pub use redrive_core::{Class, Decision, Message, Meta, Outcome, Reason, Time};
