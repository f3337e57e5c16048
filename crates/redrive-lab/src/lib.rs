//! The workload every benchmark and experiment of Redrive shares.
//!
//! # Layout
//!
//! - [`order`]: message i, the same bytes on every machine
//! - [`fate`]: what becomes of message i, decided by its id alone
//!
//! The program `redrive-bench` measures the embedded engine with them; see docs/benchmarks.md.

pub mod fate;
pub mod order;
