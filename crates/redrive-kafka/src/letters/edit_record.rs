//! The message of an edited letter and its earlier versions, as a record of `T.DLQ.state` beside the letter's state.
//!
//! The record in `T.DLQ` stays unchanged; this one says what to deliver instead. Like a state it applies to one
//! generation. A letter that dies again is in `T.DLQ` as it was delivered, and its earlier versions are still here.

use bytes::{BufMut, Bytes, BytesMut};
use redrive::internal::engine::Replaced;
use redrive::timestamp;
use redrive_core::{Message, Time};
use serde_json::{Map, Value, json};

/// Suffix of the key, after the number of the letter.
const SUFFIX: &str = "/edit";

/// The current version of an edited letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditRecord {
    pub generation: u32,
    pub message: Message,
    /// The versions that edits have replaced, the latest last. Empty when all edits were undone.
    pub replaced: Vec<Replaced>,
}

impl EditRecord {
    pub fn key(number: u64) -> String {
        format!("{number}{SUFFIX}")
    }

    /// Parses the number of the letter from the key of such a record.
    pub fn number(key: &[u8]) -> Option<u64> {
        std::str::from_utf8(key).ok()?.strip_suffix(SUFFIX)?.parse().ok()
    }

    /// Serializes the record: a line of JSON for people and other tools, then the versions and the message, with the
    /// lengths given in that line.
    pub fn write(&self, at: Time, actor: Option<&str>) -> Vec<u8> {
        let mut line = Map::new();
        let wires = || self.replaced.iter().map(|version| &version.message).chain([&self.message]);
        let edits: Vec<&str> = self.replaced.iter().map(|version| version.edit.as_str()).collect();
        let bytes: Vec<usize> = wires().map(|message| message.wire().len()).collect();
        line.insert("generation".to_owned(), json!(self.generation));
        line.insert("edits".to_owned(), json!(edits));
        line.insert("bytes".to_owned(), json!(bytes));
        line.insert("at".to_owned(), json!(timestamp::print(at)));
        if let Some(actor) = actor {
            line.insert("actor".to_owned(), json!(actor));
        }
        let mut out = BytesMut::new();
        out.put_slice(Value::Object(line).to_string().as_bytes());
        out.put_u8(b'\n');
        wires().for_each(|message| out.put_slice(message.wire()));
        out.to_vec()
    }

    /// Returns `None` if it is not such a record. Unknown fields are ignored: a later version may have written them.
    pub fn read(value: &Bytes) -> Option<Self> {
        let end = value.iter().position(|byte| *byte == b'\n')?;
        let line: Value = serde_json::from_slice(&value[..end]).ok()?;
        let generation = u32::try_from(line.get("generation")?.as_u64()?).ok()?;
        let edits = line.get("edits")?.as_array()?;
        let lengths = line.get("bytes")?.as_array()?;
        if lengths.len() != edits.len() + 1 {
            return None;
        }
        let mut rest = value.slice(end + 1..);
        let mut messages = Vec::with_capacity(lengths.len());
        for length in lengths {
            let length = usize::try_from(length.as_u64()?).ok()?;
            if rest.len() < length {
                return None;
            }
            messages.push(Message::from_wire(rest.split_to(length)).ok()?);
        }
        let message = messages.pop()?;
        let version =
            |(edit, message): (&Value, Message)| Some(Replaced { edit: edit.as_str()?.to_owned(), message });
        let replaced = edits.iter().zip(messages).map(version).collect::<Option<_>>()?;
        rest.is_empty().then_some(Self { generation, message, replaced })
    }
}

/// What the index keeps of an edit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedLetter {
    pub generation: u32,
    /// The position of the record in the local file.
    pub at: u64,
    /// The edits, the latest last.
    pub edits: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &str) -> Message {
        Message::builder("o-1").key("c-7").header("a", "b").payload(payload.to_owned()).build().unwrap()
    }

    fn record() -> EditRecord {
        let version =
            |edit: &str, payload: &str| Replaced { edit: edit.to_owned(), message: message(payload) };
        EditRecord {
            generation: 2,
            message: message("{\"currency\":\"EUR\"}\n"),
            replaced: vec![version("e-12", "{\n}"), version("e-k3x9q-13", "plain")],
        }
    }

    #[test]
    fn a_record_comes_back_and_its_line_can_be_read_by_people() {
        let none = EditRecord { replaced: Vec::new(), ..record() };
        for record in [record(), none] {
            let written = Bytes::from(record.write(Time::from_millis(5), Some("ops")));
            assert_eq!(EditRecord::read(&written), Some(record));
        }
        let written = record().write(Time::from_millis(5), Some("ops"));
        let line = written.split(|byte| *byte == b'\n').next().unwrap();
        let line: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(line["edits"], json!(["e-12", "e-k3x9q-13"]));
        assert_eq!((&line["actor"], &line["generation"]), (&json!("ops"), &json!(2)));
    }

    #[test]
    fn a_part_of_a_record_is_none() {
        let written = Bytes::from(record().write(Time::ZERO, None));
        for len in 0..written.len() {
            assert_eq!(EditRecord::read(&written.slice(..len)), None, "{len} of {} bytes", written.len());
        }
        assert_eq!(EditRecord::number(b"281474976710656/edit"), Some(1 << 48));
        for other in [&b"17"[..], b"/edit", b"begin", b"17/edit/"] {
            assert_eq!(EditRecord::number(other), None);
        }
    }
}
