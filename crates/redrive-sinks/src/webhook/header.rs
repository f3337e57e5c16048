//! Headers in general: which ones belong to a connection, which to Redrive, and how bytes become a header value.

use std::fmt::Write as _;

use bytes::Bytes;
use hyper::header::HeaderValue;

/// The maximum number of headers passed on. Many servers take no more than 100 headers, and 8 or 16 KiB of them; beyond
/// that every attempt would fail with 431.
pub(super) const PASSED_ON_MAX: usize = 64;
pub(super) const PASSED_ON_BYTES_MAX: usize = 8 * 1024;

/// The room left for headers of the message.
#[derive(Debug)]
pub(super) struct HeaderAllowance {
    headers: usize,
    bytes: usize,
}

impl Default for HeaderAllowance {
    fn default() -> Self {
        Self { headers: PASSED_ON_MAX, bytes: PASSED_ON_BYTES_MAX }
    }
}

impl HeaderAllowance {
    /// Reserves room for a header, if there is enough.
    pub(super) fn takes(&mut self, name: &str, value: &[u8]) -> bool {
        let left = self.bytes.checked_sub(name.len() + value.len()).zip(self.headers.checked_sub(1));
        let Some((bytes, headers)) = left else { return false };
        (self.bytes, self.headers) = (bytes, headers);
        true
    }
}

/// Whether only Redrive sets a header.
pub(super) fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("redrive-")
        || name.starts_with("webhook-")
        || name.starts_with("ce-")
        || name == "idempotency-key"
        || name == "traceparent"
        || name == "tracestate"
}

/// `bytes`, a part of `wire`, as a header that every server reads alike: printable ASCII unchanged and without a copy,
/// everything else percent-encoded, including the percent sign: two ids must never look the same.
pub(super) fn printable(wire: &Bytes, bytes: &[u8], is_plain: fn(u8) -> bool) -> HeaderValue {
    if bytes.iter().all(|byte| is_plain(*byte))
        && let Ok(value) = HeaderValue::from_maybe_shared(wire.slice_ref(bytes))
    {
        return value;
    }
    encoded(bytes, is_plain)
}

/// Any bytes in the same form.
pub(super) fn encoded(bytes: &[u8], is_plain: fn(u8) -> bool) -> HeaderValue {
    let mut text = String::with_capacity(bytes.len() * 3);
    for byte in bytes {
        if is_plain(*byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    // Only printable ASCII is left, which is always a header.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// Whether a byte of a header is not encoded.
pub(super) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}
