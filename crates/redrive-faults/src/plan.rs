//! Shared definitions: the pipelines, the sizes, and what follows from a seed or an id.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive::internal::engine::embedded::Tuning;
use redrive::internal::engine::{DeliveryOrder, StoreOptions};
use redrive_core::{Message, SplitMix64, Time};

/// One pipeline without order, one with.
pub const PIPELINES: [&str; 2] = ["plain", "keyed"];

pub fn options(pipeline: &str) -> StoreOptions {
    let ordering = if pipeline == "keyed" { DeliveryOrder::Key } else { DeliveryOrder::None };
    StoreOptions { ordering, ..StoreOptions::default() }
}

/// Small enough that a few hundred messages roll segments, write checkpoints, start the cleaner and fill the letter
/// log.
pub fn tuning() -> Tuning {
    Tuning {
        segment_bytes: 16 * 1024,
        reserve_bytes: 0,
        near_max: 16,
        checkpoint_bytes: 24 * 1024,
        checkpoint_changes: 40,
        clean_above_bytes: 32 * 1024,
        // The verifier must still find resolved letters.
        resolved_retention: Duration::from_hours(1_000_000),
        scrub: None,
        accept_missing: false,
    }
}

pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(since.as_millis() as u64)
}

/// Returns the message of an id; a reader can tell whether it is intact.
pub fn message(id: &str, key: Option<&str>) -> Message {
    let builder = Message::builder(id).payload(payload(id));
    let builder = match key {
        Some(key) => builder.key(key.as_bytes().to_vec()),
        None => builder,
    };
    builder.build().expect("ids and keys of the workload are within the limits")
}

/// Returns 40 to 400 bytes that follow from the id.
pub fn payload(id: &str) -> Vec<u8> {
    let mut random = SplitMix64::new(
        id.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))),
    );
    // Not `below`: stores that were written earlier must still verify.
    let len = 40 + random.draw() % 360;
    (0..len).map(|_| random.draw() as u8).collect()
}
