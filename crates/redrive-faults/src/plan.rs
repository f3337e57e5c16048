//! What every part agrees on: the pipelines, the sizes, and the numbers that follow from a seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive::engine::embedded::Tuning;
use redrive::engine::{Ordering, StoreOptions};
use redrive_core::{Message, Time};

/// One pipeline without order, one with.
pub const PIPELINES: [&str; 2] = ["plain", "keyed"];

pub fn options(pipeline: &str) -> StoreOptions {
    let ordering = if pipeline == "keyed" { Ordering::Key } else { Ordering::None };
    StoreOptions { ordering, ..StoreOptions::default() }
}

/// Small enough that a few hundred messages roll segments, cut checkpoints, start the cleaner and fill the letter log.
pub fn tuning() -> Tuning {
    Tuning {
        segment_bytes: 16 * 1024,
        reserve_bytes: 0,
        near_max: 16,
        checkpoint_bytes: 24 * 1024,
        checkpoint_changes: 40,
        clean_above_bytes: 32 * 1024,
        // Closed letters must be found by who verifies.
        closed_keep: Duration::from_hours(1_000_000),
        scrub: None,
        accept_missing: false,
    }
}

pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(since.as_millis() as u64)
}

/// The message of an id: whoever reads it back can tell whether it is whole.
pub fn message(id: &str, key: Option<&str>) -> Message {
    let builder = Message::builder(id).payload(payload(id));
    let builder = match key {
        Some(key) => builder.key(key.as_bytes().to_vec()),
        None => builder,
    };
    builder.build().expect("ids and keys of the workload are within the limits")
}

/// 40 to 400 bytes that follow from the id.
pub fn payload(id: &str) -> Vec<u8> {
    let mut random =
        SplitMix::new(id.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))));
    let len = 40 + random.below(360);
    (0..len).map(|_| random.next() as u8).collect()
}

/// SplitMix64: small, and the same everywhere.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[allow(clippy::should_implement_trait)] // an endless stream, not an iterator
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
