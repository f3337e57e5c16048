//! Message `i` and its error: 300 bytes of JSON, 40 different errors, some common and some rare.

use std::fmt::Write as _;

use redrive::{Failure, FailureKind, Message};
use redrive_core::SplitMix64;

pub const PAYLOAD_BYTES: usize = 300;
pub const CUSTOMERS: u64 = 1000;
const SERVICES: [&str; 8] =
    ["ledger", "stock", "pricing", "tax", "invoice", "shipping", "loyalty", "address"];
const PROBLEMS: [(u16, &str); 5] = [
    (400, "the body has no currency"),
    (404, "no such customer"),
    (409, "the order was closed"),
    (413, "too many lines"),
    (422, "the total does not add up"),
];
/// Number of different errors, which is also the number of groups.
pub const ERRORS: u64 = (SERVICES.len() * PROBLEMS.len()) as u64;
/// The payload up to its number.
const BEFORE: &[u8] = br#"{"order_id":"o-"#;

/// The id of message `i` where the producer chooses it.
pub fn id(i: u64) -> String {
    format!("o-{i:09}")
}

pub fn payload(i: u64) -> String {
    let mut json = String::with_capacity(PAYLOAD_BYTES);
    // Writing to a String cannot fail.
    let _ = write!(json, r#"{{"order_id":"o-{i}","customer_id":"c-{}","amount":{i},"note":""#, i % CUSTOMERS);
    let filler = PAYLOAD_BYTES.saturating_sub(json.len() + 2);
    json.extend(std::iter::repeat_n('x', filler));
    json.push_str("\"}");
    json
}

/// The number in a payload; `None` if it is not one of ours.
pub fn number(payload: &[u8]) -> Option<u64> {
    let digits = payload.strip_prefix(BEFORE)?;
    let end = digits.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// The error of message `i`.
pub fn failure(seed: u64, message: &Message) -> Failure {
    let Some(i) = message.payload().and_then(number) else {
        return Failure::permanent("no order of this benchmark");
    };
    let kind = kind(seed, i) as usize;
    let (service, (status, problem)) = (SERVICES[kind % SERVICES.len()], PROBLEMS[kind / SERVICES.len()]);
    // The error contains the order number, as real ones do, so that fingerprinting has something to strip.
    let text = format!("{status} {service}: {problem}, order {}", id(i));
    Failure::permanent(text).of_kind(FailureKind::Status(status))
}

/// Squares a uniform draw, so that the first errors are common and the last ones rare.
fn kind(seed: u64, i: u64) -> u64 {
    let draw = (mix(seed ^ mix(i)) >> 11) as f64 / (1_u64 << 53) as f64;
    ((draw * draw * ERRORS as f64) as u64).min(ERRORS - 1)
}

fn mix(i: u64) -> u64 {
    SplitMix64::new(i).draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_300_bytes_and_their_number() {
        for i in [0, 7, 1_234_567, 9_999_999] {
            assert_eq!(payload(i).len(), PAYLOAD_BYTES);
            assert_eq!(number(payload(i).as_bytes()), Some(i));
        }
        assert_eq!(number(b"{}"), None);
    }

    #[test]
    fn every_error_occurs_and_the_first_is_the_most_common() {
        let mut counts = [0_u64; ERRORS as usize];
        for i in 0..10_000 {
            counts[kind(17, i) as usize] += 1;
        }
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
        assert_eq!(counts.iter().max(), Some(&counts[0]));
    }
}
