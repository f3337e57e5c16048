//! Topic, partition and offset of a record as text.

use std::fmt::Write;

use rdkafka::message::Message as Record;

use super::Origin;

/// `topic/partition/offset`, written without allocating: it is the id of most messages.
pub(super) struct PositionText {
    text: [u8; Self::BYTES_MAX],
    used: usize,
}

impl PositionText {
    /// Kafka allows 249 bytes for a topic.
    const BYTES_MAX: usize = 320;

    pub(super) const fn new() -> Self {
        Self { text: [0; Self::BYTES_MAX], used: 0 }
    }

    pub(super) fn of(&mut self, record: &impl Record) -> &str {
        self.write(record.topic(), record.partition(), record.offset())
    }

    pub(super) fn of_origin(&mut self, origin: &Origin) -> &str {
        self.write(&origin.topic, origin.partition, origin.offset)
    }

    fn write(&mut self, topic: &str, partition: i32, offset: i64) -> &str {
        self.used = 0;
        let _ = write!(self, "{topic}/{partition}/{offset}");
        std::str::from_utf8(&self.text[..self.used]).unwrap_or("?")
    }
}

impl Write for PositionText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let free = self.text.get_mut(self.used..self.used + text.len()).ok_or(std::fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}
