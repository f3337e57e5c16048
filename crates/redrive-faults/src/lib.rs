//! Breaks the embedded engine on purpose. Never published.
//!
//! The [`workload`] runs in a process of its own, the victim, and writes what it is about to do and what was
//! acknowledged to a file outside the store. The [`ledger`] folds that file into the states that each message may be
//! in, and [`verify`] opens what the victim left behind and compares. Two more victims: [`replaying`] runs a replay job
//! on a whole pipeline, and [`pill`] is killed by one of its messages.

pub mod acks;
pub mod ledger;
pub mod pill;
pub mod plan;
pub mod replaying;
pub mod sample;
pub mod settle;
pub mod verify;
pub mod workload;
