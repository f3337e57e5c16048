//! The workload every benchmark and experiment of Redrive shares, and the two programs around a pipeline.
//!
//! # Layout
//!
//! - [`order`]: message i, the same bytes on every machine; [`seed`]: the ids of other runs
//! - [`fate`]: what becomes of message i, decided by its id alone; [`mark`]: how the fate travels in the payload
//! - [`producer`]: orders at a fixed rate that does not slow down when the consumer does
//! - [`downstream`]: a stub that fails on command and remembers what it applied
//! - [`outage`]: a downstream that is gone for a while under load, on any engine
//! - [`experiments`]: what `redrive lab` runs, from [`scenario`] files, on a [`testbed`], into [`results`]
//! - [`share`]: the word people write for it; [`metrics`], `http`: what both serve
//! - [`mod@bench`]: counters, figures and the machine, for the benchmarks; `kafka` (feature `kafka`): orders in topics, what
//!   became of them, and a broker of one's own
//!
//! The program `redrive-bench` measures the embedded engine with the workload; see docs/benchmarks.md.
//! `redrive-bench-kafka` does the same with the Kafka engine; see docs/benchmarks-kafka.md.

pub mod fate;
pub mod mark;
pub mod order;
pub mod seed;

pub mod producer;

pub mod downstream;
pub mod outage;

pub mod experiments;
pub mod results;
pub mod scenario;
pub mod testbed;

pub mod share;

pub mod bench;
#[cfg(feature = "kafka")]
pub mod kafka;

mod http;
pub mod metrics;
