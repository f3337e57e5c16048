//! Sizes and times of a store.

use std::time::Duration;

/// Sizes and times of a store. The defaults are for production; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    pub segment_bytes: u64,
    /// Below this much free space no messages are accepted; settling goes on.
    pub reserve_bytes: u64,
    /// How many waiting messages have their due times in memory.
    pub near_max: usize,
    /// A checkpoint of the index is written after this much journal,
    pub checkpoint_bytes: u64,
    /// or after this many changes.
    pub checkpoint_changes: usize,
    /// The journal is not cleaned below this size, except for segments that hold nothing needed.
    pub clean_above_bytes: u64,
    /// How long resolved letters are kept.
    pub resolved_retention: Duration,
    /// How often all stored data is read to find damage; `None` disables it.
    pub scrub: Option<Duration>,
    /// Opens the store even if a part of the journal is missing.
    pub accept_missing: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            reserve_bytes: 256 << 20,
            near_max: 256 * 1024,
            checkpoint_bytes: 1 << 30,
            checkpoint_changes: 400_000,
            clean_above_bytes: 512 << 20,
            resolved_retention: Duration::from_hours(30 * 24),
            scrub: None,
            accept_missing: false,
        }
    }
}
