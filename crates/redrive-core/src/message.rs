//! A message and its one wire form.
//!
//! A [`Message`] is a view over one buffer. It is encoded once where it enters; from then on the journal, the handler and
//! the dead letter share the same bytes, and a clone is a reference count.

use std::fmt;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::Time;

/// Bounds that hold for every message. Checked once, where a message is built or read.
pub mod limits {
    pub const ID_BYTES_MAX: usize = 512;
    pub const KEY_BYTES_MAX: usize = 32 * 1024;
    pub const TENANT_BYTES_MAX: usize = 256;
    pub const HEADERS_MAX: usize = 256;
    pub const HEADERS_BYTES_MAX: usize = 256 * 1024;
    pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;
}

const VERSION: u8 = 1;
const HAS_KEY: u8 = 1;
const HAS_PAYLOAD: u8 = 2;
const HAS_TENANT: u8 = 4;
const HAS_DEADLINE: u8 = 8;
/// version, flags, id length, tenant length, header count, key length, headers length, created, deadline
const FIXED_BYTES: usize = 1 + 1 + 2 + 2 + 2 + 4 + 4 + 8 + 8;

/// Something to deliver. The id is stable across retries, crashes and replays.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    wire: Bytes,
    /// Ends of the id, key, tenant and headers in `wire`; the payload is the rest.
    ends: [u32; 4],
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("the message id is empty; give every message a stable id")]
    EmptyId,
    #[error("the message {part} has {bytes} bytes, at most {max} are allowed")]
    TooLarge { part: &'static str, bytes: usize, max: usize },
    #[error("the message has {count} headers, at most {max} are allowed")]
    TooManyHeaders { count: usize, max: usize },
    #[error("the stored message is damaged: {0}")]
    Damaged(&'static str),
}

impl Message {
    /// Starts a message with its stable id.
    pub fn builder(id: impl Into<String>) -> MessageBuilder {
        MessageBuilder { id: id.into(), ..MessageBuilder::default() }
    }

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

    pub fn id(&self) -> &str {
        std::str::from_utf8(self.part(0)).unwrap_or_default()
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.has(HAS_KEY).then(|| self.part(1))
    }

    pub fn tenant(&self) -> Option<&str> {
        self.has(HAS_TENANT).then(|| std::str::from_utf8(self.part(2)).unwrap_or_default())
    }

    /// The payload; `None` is a tombstone and not the same as an empty one.
    pub fn payload(&self) -> Option<&[u8]> {
        self.has(HAS_PAYLOAD).then(|| &self.wire[self.ends[3] as usize..])
    }

    /// Headers in the order they were given; names may repeat.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        HeaderWalk { rest: self.part(3) }
    }

    pub fn created(&self) -> Time {
        Time::from_millis(u64_at(&self.wire, 16))
    }

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
    /// Never prints the payload: it may hold what nobody should read in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("bytes", &self.wire.len())
            .field("created", &self.created())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// Collects the parts of a message; `build` checks the bounds and encodes once.
#[derive(Clone, Debug, Default)]
pub struct MessageBuilder {
    id: String,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    tenant: Option<String>,
    headers: Vec<(String, Bytes)>,
    created: Time,
    deadline: Option<Time>,
}

impl MessageBuilder {
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn created(mut self, created: Time) -> Self {
        self.created = created;
        self
    }

    #[must_use]
    pub fn deadline(mut self, deadline: Time) -> Self {
        self.deadline = Some(deadline);
        self
    }

    pub fn build(self) -> Result<Message, MessageError> {
        let key = self.key.as_deref().unwrap_or_default();
        let payload = self.payload.as_deref().unwrap_or_default();
        let tenant = self.tenant.as_deref().unwrap_or_default();
        let headers: usize = self.headers.iter().map(|(name, value)| 6 + name.len() + value.len()).sum();
        if self.id.is_empty() {
            return Err(MessageError::EmptyId);
        }
        let (count, max) = (self.headers.len(), limits::HEADERS_MAX);
        if count > max {
            return Err(MessageError::TooManyHeaders { count, max });
        }
        for (part, bytes, max) in [
            ("id", self.id.len(), limits::ID_BYTES_MAX),
            ("key", key.len(), limits::KEY_BYTES_MAX),
            ("tenant", tenant.len(), limits::TENANT_BYTES_MAX),
            ("headers", headers, limits::HEADERS_BYTES_MAX),
            ("payload", payload.len(), limits::PAYLOAD_BYTES_MAX),
        ] {
            if bytes > max {
                return Err(MessageError::TooLarge { part, bytes, max });
            }
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.key.is_some(), HAS_KEY)
            | flag(self.payload.is_some(), HAS_PAYLOAD)
            | flag(self.tenant.is_some(), HAS_TENANT)
            | flag(self.deadline.is_some(), HAS_DEADLINE);
        let size = FIXED_BYTES + self.id.len() + key.len() + tenant.len() + headers + payload.len();
        let mut wire = BytesMut::with_capacity(size);
        wire.put_u8(VERSION);
        wire.put_u8(flags);
        wire.put_u16_le(self.id.len() as u16);
        wire.put_u16_le(tenant.len() as u16);
        wire.put_u16_le(self.headers.len() as u16);
        wire.put_u32_le(key.len() as u32);
        wire.put_u32_le(headers as u32);
        wire.put_u64_le(self.created.as_millis());
        wire.put_u64_le(self.deadline.unwrap_or_default().as_millis());
        let mut end = FIXED_BYTES;
        let mut ends = [0; 4];
        for (slot, len) in ends.iter_mut().zip([self.id.len(), key.len(), tenant.len(), headers]) {
            end += len;
            *slot = end as u32;
        }
        wire.put_slice(self.id.as_bytes());
        wire.put_slice(key);
        wire.put_slice(tenant.as_bytes());
        for (name, value) in &self.headers {
            wire.put_u16_le(name.len() as u16);
            wire.put_u32_le(value.len() as u32);
            wire.put_slice(name.as_bytes());
            wire.put_slice(value);
        }
        wire.put_slice(payload);
        Ok(Message { wire: wire.freeze(), ends })
    }
}

struct HeaderWalk<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for HeaderWalk<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < 6 {
            return None;
        }
        let name = usize::from(u16_at(self.rest, 0));
        let value = u32_at(self.rest, 2) as usize;
        let name_at: Range<usize> = 6..6 + name;
        let value_at = name_at.end..name_at.end.checked_add(value)?;
        let header = (std::str::from_utf8(self.rest.get(name_at)?).ok()?, self.rest.get(value_at.clone())?);
        self.rest = &self.rest[value_at.end..];
        Some(header)
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
