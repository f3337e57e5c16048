//! Where a message came from: the place of its source record, which is also its number.

use std::fmt;
use std::sync::Arc;

/// Offsets use 48 bits of a message's number: three thousand years at 3,000 records a second.
const OFFSET_BITS: u32 = 48;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}

impl Origin {
    /// The message's number: the id of its letter, stable over all retries and replays.
    pub fn number(&self) -> u64 {
        (self.partition as u64) << OFFSET_BITS | (self.offset as u64 & ((1 << OFFSET_BITS) - 1))
    }

    /// The origin that `number` stands for in `topic`.
    pub fn of_number(topic: Arc<str>, number: u64) -> Self {
        let offset = number & ((1 << OFFSET_BITS) - 1);
        Self { topic, partition: (number >> OFFSET_BITS) as i32, offset: offset.cast_signed() }
    }

    /// Reads `orders/7/1182`. Topics have no slash, so the last two are numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, offset) = text.rsplit_once('/')?;
        let (topic, partition) = rest.rsplit_once('/')?;
        let partition: u16 = partition.parse().ok()?;
        let offset: i64 = offset.parse().ok().filter(|offset| (0..1 << OFFSET_BITS).contains(offset))?;
        (!topic.is_empty()).then(|| Self { topic: topic.into(), partition: partition.into(), offset })
    }
}

impl fmt::Display for Origin {
    /// As people see it: `orders/7/1182`.
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
