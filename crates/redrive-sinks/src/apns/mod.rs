//! The APNs sink: Apple's push service over HTTP/2, in the order of a delivery.
//!
//! - [`options`]: what a user sets; [`sink`]: one delivery from the message to its outcome
//! - [`message`]: what is pushed, and to which device
//! - [`token`]: the provider token, within Apple's limits
//! - [`classes`]: what the answers mean

pub mod options;
pub mod sink;

pub mod message;

pub mod token;

pub mod classes;

pub use options::{ApnsAuth, ApnsOptions};
pub use sink::ApnsSink;
