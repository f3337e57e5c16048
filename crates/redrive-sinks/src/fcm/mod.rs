//! The FCM sink: Google's push service, the HTTP v1 API, in the order of a delivery.
//!
//! - [`options`]: user settings; [`sink`]: one delivery from the message to its outcome
//! - [`message`]: parses the push and its target; [`pace`]: limits the use of the project's quota
//! - [`account`], [`access`]: the service account, and the access token fetched with it
//! - [`classes`]: the class table of answers

pub mod options;
pub mod sink;

pub mod message;
pub mod pace;

pub mod access;
pub mod account;

pub mod classes;

pub use options::FcmOptions;
pub use sink::FcmSink;
