//! Builds the wire form from the parts of a message.

use bytes::{BufMut, Bytes, BytesMut};

use super::wire::{
    FIXED_BYTES, HAS_DEADLINE, HAS_KEY, HAS_PAYLOAD, HAS_TENANT, Message, MessageError, NULL_VALUE, VERSION,
    limits,
};
use crate::Time;

/// The parts of a message, borrowed from wherever they were read: encoding copies each once, into one buffer.
#[derive(Clone, Debug)]
pub struct MessageParts<'a, H> {
    /// The stable id.
    pub id: &'a str,
    /// The key, which defines ordering.
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub payload: Option<&'a [u8]>,
    /// The tenant, for fairness.
    pub tenant: Option<&'a str>,
    /// The headers, in order.
    pub headers: H,
    /// When the message was created.
    pub created: Time,
    /// The deadline, if it has one.
    pub deadline: Option<Time>,
}

impl Message {
    /// Starts a message with its stable id.
    pub fn builder(id: impl Into<String>) -> MessageBuilder {
        MessageBuilder::new(id.into())
    }
}

impl<'a, H> MessageParts<'a, H>
where
    H: Iterator<Item = (&'a str, Option<&'a [u8]>)> + Clone,
{
    /// Checks the limits and encodes. The headers are iterated twice: to measure, and to copy.
    pub fn encode(self) -> Result<Message, MessageError> {
        let key = self.key.unwrap_or_default();
        let payload = self.payload.unwrap_or_default();
        let tenant = self.tenant.unwrap_or_default();
        let (mut count, mut headers, mut longest_name) = (0, 0, 0);
        for (name, value) in self.headers.clone() {
            count += 1;
            headers += 6 + name.len() + value.unwrap_or_default().len();
            longest_name = longest_name.max(name.len());
        }
        if self.id.is_empty() {
            return Err(MessageError::EmptyId);
        }
        let max = limits::HEADERS_MAX;
        if count > max {
            return Err(MessageError::TooManyHeaders { count, max });
        }
        for (part, bytes, max) in [
            ("id", self.id.len(), limits::ID_BYTES_MAX),
            ("key", key.len(), limits::KEY_BYTES_MAX),
            ("tenant", tenant.len(), limits::TENANT_BYTES_MAX),
            ("header name", longest_name, limits::HEADER_NAME_BYTES_MAX),
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
        wire.put_u16_le(count as u16);
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
        for (name, value) in self.headers {
            wire.put_u16_le(name.len() as u16 | if value.is_none() { NULL_VALUE } else { 0 });
            wire.put_u32_le(value.unwrap_or_default().len() as u32);
            wire.put_slice(name.as_bytes());
            wire.put_slice(value.unwrap_or_default());
        }
        wire.put_slice(payload);
        Ok(Message { wire: wire.freeze(), ends })
    }
}

/// Collects the parts of a message; `build` checks the limits and encodes once.
#[derive(Clone, Debug, Default)]
pub struct MessageBuilder {
    id: String,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    tenant: Option<String>,
    headers: Vec<(String, Option<Bytes>)>,
    created: Time,
    deadline: Option<Time>,
}

impl MessageBuilder {
    pub(crate) fn new(id: String) -> Self {
        Self { id, ..Self::default() }
    }

    /// Messages with the same key can be delivered in order.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The payload; without one the message is a tombstone.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// The tenant that the message belongs to; tenants share a replay fairly.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Appends a header; names may repeat.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    /// Appends a header without a value, as Kafka allows.
    #[must_use]
    pub fn null_header(mut self, name: impl Into<String>) -> Self {
        self.headers.push((name.into(), None));
        self
    }

    /// When the message was created; the TTL counts from here.
    #[must_use]
    pub fn created(mut self, created: Time) -> Self {
        self.created = created;
        self
    }

    /// When the message expires.
    #[must_use]
    pub fn deadline(mut self, deadline: Time) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Checks the limits and encodes the message.
    pub fn build(self) -> Result<Message, MessageError> {
        MessageParts {
            id: &self.id,
            key: self.key.as_deref(),
            payload: self.payload.as_deref(),
            tenant: self.tenant.as_deref(),
            headers: self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())),
            created: self.created,
            deadline: self.deadline,
        }
        .encode()
    }
}
