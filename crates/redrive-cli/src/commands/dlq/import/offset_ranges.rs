//! Positions in topics as ranges: `orders-dlt/0/17..40`.

use std::collections::BTreeMap;
use std::fmt;

/// The maximum number of ranges; beyond it, positions are only counted.
const RANGES_MAX: usize = 10_000;

/// Positions, counted and in ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetRanges {
    count: u64,
    ranges: usize,
    /// First and last offset of each range, by topic and partition.
    of: BTreeMap<(String, i32), Vec<(i64, i64)>>,
}

impl OffsetRanges {
    /// Adds a position. The offsets of a partition must be added in order.
    pub fn add(&mut self, topic: &str, partition: i32, offset: i64) {
        self.count += 1;
        let ranges = self.of.entry((topic.to_owned(), partition)).or_default();
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == offset => *last = offset,
            _ if self.ranges < RANGES_MAX => {
                self.ranges += 1;
                ranges.push((offset, offset));
            }
            _ => {}
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All ranges as text.
    pub fn ranges(&self) -> impl Iterator<Item = String> {
        self.of.iter().flat_map(|((topic, partition), ranges)| {
            ranges.iter().map(move |(first, last)| {
                if first == last {
                    format!("{topic}/{partition}/{first}")
                } else {
                    format!("{topic}/{partition}/{first}..{last}")
                }
            })
        })
    }
}

/// How many ranges a line shows.
const SHOWN_MAX: usize = 10;

impl fmt::Display for OffsetRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.ranges().take(SHOWN_MAX).collect();
        f.write_str(&shown.join(", "))?;
        if self.ranges().count() > SHOWN_MAX {
            f.write_str(" … (all of them: --json)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        let mut places = OffsetRanges::default();
        for (partition, offset) in [(0, 17), (1, 3), (0, 18), (0, 19), (0, 22), (1, 4)] {
            places.add("orders-dlt", partition, offset);
        }
        assert_eq!(places.count(), 6);
        assert_eq!(places.to_string(), "orders-dlt/0/17..19, orders-dlt/0/22, orders-dlt/1/3..4");
        (0..40).for_each(|n| places.add("other", 0, n * 2));
        assert!(places.to_string().ends_with(" … (all of them: --json)"), "{places}");
    }
}
