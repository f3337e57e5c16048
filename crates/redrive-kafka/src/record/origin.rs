//! Where a message came from: topic, partition and offset of its source record. The latter two are also its number.

use std::fmt;
use std::sync::Arc;

use redrive::internal::engine::position::PartitionOffset;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}

impl Origin {
    /// Returns the message's number: the id of its letter, stable over all retries and replays.
    pub fn number(&self) -> u64 {
        PartitionOffset { partition: self.partition as u16, offset: self.offset.cast_unsigned() }.number()
    }

    /// Returns the origin that `number` stands for in `topic`.
    pub fn of_number(topic: Arc<str>, number: u64) -> Self {
        let place = PartitionOffset::of(number);
        Self { topic, partition: place.partition.into(), offset: place.offset.cast_signed() }
    }

    /// Reads `orders/7/1182`.
    pub fn parse(text: &str) -> Option<Self> {
        let (topic, place) = text.split_once('/').filter(|(topic, _)| !topic.is_empty())?;
        Some(Self::of_number(topic.into(), PartitionOffset::parse(place)?.number()))
    }
}

impl fmt::Display for Origin {
    /// Writes it for people: `orders/7/1182`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_place_are_one_thing() {
        let origin = Origin { topic: "orders".into(), partition: 7, offset: 1182 };
        assert_eq!(origin.number(), (7 << 48) + 1182);
        assert_eq!(origin.to_string(), "orders/7/1182");
        assert_eq!(Origin::of_number("orders".into(), origin.number()), origin);
        assert_eq!(Origin::parse("orders/7/1182"), Some(origin));
        for text in
            ["", "orders", "orders/7", "7/1182", "/7/1", "orders/-1/2", "orders/1/-2", "orders/70000/1"]
        {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
    }
}
