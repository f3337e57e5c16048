//! Shared parts of the three push sinks.
//!
//! - [`keys`]: signing keys and the tokens made with them
//! - [`json`]: parses messages
//! - [`http2`]: connections to APNs and FCM
//! - [`verdict`], [`failing`]: the meaning of an answer, and its failure
//! - [`conceal`]: removes the receiver from a service's texts
//! - [`gate`]: keeps pushes from purged endpoints
//! - [`trust`]: whether a refused key concerns all messages or one endpoint

pub mod conceal;
pub mod failing;
pub mod gate;
pub mod http2;
pub mod json;
pub mod keys;
pub mod trust;
pub mod verdict;

pub use verdict::{PushClasses, Rows, Verdict};
