//! Where Redrive delivers to: sinks, which implement [`redrive::Sink`].
//!
//! # Layout
//!
//! - [`secret`], [`fault`]: texts that are never printed, and faults in settings
//! - [`tls`]: trusted authorities, and why a handshake failed
//! - [`stdout`]: a JSON line per message, for looking at them
//! - [`webhook`]: a POST per message, to one URL or to an endpoint that the message names
//! - [`webpush`], [`apns`], [`fcm`]: a push per message, to the browser or device that it names; [`push`]: what they
//!   share
//!
//! A sink knows no engine and no policy. It reports the outcome; `redrive-core` decides what follows.

pub mod fault;
pub mod secret;
pub mod tls;

pub mod stdout;
pub mod webhook;

pub mod apns;
pub mod fcm;
pub mod push;
pub mod webpush;

pub use apns::{ApnsAuth, ApnsOptions, ApnsSink};
pub use fault::SinkFault;
pub use fcm::{FcmOptions, FcmSink};
pub use secret::{Secret, SecretError};
pub use stdout::StdoutSink;
pub use webhook::{ClassTable, Names, WebhookOptions, WebhookSink, check_hash_key};
pub use webpush::{WebPushOptions, WebPushSink};

/// Compiles the guide's example with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/webhooks.md")]
struct Guide;
