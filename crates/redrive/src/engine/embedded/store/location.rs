//! The location of a store, and the options to open it with.

use std::sync::Arc;

use crate::engine::embedded::index::tables::IndexError;
use crate::engine::embedded::tuning::Tuning;
use crate::engine::seam::StoreOptions;

/// The location of a store, and what is needed to open it.
#[derive(Debug, Clone)]
pub struct StoreLocation<D> {
    pub disk: D,
    pub store_id: [u8; 16],
    pub options: StoreOptions,
    pub tuning: Tuning,
    /// Identifies this opening among all, in any process.
    pub owner: u64,
}

/// The seed for hashing keys and ids of a store, so that an outsider cannot choose colliding ones.
pub fn seed(store_id: &[u8; 16]) -> u64 {
    u64::from_le_bytes(store_id[..8].try_into().unwrap_or_default())
}

/// Opens the tables; with `true`, discards the existing ones first.
pub type OpenIndex<S> = Arc<dyn Fn(bool) -> Result<Arc<S>, IndexError> + Send + Sync>;
