//! The webhook sink, in the order of a delivery.
//!
//! - [`options`]: user settings; [`sink`]: one delivery from the message to its outcome
//! - [`endpoint`], `pointer`: the destination of a message; `permits`: concurrency per endpoint
//! - `request`, `header`, `payload`, `cloud_event`, [`signing`]: the request
//! - [`auth`]: authentication to the receiver
//! - [`guard`], [`dns`], `connect`, `client_auth`, `proxy`, `stream`: allowed addresses, and connections to them
//! - [`outcome`]: answers and their meaning
//! - `endpoint_hash`: an endpoint as a log may show it

pub mod options;
pub mod sink;

pub mod endpoint;
mod permits;
mod pointer;

mod cloud_event;
mod header;
pub(crate) mod payload;
mod request;
pub mod signing;

pub mod auth;

mod client_auth;
pub(crate) mod connect;
pub mod dns;
pub mod guard;
mod proxy;
mod stream;

pub mod outcome;

pub(crate) mod endpoint_hash;

pub use auth::{Auth, OAuth2};
pub use cloud_event::Format;
pub use dns::Names;
pub use endpoint::EndpointFault;
pub use endpoint_hash::check_hash_key;
pub use options::{HeaderFrom, WebhookOptions};
pub use outcome::classes::{Case, ClassTable, Meaning, Trouble};
pub use outcome::judge::WebhookError;
pub use signing::{Signing, SigningError};
pub use sink::WebhookSink;

pub use crate::tls::ClientCertificate;
pub use redrive::LimitBy;
