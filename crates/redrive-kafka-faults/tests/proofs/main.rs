//! The guarantees of the Kafka engine, on a real broker and with real processes that are killed, frozen and cut off.
//!
//! Every proof ends with the same audit: `succeeded + dead == produced` by id, attempts within the budget, and every
//! repeat explained by an interruption. `REDRIVE_SEED` repeats a run as far as processes can be repeated;
//! `REDRIVE_KAFKA_KILLS`, `REDRIVE_KAFKA_STORM_SECONDS` and `REDRIVE_KAFKA_ROLLS` make it longer.

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
