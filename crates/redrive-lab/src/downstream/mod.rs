//! The downstream: a stub that applies orders, fails on request, and records what it applied.
//!
//! # Layout, in the order a call meets it
//!
//! - [`options`]: settings fixed at startup; [`switches`]: settings that can change at run time
//! - [`outage`], [`latency`]: when calls fail altogether, and how long a call takes
//! - [`failure`]: the ways a call fails; `decide`: which one, as a pure function
//! - [`ledger`]: the applied ids, in memory, in a file or in PostgreSQL
//! - [`stub`]: one call from beginning to end, with or without HTTP; [`stats`]: its counters
//! - [`server`]: the same over HTTP
//!
//! A second program that only counts its own calls proves nothing about a pipeline. The stub's ledger is the witness
//! of an audit: it contains an id if and only if its effect has happened.

pub mod options;
pub mod switches;

pub mod latency;
pub mod outage;

mod decide;
pub mod failure;

pub mod ledger;
pub mod stats;
pub mod stub;

mod routes;
pub mod server;

pub use failure::StubFailure;
pub use latency::Latency;
pub use ledger::{Applied, LedgerFault, LedgerOptions, Page};
pub use options::{DownstreamError, DownstreamOptions};
pub use outage::{OutageStyle, OutageWindow};
pub use server::{ServedReport, Server, run};
pub use stats::Stats;
pub use stub::Downstream;
pub use switches::{SwitchFault, SwitchFaults, Switches};
