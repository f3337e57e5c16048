//! Encodes a message id for `webhook-id`: printable, without `.`; and decodes it.
//!
//! The signed string is `id.timestamp.body`, so an id must not contain a dot. Dots, percent signs and everything that
//! is not printable ASCII are percent-encoded; two ids never look the same, and decoding gives back exactly the id.

use std::fmt::Write as _;

/// Whether a byte is not encoded.
pub(in super::super) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%' && byte != b'.'
}

/// The id as sent.
pub fn encode(id: &str) -> String {
    let mut text = String::with_capacity(id.len() + 8);
    for byte in id.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Decodes a sent id; `None` if [`encode`] cannot have produced it.
pub fn decode(sent: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(sent.len());
    let mut rest = sent.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok().filter(|text| !text.contains('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dots_and_percent_signs_are_encoded() {
        assert_eq!(encode("orders.eu/3/17"), "orders%2Eeu/3/17");
        assert_eq!(encode("50%.é"), "50%25%2E%C3%A9");
        assert_eq!(decode("%2"), None);
        assert_eq!(decode("%+1"), None);
    }

    proptest! {
        #[test]
        fn every_id_comes_back_and_none_has_a_dot(id in "\\PC{0,40}") {
            let sent = encode(&id);
            prop_assert!(!sent.contains('.') && sent.is_ascii());
            prop_assert_eq!(decode(&sent), Some(id));
        }
    }
}
