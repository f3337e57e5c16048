//! The HTTP side of Redrive: messages in, dead letters out and back, figures, and a small page.
//!
//! # Layout, in the order a request meets it
//!
//! - [`options`], [`service`], [`server`]: what is served, where, and until when; [`readiness`]; [`readers`]: other
//!   readers of a pipeline's topic
//! - `connections`: all connections, and which ones are closed when there are too many
//! - [`routes`]: the table of all routes; `router`: each with its handler
//! - [`access`]: access control: [`access::auth`] decides, [`access::token`] identifies the actor, `guard` applies the
//!   decision to each request, based on what `caller` finds in it; `wrong_tokens` limits guessing
//! - `request`, `query`: paths, query strings and bodies; `answer`: JSON; `answer_memory`: the memory for answers
//! - [`ingest`], `extract`: messages coming in
//! - [`api`]: pipelines, messages, letters, replays, actions
//! - [`metrics`], [`exposition`]: figures for Prometheus
//! - [`alerts`]: which figures need an alert, and when
//! - [`openapi`]: the same routes as a document
//! - [`problem`]: errors, with how to fix them
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
