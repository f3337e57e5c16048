//! What the three push sinks have in common.
//!
//! - [`keys`]: signing keys and the tokens made with them
//! - [`json`]: reading what a message asks for
//! - [`http2`]: connections to APNs and FCM
//! - [`verdict`], [`failing`]: what an answer means, and the failure it becomes
//! - [`conceal`]: leaves the receiver out of what a service says
//! - [`gate`]: keeps pushes from purged endpoints
//! - [`trust`]: whether a refused key is ours or one endpoint's matter

pub mod conceal;
pub mod failing;
pub mod gate;
pub mod http2;
pub mod json;
pub mod keys;
pub mod trust;
pub mod verdict;

pub use verdict::{PushClasses, Rows, Verdict};
