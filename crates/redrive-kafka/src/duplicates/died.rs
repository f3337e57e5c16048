//! The last letters of earlier owners: a record whose letter exists already is not started again.
//!
//! A process that dies between writing a letter and committing its record leaves both. Only the most recent letters can
//! be affected, so the end of `T.DLQ` is read when partitions are assigned, and nothing waits for the rest of it.

use std::collections::{HashMap, HashSet};

use redrive::internal::engine::EngineError;
use redrive_core::Time;

use crate::Cluster;
use crate::record::Replaces;
use crate::record::{Read, RecordReader};
use crate::topics::scan::{Scan, Span};

/// Letters read per partition. No more than this are written between two commits.
const TAIL_MAX: i64 = 1_000;

#[derive(Clone, Debug, Default)]
pub struct Died {
    /// By message number: the latest generation, and when it died.
    numbers: HashMap<u64, (u32, Time)>,
    /// The records that the letters replace.
    places: HashSet<Replaces>,
}

impl Died {
    /// Reads the ends of these partitions of `T.DLQ`.
    pub fn read(
        cluster: &Cluster,
        reader: &RecordReader,
        letters: &str,
        ends: &[(i32, i64)],
    ) -> Result<Self, EngineError> {
        let mut died = Self::default();
        if ends.is_empty() {
            return Ok(died);
        }
        let span = |(partition, end): &(i32, i64)| Span {
            topic: letters.to_owned(),
            partition: *partition,
            low: 0,
            end: *end,
            committed: None,
        };
        let spans: Vec<Span> = ends.iter().map(span).collect();
        Scan::new(cluster)?.read_tails(&spans, TAIL_MAX, |record| {
            if let Ok(Read::Copy(copy)) = reader.read(record) {
                died.letter(
                    copy.origin.number(),
                    copy.meta.replays,
                    copy.dead_at.unwrap_or_default(),
                    Replaces::of(record),
                );
            }
        })?;
        Ok(died)
    }

    fn letter(&mut self, number: u64, generation: u32, dead_at: Time, replaces: Option<Replaces>) {
        let latest = self.numbers.entry(number).or_insert((generation, dead_at));
        *latest = (generation, dead_at).max(*latest);
        self.places.extend(replaces);
    }

    /// Whether a message that was requeued `replays` times has become a letter. A letter that is older than the message
    /// belongs to a topic that was deleted and recreated.
    pub fn has(&self, number: u64, replays: u32, created: Time) -> bool {
        self.numbers
            .get(&number)
            .is_some_and(|(generation, dead_at)| *generation >= replays && *dead_at >= created)
    }

    /// Whether a letter replaced this very record.
    pub fn replaced(&self, place: Replaces) -> bool {
        self.places.contains(&place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_counts_for_its_message_and_for_the_record_it_replaced() {
        let (mut died, at) = (Died::default(), Time::from_millis);
        let place = Replaces::parse("orders/3/7").unwrap();
        died.letter(7, 0, at(50), Some(place));
        died.letter(7, 1, at(90), None);
        died.letter(8, 2, at(90), None);
        died.letter(8, 1, at(95), None);
        assert!(died.has(7, 1, at(10)) && died.has(7, 0, at(10)) && died.has(8, 2, at(90)));
        assert!(!died.has(7, 2, at(10)), "it was put back since");
        assert!(!died.has(7, 1, at(91)), "a topic that was made again");
        assert!(!died.has(9, 0, at(0)));
        assert!(died.replaced(place) && !died.replaced(Replaces { offset: 8, ..place }));
    }
}
