//! Model-checks the hand-overs between threads of redrive and redrive-kafka. Their files are compiled unchanged with
//! the model checker's threads, locks and atomics instead of the real ones; the checker tries many orders of their
//! steps.
//!
//! - `run`, `write`, `consume`: the files of redrive and redrive-kafka, by path
//! - `sync`: the primitives they use here; redrive has a module of the same name with the real ones
//! - [`models`]: what threads do with them, and what must hold

#![allow(dead_code, reason = "a model does not use all of a file")]

mod consume;
mod dispatch;
pub mod models;
mod run;
mod sync;
mod write;
