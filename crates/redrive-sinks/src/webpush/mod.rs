//! The Web Push sink (RFC 8030, 8188, 8291, 8292), in the order of a delivery.
//!
//! - [`options`]: user settings; [`sink`]: one delivery from the message to its outcome
//! - [`message`], [`subscription`]: the push and its subscription
//! - [`encrypt`], [`vapid`]: the encrypted body, and our identification
//! - [`classes`]: the class table of answers

pub mod options;
pub mod sink;

pub mod message;
pub mod subscription;

pub mod encrypt;
pub mod vapid;

pub mod classes;

pub use options::WebPushOptions;
pub use sink::WebPushSink;
