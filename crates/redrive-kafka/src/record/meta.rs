//! [`Meta`] as bytes, for local files that live no longer than the process: the spill files and the cache of letters.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive_core::{Meta, Time};

/// The bytes of every [`Meta`].
pub(crate) const META_BYTES: usize = 6 * 8 + 5 * 4 + 1;
/// Stands for a time that is not set; no clock gets that far.
const NEVER: u64 = u64::MAX;

pub(crate) fn put_time(out: &mut BytesMut, time: Option<Time>) {
    out.put_u64_le(time.map_or(NEVER, Time::as_millis));
}

/// The caller has checked that there are eight bytes.
pub(crate) fn get_time(bytes: &mut Bytes) -> Option<Time> {
    Some(bytes.get_u64_le()).filter(|ms| *ms != NEVER).map(Time::from_millis)
}

pub(crate) fn put_meta(out: &mut BytesMut, meta: &Meta) {
    out.put_u64_le(meta.created.as_millis());
    for time in [meta.deadline, meta.last_crash, meta.first_failed] {
        put_time(out, time);
    }
    out.put_u64_le(meta.held_ms);
    out.put_u64_le(meta.last_delay_ms);
    for count in [meta.attempts, meta.uncounted, meta.reconnects, meta.crashes, meta.replays] {
        out.put_u32_le(count);
    }
    out.put_u8(u8::from(meta.deferred));
}

/// `None` if the bytes are too few.
pub(crate) fn get_meta(bytes: &mut Bytes) -> Option<Meta> {
    if bytes.len() < META_BYTES {
        return None;
    }
    let created = Time::from_millis(bytes.get_u64_le());
    let (deadline, last_crash, first_failed) = (get_time(bytes), get_time(bytes), get_time(bytes));
    let (held_ms, last_delay_ms) = (bytes.get_u64_le(), bytes.get_u64_le());
    let mut counts = [0; 5];
    counts.fill_with(|| bytes.get_u32_le());
    let [attempts, uncounted, reconnects, crashes, replays] = counts;
    let deferred = bytes.get_u8() != 0;
    Some(Meta {
        created,
        deadline,
        attempts,
        uncounted,
        reconnects,
        crashes,
        last_crash,
        replays,
        first_failed,
        held_ms,
        last_delay_ms,
        deferred,
    })
}

/// The next `len` bytes, if there are so many.
pub(crate) fn get_part(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.len() >= len).then(|| bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back() {
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
            let mut out = BytesMut::new();
            put_meta(&mut out, &meta);
            let mut bytes = out.freeze();
            assert_eq!(bytes.len(), META_BYTES);
            assert_eq!(get_meta(&mut bytes.slice(1..)), None);
            assert_eq!(get_meta(&mut bytes), Some(meta));
        }
    }
}
