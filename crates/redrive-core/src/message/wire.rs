//! A message and its one wire form.
//!
//! A [`Message`] is a view over one buffer. It is encoded once, on entry; from then on the journal, the handler and the
//! dead letter share the same bytes, and a clone only increments a reference count.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use crate::Time;

/// Limits that hold for every message. Checked once, when a message is built or read.
pub mod limits {
    /// The longest id.
    pub const ID_BYTES_MAX: usize = 512;
    /// The longest key.
    pub const KEY_BYTES_MAX: usize = 32 * 1024;
    /// The longest tenant.
    pub const TENANT_BYTES_MAX: usize = 256;
    /// The most headers.
    pub const HEADERS_MAX: usize = 256;
    /// The longest name of a header.
    pub const HEADER_NAME_BYTES_MAX: usize = 0x7fff;
    /// The most bytes of all headers together.
    pub const HEADERS_BYTES_MAX: usize = 256 * 1024;
    /// The largest payload.
    pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;
}

pub(super) const VERSION: u8 = 1;
pub(super) const HAS_KEY: u8 = 1;
pub(super) const HAS_PAYLOAD: u8 = 2;
pub(super) const HAS_TENANT: u8 = 4;
pub(super) const HAS_DEADLINE: u8 = 8;
/// A bit in the stored length of a header's name: the header has no value, which differs from an empty one.
pub(super) const NULL_VALUE: u16 = 0x8000;
/// version, flags, id length, tenant length, header count, key length, headers length, created, deadline
pub(super) const FIXED_BYTES: usize = 1 + 1 + 2 + 2 + 2 + 4 + 4 + 8 + 8;

/// Something to deliver. The id is stable across retries, crashes and replays.
///
/// ```
/// use redrive_core::Message;
///
/// let message = Message::builder("o-17").key("customer-7").payload("{}").header("trace", "abc").build()?;
/// assert_eq!((message.id(), message.key()), ("o-17", Some(&b"customer-7"[..])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(super) wire: Bytes,
    /// Ends of the id, key, tenant and headers in `wire`; the payload is the rest.
    pub(super) ends: [u32; 4],
}

/// Why a message cannot be built or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Every message needs an id.
    #[error("the message id is empty; give every message a stable id")]
    EmptyId,
    /// A part is longer than it may be.
    #[error("the message {part} has {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// Which part.
        part: &'static str,
        /// How long it is.
        bytes: usize,
        /// The maximum length.
        max: usize,
    },
    /// It has more headers than it may have.
    #[error("the message has {count} headers, at most {max} are allowed")]
    TooManyHeaders {
        /// How many it has.
        count: usize,
        /// The maximum number.
        max: usize,
    },
    /// Stored bytes are not a message.
    #[error("the stored message is damaged: {0}")]
    Damaged(&'static str),
}

impl Message {
    /// Reads a message back from its wire form without copying.
    pub fn from_wire(wire: Bytes) -> Result<Self, MessageError> {
        let damaged = MessageError::Damaged;
        if wire.len() < FIXED_BYTES {
            return Err(damaged("shorter than its fixed part"));
        }
        if wire[0] != VERSION {
            return Err(damaged("unknown version"));
        }
        let id = usize::from(u16_at(&wire, 2));
        let tenant = usize::from(u16_at(&wire, 4));
        let key = u32_at(&wire, 8) as usize;
        let headers = u32_at(&wire, 12) as usize;
        let mut end = FIXED_BYTES;
        let mut ends = [0; 4];
        for (slot, len) in ends.iter_mut().zip([id, key, tenant, headers]) {
            end = end
                .checked_add(len)
                .filter(|end| *end <= wire.len())
                .ok_or(damaged("a length passes its end"))?;
            *slot = end as u32;
        }
        let message = Self { wire, ends };
        if std::str::from_utf8(message.part(0)).is_err() || std::str::from_utf8(message.part(2)).is_err() {
            return Err(damaged("id or tenant is not UTF-8"));
        }
        let count = usize::from(u16_at(&message.wire, 6));
        let mut walk = HeaderWalk { rest: message.part(3) };
        if walk.by_ref().take(count + 1).count() != count || !walk.rest.is_empty() {
            return Err(damaged("its headers do not add up"));
        }
        Ok(message)
    }

    /// The encoded form, as stored.
    pub fn wire(&self) -> &Bytes {
        &self.wire
    }

    /// The stable id, by which duplicates are recognised.
    pub fn id(&self) -> &str {
        std::str::from_utf8(self.part(0)).unwrap_or_default()
    }

    /// The key, if it has one.
    pub fn key(&self) -> Option<&[u8]> {
        self.has(HAS_KEY).then(|| self.part(1))
    }

    /// The tenant, if it has one.
    pub fn tenant(&self) -> Option<&str> {
        self.has(HAS_TENANT).then(|| std::str::from_utf8(self.part(2)).unwrap_or_default())
    }

    /// The payload; `None` is a tombstone, which differs from an empty payload.
    pub fn payload(&self) -> Option<&[u8]> {
        self.has(HAS_PAYLOAD).then(|| &self.wire[self.ends[3] as usize..])
    }

    /// The headers in the order they were given; names may repeat. A header without a value appears as an empty one.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.headers_or_null().map(|(name, value)| (name, value.unwrap_or_default()))
    }

    /// The headers with missing values as `None`, as Kafka has them.
    pub fn headers_or_null(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> + Clone {
        HeaderWalk { rest: self.part(3) }
    }

    /// When the message was created.
    pub fn created(&self) -> Time {
        Time::from_millis(u64_at(&self.wire, 16))
    }

    /// When the message expires.
    pub fn deadline(&self) -> Option<Time> {
        self.has(HAS_DEADLINE).then(|| Time::from_millis(u64_at(&self.wire, 24)))
    }

    fn has(&self, flag: u8) -> bool {
        self.wire[1] & flag != 0
    }

    fn part(&self, part: usize) -> &[u8] {
        let start = if part == 0 { FIXED_BYTES } else { self.ends[part - 1] as usize };
        &self.wire[start..self.ends[part] as usize]
    }
}

impl fmt::Debug for Message {
    /// Never prints the payload: it must not end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("bytes", &self.wire.len())
            .field("created", &self.created())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct HeaderWalk<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for HeaderWalk<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < 6 {
            return None;
        }
        let first = u16_at(self.rest, 0);
        let name = usize::from(first & !NULL_VALUE);
        let value = u32_at(self.rest, 2) as usize;
        let name_at: Range<usize> = 6..6 + name;
        let value_at = name_at.end..name_at.end.checked_add(value)?;
        let name = std::str::from_utf8(self.rest.get(name_at)?).ok()?;
        let value = self.rest.get(value_at.clone())?;
        self.rest = &self.rest[value_at.end..];
        Some((name, (first & NULL_VALUE == 0).then_some(value)))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Message {
        Message::builder("o-1")
            .key("c-7")
            .payload("{}")
            .tenant("acme")
            .header("x-src", "web")
            .header("x-src", "twice")
            .created(Time::from_millis(5))
            .deadline(Time::from_millis(9))
            .build()
            .unwrap()
    }

    #[test]
    fn every_part_survives_the_wire() {
        let read = Message::from_wire(full().wire().clone()).unwrap();
        assert_eq!(read, full());
        assert_eq!(read.id(), "o-1");
        assert_eq!(read.key(), Some(&b"c-7"[..]));
        assert_eq!(read.tenant(), Some("acme"));
        assert_eq!(read.payload(), Some(&b"{}"[..]));
        assert_eq!(read.created(), Time::from_millis(5));
        assert_eq!(read.deadline(), Some(Time::from_millis(9)));
        let headers: Vec<_> = read.headers().collect();
        assert_eq!(headers, [("x-src", &b"web"[..]), ("x-src", &b"twice"[..])]);
    }

    #[test]
    fn a_header_without_a_value_is_not_an_empty_one() {
        let message = Message::builder("a").null_header("none").header("empty", "").build().unwrap();
        let read = Message::from_wire(message.wire().clone()).unwrap();
        let headers: Vec<_> = read.headers_or_null().collect();
        assert_eq!(headers, [("none", None), ("empty", Some(&b""[..]))]);
        assert!(read.headers().all(|(_, value)| value.is_empty()));
    }

    #[test]
    fn a_tombstone_is_not_an_empty_payload() {
        let tombstone = Message::builder("a").build().unwrap();
        let empty = Message::builder("a").payload("").build().unwrap();
        assert_eq!(tombstone.payload(), None);
        assert_eq!(empty.payload(), Some(&b""[..]));
        assert_eq!((tombstone.key(), tombstone.tenant(), tombstone.deadline()), (None, None, None));
    }

    #[test]
    fn bounds_are_named_with_part_size_and_limit() {
        assert_eq!(Message::builder("").build(), Err(MessageError::EmptyId));
        let long = Message::builder("x".repeat(limits::ID_BYTES_MAX + 1)).build().unwrap_err();
        assert_eq!(long.to_string(), "the message id has 513 bytes, at most 512 are allowed");
        assert!(Message::builder("x".repeat(limits::ID_BYTES_MAX)).build().is_ok());
        let name = "n".repeat(limits::HEADER_NAME_BYTES_MAX + 1);
        let long = Message::builder("a").header(name, "").build().unwrap_err();
        assert!(matches!(long, MessageError::TooLarge { part: "header name", .. }));
    }

    #[test]
    fn no_damage_to_the_wire_form_panics() {
        let wire = full().wire().clone();
        for cut in 0..wire.len() {
            let _ = Message::from_wire(wire.slice(..cut));
        }
        for byte in 0..wire.len() {
            for bit in 0..8 {
                let mut flipped = wire.to_vec();
                flipped[byte] ^= 1 << bit;
                if let Ok(message) = Message::from_wire(flipped.into()) {
                    let _ = (message.id(), message.key(), message.payload(), message.headers().count());
                }
            }
        }
    }

    #[test]
    fn debug_output_keeps_the_payload_to_itself() {
        let message = Message::builder("a").payload("secret").key("k").build().unwrap();
        assert!(!format!("{message:?}").contains("secret"));
    }
}
