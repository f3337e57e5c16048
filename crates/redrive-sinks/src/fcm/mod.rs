//! The FCM sink: Google's push service, the HTTP v1 API, in the order of a delivery.
//!
//! - [`options`]: what a user sets; [`sink`]: one delivery from the message to its outcome
//! - [`message`]: what is pushed, and to whom; [`pace`]: how much of the project's quota is used
//! - [`account`], [`access`]: the service account, and the access token fetched with it
//! - [`classes`]: what the answers mean

pub mod options;
pub mod sink;

pub mod message;
pub mod pace;

pub mod access;
pub mod account;

pub mod classes;

pub use options::FcmOptions;
pub use sink::FcmSink;
