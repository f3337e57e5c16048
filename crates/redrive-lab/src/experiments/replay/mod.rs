//! Replays and the ledger that makes them safe: effects once, and what a Bloom filter in its place would swallow.
//!
//! - [`experiment`] on an [`engine`] with a [`store`] for its effects; [`bloom`]

pub(super) mod bloom;
pub(super) mod experiment;

mod engine;
mod store;
