//! Which record a copy replaces, from its header `x-from`.

use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Headers as _};
use xxhash_rust::xxh3::xxh3_64;

use crate::record::{Origin, names};

/// The record that a copy replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replaces {
    /// A hash of the topic's name, which is only compared with those of our lanes.
    pub topic: u64,
    pub partition: i32,
    pub offset: u64,
}

impl Replaces {
    pub fn of(record: &BorrowedMessage<'_>) -> Option<Self> {
        let headers = record.headers()?;
        // Search backwards: it is one of the last of our headers.
        let from =
            (0..headers.count()).rev().map(|at| headers.get(at)).find(|header| header.key == names::FROM)?;
        Self::parse(std::str::from_utf8(from.value?).ok()?)
    }

    /// Names the record at a position.
    pub fn place(from: &Origin) -> Self {
        Self {
            topic: topic_hash(&from.topic),
            partition: from.partition,
            offset: from.offset.cast_unsigned(),
        }
    }

    /// Reads `orders.retry.5s/7/1182`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '/');
        let (offset, partition) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { topic: topic_hash(parts.next()?), partition, offset })
    }
}

pub fn topic_hash(topic: &str) -> u64 {
    xxh3_64(topic.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_a_copy_replaces_is_named_by_its_place() {
        let place = Replaces { topic: topic_hash("a/b.retry.5s"), partition: 7, offset: 1182 };
        assert_eq!(Replaces::parse("a/b.retry.5s/7/1182"), Some(place));
        for text in ["", "orders", "orders/7", "orders/x/1", "orders/7/-1"] {
            assert_eq!(Replaces::parse(text), None, "{text}");
        }
    }
}
