//! The correlation id of a message: one word by which it is found in our logs and in those of others.

use redrive_core::Message;

/// The longest correlation id that is accepted from a message.
const BYTES_MAX: usize = 128;
/// Headers in which callers usually send theirs.
const HEADERS: [&str; 3] = ["correlation-id", "x-correlation-id", "x-request-id"];

/// The sender's id if it is a plain word, otherwise one derived from the message's id. The same for all attempts and
/// replays.
pub fn correlation_id(message: &Message) -> String {
    let header = |wanted: &str| {
        let mut headers = message.headers();
        let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    };
    let given = HEADERS.into_iter().filter_map(header).find(|id| is_plain(id));
    given.map_or_else(|| made_of(message.id()), str::to_owned)
}

fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=BYTES_MAX).contains(&id.len()) && id.bytes().all(plain)
}

/// FNV-1a: it has to be stable and short, not secret.
fn made_of(id: &str) -> String {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("req_{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senders_correlation_id_is_used_if_it_is_a_plain_word() {
        let of = |value: &str| {
            correlation_id(&Message::builder("o-1").header("X-Request-Id", value.to_owned()).build().unwrap())
        };
        assert_eq!(of("abc-123"), "abc-123");
        for odd in ["", "https://example.test/?token=x", "a b", &"x".repeat(129)] {
            assert!(of(odd).starts_with("req_"), "{odd}");
        }
        assert_eq!(of("a b"), of(""), "made from the id of the message");
    }
}
