//! What the Kafka engine promises, on a real broker and with real processes that are killed, frozen and cut off.
//!
//! Afterwards always the same audit: `succeeded + dead == produced` by id, attempts within the budget, and what was done
//! twice has an interruption to blame. `REDRIVE_SEED` repeats a run as far as processes can be repeated;
//! `REDRIVE_KAFKA_KILLS`, `REDRIVE_KAFKA_STORM_SECONDS` and `REDRIVE_KAFKA_ROLLS` make it long.

mod broker;
mod kill;
mod pill;
mod poison;
mod proxy;
mod rolling;
mod stall;
mod storm;
mod support;
mod zombie;
