//! Replays and the ledger that makes them safe: each effect happens once; and what a Bloom filter would drop instead.
//!
//! - [`experiment`] on an [`engine`] with a [`store`] for its effects; [`bloom`]

pub(super) mod bloom;
pub(super) mod experiment;

mod engine;
mod store;
