//! The pure part of Redrive.
//!
//! # Layout, in the order a message meets it
//!
//! - [`time`], [`duration`]: points in time and the words people write for spans of it
//! - [`message`]: what is delivered, and its one wire form
//! - [`class`], [`outcome`]: what came back from an attempt
//! - [`meta`]: what is remembered of a message between attempts
//! - [`reason`], [`decision`]: what happens next, and why
//!
//! Nothing in this crate does I/O, reads a clock or draws a random number: all of them are arguments.

pub mod class;
pub mod decision;
pub mod message;
pub mod meta;
pub mod outcome;
pub mod reason;
pub mod time;

pub use class::{Class, Family};
pub use decision::Decision;
pub use message::{Message, MessageBuilder};
pub use meta::Meta;
pub use outcome::Outcome;
pub use reason::Reason;
pub use time::Time;
