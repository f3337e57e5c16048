//! The binary encoding of [`Meta`], used in journals and in the local files of other engines.

use bytes::{Buf, BufMut};
use redrive_core::{Meta, Time};

/// The encoded size of a [`Meta`].
pub const META_BYTES: usize = 6 * 8 + 5 * 4;
/// Encodes an unset time; no clock gets that far.
const NEVER: u64 = u64::MAX;

/// Writes an optional time in eight bytes.
pub fn put_time(out: &mut impl BufMut, time: Option<Time>) {
    out.put_u64_le(time.map_or(NEVER, Time::as_millis));
}

/// Reads an optional time. The caller has checked that eight bytes are left.
pub fn get_time(bytes: &mut impl Buf) -> Option<Time> {
    Some(bytes.get_u64_le()).filter(|ms| *ms != NEVER).map(Time::from_millis)
}

/// Writes everything but [`Meta::deferred`], for which each record has its own place.
pub fn put_meta(out: &mut impl BufMut, meta: &Meta) {
    out.put_u64_le(meta.created.as_millis());
    for time in [meta.deadline, meta.first_failed, meta.last_crash] {
        put_time(out, time);
    }
    out.put_u64_le(meta.held_ms);
    out.put_u64_le(meta.last_delay_ms);
    for count in [meta.attempts, meta.uncounted, meta.reconnects, meta.crashes, meta.replays] {
        out.put_u32_le(count);
    }
}

/// Reads a [`Meta`] written by [`put_meta`]; `None` if there are too few bytes.
pub fn get_meta(bytes: &mut impl Buf) -> Option<Meta> {
    if bytes.remaining() < META_BYTES {
        return None;
    }
    Some(Meta {
        created: Time::from_millis(bytes.get_u64_le()),
        deadline: get_time(bytes),
        first_failed: get_time(bytes),
        last_crash: get_time(bytes),
        held_ms: bytes.get_u64_le(),
        last_delay_ms: bytes.get_u64_le(),
        attempts: bytes.get_u32_le(),
        uncounted: bytes.get_u32_le(),
        reconnects: bytes.get_u32_le(),
        crashes: bytes.get_u32_le(),
        replays: bytes.get_u32_le(),
        deferred: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back_but_whether_it_is_deferred() {
        let time = |ms| Some(Time::from_millis(ms));
        let full = Meta {
            created: Time::from_millis(1),
            deadline: time(2),
            attempts: 3,
            uncounted: 4,
            reconnects: 5,
            crashes: 6,
            last_crash: time(7),
            replays: 8,
            first_failed: time(0),
            held_ms: 10,
            last_delay_ms: 11,
            deferred: true,
        };
        for meta in [Meta::default(), full] {
            let mut out = Vec::new();
            put_meta(&mut out, &meta);
            assert_eq!(out.len(), META_BYTES);
            assert_eq!(get_meta(&mut &out[1..]), None);
            assert_eq!(get_meta(&mut &out[..]), Some(Meta { deferred: false, ..meta }));
        }
    }
}
