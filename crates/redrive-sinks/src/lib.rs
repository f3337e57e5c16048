//! Where Redrive delivers to: sinks, which implement [`redrive::Sink`].
//!
//! # Layout
//!
//! - [`secret`], [`fault`]: what is never printed, and what is wrong with a setting
//! - [`tls`]: who is trusted, and why a handshake failed
//! - [`stdout`]: a JSON line per message, for looking at them
//! - [`webhook`]: a POST per message, to one URL or to an endpoint that the message names
//!
//! A sink knows no engine and no policy. It says what came back; what follows from it is decided in `redrive-core`.

pub mod fault;
pub mod secret;
pub mod tls;

pub mod stdout;
pub mod webhook;

pub use fault::SinkFault;
pub use secret::{Secret, SecretError};
pub use stdout::StdoutSink;
pub use webhook::{ClassTable, Names, WebhookOptions, WebhookSink};

/// The guide's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/webhooks.md")]
struct Guide;
