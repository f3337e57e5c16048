//! The hand-overs between threads of redrive and redrive-kafka, compiled as they are with the model checker's threads, locks and atomics
//! in place of the real ones, which tries many orders of their steps.
//!
//! - `run`, `write`, `consume`: the files of redrive and redrive-kafka, by path
//! - `sync`: what they are made of here; redrive has a module of the same name with the real ones
//! - [`models`]: what threads do with them, and what must hold

#![allow(dead_code, reason = "a model does not use all of a file")]

mod consume;
mod dispatch;
pub mod models;
mod run;
mod sync;
mod write;
