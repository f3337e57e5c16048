//! Where a store lives, and what it is opened with.

use std::sync::Arc;

use crate::engine::embedded::index::tables::IndexError;
use crate::engine::embedded::tuning::Tuning;
use crate::engine::seam::StoreOptions;

/// Where a store lives and what it is.
#[derive(Debug, Clone)]
pub struct StoreLocation<D> {
    pub disk: D,
    pub store_id: [u8; 16],
    pub options: StoreOptions,
    pub tuning: Tuning,
    /// Tells this opening from any other, in whatever process.
    pub owner: u64,
}

/// What keys and ids of a store are hashed with, so that an outsider cannot choose ones that collide.
pub fn seed(store_id: &[u8; 16]) -> u64 {
    u64::from_le_bytes(store_id[..8].try_into().unwrap_or_default())
}

/// Opens the tables; with `true`, throws away what is there first.
pub type OpenIndex<S> = Arc<dyn Fn(bool) -> Result<Arc<S>, IndexError> + Send + Sync>;
