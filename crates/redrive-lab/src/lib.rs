//! The common workload of Redrive's benchmarks and experiments, and the producer and downstream around a pipeline.
//!
//! # Layout
//!
//! - [`order`]: message `i`, the same bytes on every machine; [`seed`]: the ids of other runs
//! - [`fate`]: the fate of message `i`, decided by its id alone; [`mark`]: how the payload carries the fate
//! - [`producer`]: orders at a fixed rate that does not slow down with the consumer
//! - [`downstream`]: a stub that fails on command and records what it applied
//! - [`outage`]: a downstream that is down for a while under load, on any engine
//! - [`experiments`]: what `redrive lab` runs, from [`scenario`] files, on a [`testbed`], into [`results`]
//! - [`share`]: shares as people write them; [`metrics`], `http`: shared by producer and downstream
//! - [`mod@bench`]: counters, figures and the machine, for the benchmarks; `kafka` (feature `kafka`): orders in
//!   topics, their audit, and a private broker
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
