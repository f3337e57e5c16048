//! The APNs sink: Apple's push service over HTTP/2, in the order of a delivery.
//!
//! - [`options`]: user settings; [`sink`]: one delivery from the message to its outcome
//! - [`message`]: parses the push and its device
//! - [`token`]: the provider token, within Apple's limits
//! - [`classes`]: the class table of answers

pub mod options;
pub mod sink;

pub mod message;

pub mod token;

pub mod classes;

pub use options::{ApnsAuth, ApnsOptions};
pub use sink::ApnsSink;
