//! The HTTP side of Redrive: messages in, dead letters out and back, figures, and a small page.
//!
//! # Layout, in the order a request meets it
//!
//! - [`options`], [`service`], [`server`]: what is served, where, and until when; [`readiness`]; [`readers`]: who else
//!   reads what is served
//! - `connections`: who is connected, and who has to go when there are too many
//! - [`routes`]: the table of all routes; `router`: each with its handler
//! - [`access`]: who may: [`access::auth`] judges, [`access::token`] names, `guard` asks it of each request, by what
//!   `caller` finds in it; `wrong_tokens`
//! - `request`, `query`: paths, query strings and bodies; `answer`: JSON; `answers`: how much
//!   memory they take
//! - [`ingest`], `extract`: messages coming in
//! - [`api`]: pipelines, messages, letters, replays, actions
//! - [`metrics`], [`exposition`]: figures as Prometheus reads them
//! - [`alerts`]: which figures need an alert, and when
//! - [`openapi`]: the same routes as a document
//! - [`problem`]: what goes wrong, with a way out
//! - [`log`]: the structured log of failed attempts
//!
//! Nothing here knows a sink or a configuration file: the caller says what a server serves.

mod connections;
pub mod options;
pub mod readers;
pub mod readiness;
pub mod server;
pub mod service;
mod state;
pub mod tls;

pub mod access;
mod router;
pub mod routes;

mod body;
mod changes;
mod extract;
pub mod import;
pub mod ingest;

pub mod api;

pub mod exposition;
pub mod group_watch;
mod health;
pub mod metrics;

pub mod alerts;

pub mod openapi;
mod page;

mod answer;
mod answer_memory;
mod fields;
pub mod problem;
mod query;
mod request;

pub mod log;

pub use access::token::{Scope, Token, TokenError};
pub use access::{auth, token};
pub use ingest::Intake;
pub use options::{Reads, ServerError, ServerOptions};
pub use readers::Readers;
pub use readiness::{Phase, Readiness};
pub use server::Server;
pub use service::{Served, Service};
pub use tls::ServerTls;
