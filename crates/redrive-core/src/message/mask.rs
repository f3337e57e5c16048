//! Overwrites the contents of a stored message in place.

use super::wire::{FIXED_BYTES, NULL_VALUE};

/// Overwrites key, tenant, headers and payload of a message in its wire form with zeros. The id, the times and every
/// length stay: a half-overwritten message has the same layout as the whole one, so masking can be repeated after a
/// crash.
pub fn mask(wire: &mut [u8]) {
    let Some([id, key, tenant, headers]) = lengths(wire) else { return wire.fill(0) };
    let rest = &mut wire[FIXED_BYTES + id..];
    let (said, rest) = rest.split_at_mut(key + tenant);
    said.fill(0);
    let (headers, payload) = rest.split_at_mut(headers);
    mask_headers(headers);
    payload.fill(0);
}

/// The lengths of id, key, tenant and headers, if they fit the length of the message.
fn lengths(wire: &[u8]) -> Option<[usize; 4]> {
    let fixed = wire.get(..FIXED_BYTES)?;
    let short = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
    let long = |at: usize| short(at) | short(at + 2) << 16;
    let lengths = [short(2), long(8), short(4), long(12)];
    (lengths.iter().sum::<usize>() <= wire.len() - FIXED_BYTES).then_some(lengths)
}

fn mask_headers(headers: &mut [u8]) {
    let mut at = 0;
    while let Some(fixed) = headers.get(at..at + 6) {
        let name = usize::from(u16::from_le_bytes([fixed[0], fixed[1]]) & !NULL_VALUE);
        let value = u32::from_le_bytes([fixed[2], fixed[3], fixed[4], fixed[5]]) as usize;
        let end = (at + 6).saturating_add(name).saturating_add(value).min(headers.len());
        headers[at + 6..end].fill(0);
        at = end;
    }
    headers[at..].fill(0);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Message, Time};

    fn message() -> Message {
        let builder = Message::builder("o-1").key("c-7").payload("secret").tenant("acmé").null_header("none");
        let builder = builder.header("authorization", "Bearer s3cr3t").created(Time::from_millis(5));
        builder.deadline(Time::from_millis(9)).build().unwrap()
    }

    #[test]
    fn the_id_the_times_and_every_length_stay_and_nothing_else() {
        let mut wire = message().wire().to_vec();
        mask(&mut wire);
        let masked = Message::from_wire(Bytes::from(wire)).unwrap();
        assert_eq!(masked.wire().len(), message().wire().len());
        assert_eq!((masked.id(), masked.created(), masked.deadline()), {
            let message = message();
            ("o-1", message.created(), message.deadline())
        });
        let said = masked.key().into_iter().chain(masked.payload()).chain(masked.tenant().map(str::as_bytes));
        assert!(said.flatten().all(|byte| *byte == 0));
        assert!(
            masked.headers().all(|(name, value)| name.bytes().chain(value.iter().copied()).all(|b| b == 0))
        );
    }

    /// A crash may leave any mixture of sectors.
    #[test]
    fn a_half_masked_message_becomes_the_same_when_it_is_masked_again() {
        let plain = message().wire().to_vec();
        let mut whole = plain.clone();
        mask(&mut whole);
        for cut in 0..plain.len() {
            for (first, second) in [(&plain, &whole), (&whole, &plain)] {
                let mut torn = [&first[..cut], &second[cut..]].concat();
                mask(&mut torn);
                assert_eq!(torn, whole, "torn at {cut}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_overwritten_as_a_whole() {
        for len in [0, 3, FIXED_BYTES, 100] {
            let mut bytes = vec![0xff; len];
            mask(&mut bytes);
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }
}
