//! The Web Push sink (RFC 8030, 8188, 8291, 8292), in the order of a delivery.
//!
//! - [`options`]: what a user sets; [`sink`]: one delivery from the message to its outcome
//! - [`message`], [`subscription`]: what is pushed, and to whom
//! - [`encrypt`], [`vapid`]: the encrypted body, and who we are
//! - [`classes`]: what the answers mean

pub mod options;
pub mod sink;

pub mod message;
pub mod subscription;

pub mod encrypt;
pub mod vapid;

pub mod classes;

pub use options::WebPushOptions;
pub use sink::WebPushSink;
