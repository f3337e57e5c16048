//! The bytes of a letter as the local file keeps them: the message, what is remembered of it, its story.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive::engine::History;
use redrive_core::{Message, Meta, Time};

/// What a letter says, without what the index knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub message: Message,
    pub meta: Meta,
    pub history: History,
    /// The topic its message came from.
    pub topic: Arc<str>,
}

/// A time that is not there; no clock comes that far.
const NEVER: u64 = u64::MAX;
const META_BYTES: usize = 6 * 8 + 5 * 4;

impl Content {
    pub fn write(&self, out: &mut BytesMut) {
        let meta = &self.meta;
        let or_never = |time: Option<Time>| time.map_or(NEVER, Time::as_millis);
        out.reserve(
            META_BYTES + 10 + self.topic.len() + self.message.wire().len() + self.history.raw().len(),
        );
        out.put_u64_le(meta.created.as_millis());
        out.put_u64_le(or_never(meta.deadline));
        out.put_u64_le(or_never(meta.last_crash));
        out.put_u64_le(or_never(meta.first_failed));
        out.put_u64_le(meta.held_ms);
        out.put_u64_le(meta.last_delay_ms);
        for count in [meta.attempts, meta.uncounted, meta.reconnects, meta.crashes, meta.replays] {
            out.put_u32_le(count);
        }
        out.put_u16_le(self.topic.len() as u16);
        out.put_slice(self.topic.as_bytes());
        out.put_u32_le(self.history.raw().len() as u32);
        out.put_slice(self.history.raw());
        out.put_slice(self.message.wire());
    }

    /// `None` if these are not the bytes of a letter.
    pub fn read(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < META_BYTES + 2 {
            return None;
        }
        let mut times = [0; 6];
        times.fill_with(|| bytes.get_u64_le());
        let mut counts = [0; 5];
        counts.fill_with(|| bytes.get_u32_le());
        let [created, deadline, last_crash, first_failed, held_ms, last_delay_ms] = times;
        let [attempts, uncounted, reconnects, crashes, replays] = counts;
        let unless_never = |ms: u64| (ms != NEVER).then(|| Time::from_millis(ms));
        let meta = Meta {
            created: Time::from_millis(created),
            deadline: unless_never(deadline),
            attempts,
            uncounted,
            reconnects,
            crashes,
            last_crash: unless_never(last_crash),
            replays,
            first_failed: unless_never(first_failed),
            held_ms,
            last_delay_ms,
            deferred: false,
        };
        let topic_len = usize::from(bytes.get_u16_le());
        let topic = part(&mut bytes, topic_len)?;
        let history_len = (bytes.len() >= 4).then(|| bytes.get_u32_le())? as usize;
        let history = History::from_raw(part(&mut bytes, history_len)?);
        let topic = Arc::from(std::str::from_utf8(&topic).ok()?);
        Some(Self { message: Message::from_wire(bytes).ok()?, meta, history, topic })
    }
}

fn part(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.len() >= len).then(|| bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use redrive::engine::Attempt;
    use redrive_core::Class;

    use super::*;

    fn content(meta: Meta) -> Content {
        let attempt = Attempt {
            number: 1,
            at: Time::from_millis(5),
            took_ms: 3,
            class: Class::Transient,
            counted: true,
            ambiguous: false,
            error: "503: no".to_owned(),
        };
        let message = Message::builder("o-1").key("c-7").header("a", "b").payload("{}").build().unwrap();
        Content { message, meta, history: History::default().with(&attempt), topic: Arc::from("orders") }
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
