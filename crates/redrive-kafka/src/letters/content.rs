//! The bytes of a letter in the local file: the message, its metadata, its history.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive::internal::engine::History;
use redrive_core::{Fingerprint, Message, Meta};

use crate::record::group;
use crate::record::meta::{META_BYTES, get_meta, get_part, put_meta};

/// The content of a letter, without what the index holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub message: Message,
    pub meta: Meta,
    pub history: History,
    /// The topic that its message came from.
    pub topic: Arc<str>,
    pub group: Fingerprint,
    /// The policy in force when it died.
    pub options: Option<Arc<str>>,
}

impl Content {
    pub fn write(&self, out: &mut BytesMut) {
        out.reserve(META_BYTES + 8 + self.topic.len() + self.message.wire().len() + self.history.raw().len());
        put_meta(out, &self.meta);
        let options = self.options.as_deref().unwrap_or_default();
        for text in [&*self.topic, &group::write(&self.group), options] {
            out.put_u16_le(text.len() as u16);
            out.put_slice(text.as_bytes());
        }
        out.put_u32_le(self.history.raw().len() as u32);
        out.put_slice(self.history.raw());
        out.put_slice(self.message.wire());
    }

    /// Returns `None` if these are not the bytes of a letter.
    pub fn read(mut bytes: Bytes) -> Option<Self> {
        let meta = get_meta(&mut bytes)?;
        let topic_len = (bytes.len() >= 2).then(|| bytes.get_u16_le())?;
        let topic = get_part(&mut bytes, usize::from(topic_len))?;
        let group_len = (bytes.len() >= 2).then(|| bytes.get_u16_le())?;
        let group = group::read(&get_part(&mut bytes, usize::from(group_len))?)?;
        let options_len = (bytes.len() >= 2).then(|| bytes.get_u16_le())?;
        let options = get_part(&mut bytes, usize::from(options_len))?;
        let options =
            Some(std::str::from_utf8(&options).ok()?).filter(|text| !text.is_empty()).map(Arc::from);
        let history_len = (bytes.len() >= 4).then(|| bytes.get_u32_le())? as usize;
        let history = History::from_raw(get_part(&mut bytes, history_len)?);
        let topic = Arc::from(std::str::from_utf8(&topic).ok()?);
        Some(Self { message: Message::from_wire(bytes).ok()?, meta, history, topic, group, options })
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::Attempt;
    use redrive_core::{Class, FailureKind, Time};

    use super::*;

    fn content(meta: Meta) -> Content {
        let attempt = Attempt {
            number: 1,
            at: Time::from_millis(5),
            took_ms: 3,
            class: Class::Transient,
            kind: FailureKind::Status(503),
            code: None,
            counted: true,
            ambiguous: false,
            error: "503: no".to_owned(),
        };
        let message = Message::builder("o-1").key("c-7").header("a", "b").payload("{}").build().unwrap();
        let group = redrive::internal::engine::Grouping::default()
            .of(redrive_core::Reason::MaxRetries, Some(&attempt));
        Content {
            message,
            meta,
            history: History::default().with(&attempt),
            topic: Arc::from("orders"),
            group,
            options: Some(Arc::from("{}")).filter(|_| meta.attempts > 0),
        }
    }

    fn written(content: &Content) -> Bytes {
        let mut out = BytesMut::new();
        content.write(&mut out);
        out.freeze()
    }

    #[test]
    fn a_letter_comes_back_as_it_was() {
        let time = |ms| Some(Time::from_millis(ms));
        let worn = Meta {
            created: Time::from_millis(1),
            deadline: time(2),
            attempts: 3,
            uncounted: 4,
            reconnects: 5,
            crashes: 6,
            last_crash: time(7),
            replays: 8,
            first_failed: time(9),
            held_ms: 10,
            last_delay_ms: 11,
            deferred: false,
        };
        for meta in [Meta::default(), worn] {
            let content = content(meta);
            assert_eq!(Content::read(written(&content)), Some(content));
        }
    }

    #[test]
    fn a_part_of_a_letter_is_no_letter() {
        let whole = written(&content(Meta::default()));
        let header = whole.len() - content(Meta::default()).message.payload().unwrap().len();
        for len in 0..header {
            assert_eq!(Content::read(whole.slice(..len)), None, "{len} of {} bytes", whole.len());
        }
    }
}
