//! The position of a record in a topic, and the message number derived from it.

#![warn(missing_docs)]

use std::sync::Arc;

/// The bits of a number that hold the offset: enough for three thousand years at 3,000 records a second.
const OFFSET_BITS: u32 = 48;
const OFFSET_MAX: u64 = (1 << OFFSET_BITS) - 1;

/// The position of a record in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: u64,
}

/// A partition and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionOffset {
    /// The partition.
    pub partition: u16,
    /// The offset.
    pub offset: u64,
}

/// Partition numbers from here on are not real: they mark imported letters, which are numbered by their content.
const MADE_FROM: u16 = 0xc000;

impl PartitionOffset {
    /// The position of a letter that has none, from a hash of its content.
    pub const fn made(hash: u64) -> Self {
        Self::of(((MADE_FROM as u64) << OFFSET_BITS) | (hash >> 2))
    }

    /// Whether it names no record of a topic.
    pub const fn is_made(self) -> bool {
        self.partition >= MADE_FROM
    }

    /// The number of the message.
    pub const fn number(self) -> u64 {
        (self.partition as u64) << OFFSET_BITS | (self.offset & OFFSET_MAX)
    }

    /// The position with this number.
    pub const fn of(number: u64) -> Self {
        Self { partition: (number >> OFFSET_BITS) as u16, offset: number & OFFSET_MAX }
    }

    /// Parses `7/1182`.
    pub fn parse(text: &str) -> Option<Self> {
        let (partition, offset) = text.split_once('/')?;
        let place = Self { partition: partition.parse().ok()?, offset: offset.parse().ok()? };
        (place.offset <= OFFSET_MAX).then_some(place)
    }
}

impl std::fmt::Display for PartitionOffset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.partition, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_made_is_no_partition_of_a_topic() {
        for hash in [0, 1 << 2, u64::MAX] {
            assert!(PartitionOffset::made(hash).is_made());
            assert_eq!(
                PartitionOffset::of(PartitionOffset::made(hash).number()),
                PartitionOffset::made(hash)
            );
        }
        assert_ne!(PartitionOffset::made(0), PartitionOffset::made(u64::MAX));
        assert!(!PartitionOffset { partition: 7, offset: u64::MAX >> 16 }.is_made());
    }

    #[test]
    fn a_number_and_its_place_are_one_thing() {
        let place = PartitionOffset { partition: 7, offset: 1182 };
        assert_eq!(PartitionOffset::of(place.number()), place);
        assert_eq!(PartitionOffset::parse("7/1182"), Some(place));
        assert_eq!(place.to_string(), "7/1182");
        for text in ["", "7", "7/", "/7", "-1/2", "70000/1", "1/2/3", "1/999999999999999999"] {
            assert_eq!(PartitionOffset::parse(text), None, "{text}");
        }
    }
}
