//! Records as they come: what each is to others of its message, and who is passed over.
//!
//! A crash can leave a message in several records, and a record says which one it replaces. A source record is passed over
//! only if another record is known to have come of that very one: its number is its place, or a copy or letter names its
//! place. What somebody has put back onto the source by hand is therefore never taken for something that was there before.

use std::time::Instant;

use redrive::engine::Ordering;
use redrive_core::Time;

use super::engine::KafkaEngine;
use crate::backlog::keys::hash_of;
use crate::backlog::lane::Lane;
use crate::duplicates::twins::Meeting;
use crate::record::Replaces;
use crate::record::{Polled, Waiting, number_of};
use crate::topics::LaneKind;

/// How many records were not delivered because another record of their message goes on.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    total: u64,
}

impl PassedOver {
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Never without a word: a record is passed over for good.
    pub fn note(&mut self, lane: &Lane, offsets: &[u64]) {
        let (Some(first), Some(last)) = (offsets.iter().min(), offsets.iter().max()) else { return };
        self.total += offsets.len() as u64;
        tracing::warn!(
            topic = %lane.topic, partition = lane.partition, first, last, records = offsets.len(),
            "records are not delivered: another record of the same message goes on"
        );
    }
}

impl Lane {
    /// The place of one of its records, as a copy would name it.
    fn place_of(&self, offset: u64) -> Replaces {
        Replaces { topic: self.topic_hash, partition: self.partition, offset }
    }

    /// Whether a record is the one that gave its message its number.
    fn is_original(&self, waiting: &Waiting) -> bool {
        self.kind == LaneKind::Source
            && waiting.number == number_of(self.partition, waiting.offset.cast_signed())
    }
}

impl KafkaEngine {
    /// Whether a message that is being delivered has become a letter meanwhile, by an owner before us. Letters of long ago
    /// do not count: somebody may have moved the group back on purpose.
    pub(crate) fn has_died_late(&self, number: u64, replays: u32, created: Time) -> bool {
        self.died.has(number, replays, created)
            || self.letters.has_died_since(&self.letter_ends, number, replays, created)
    }

    /// What a record is to others of its message. `replaces` is set on a copy that this assignment did not write.
    fn meeting(&mut self, at: usize, waiting: &Waiting, replaces: Option<Replaces>) -> Meeting {
        let lane = &self.lanes[at];
        let is_source = lane.kind == LaneKind::Source;
        if is_source && !lane.is_original(waiting) {
            return self.meet_put_back(at, waiting);
        }
        if !is_source && !self.twins.is_reading() {
            return replaces.map_or(Meeting::First, |replaces| self.meet_late(at, waiting, replaces));
        }
        if !self.twins.are_possible() {
            return Meeting::First;
        }
        if let Some(replaces) = replaces.filter(|_| !is_source) {
            self.remember_put_back(waiting, replaces);
        }
        if self.died.has(waiting.number, waiting.meta.replays, waiting.meta.created) {
            return Meeting::Behind;
        }
        self.twins.meet(waiting.number, &waiting.meta, at, waiting.offset)
    }

    /// A letter that was put back onto the source, by us or by somebody else: a message of that number was there before, so
    /// only what names this very record counts.
    fn meet_put_back(&self, at: usize, waiting: &Waiting) -> Meeting {
        let place = self.lanes[at].place_of(waiting.offset);
        let goes_on = self.twins.are_possible() && (self.died.replaced(place) || self.twins.replaced(place));
        if goes_on { Meeting::Behind } else { Meeting::First }
    }

    /// A copy names the record of the source that it replaces, and that is not the one its number says.
    fn remember_put_back(&mut self, waiting: &Waiting, replaces: Replaces) {
        let of_source =
            self.lanes.iter().any(|lane| lane.kind == LaneKind::Source && lane.topic_hash == replaces.topic);
        if of_source && waiting.number != number_of(replaces.partition, replaces.offset.cast_signed()) {
            self.twins.remember_place(replaces);
        }
    }

    /// Records of a lane were read.
    pub(crate) fn arrived(&mut self, at: usize, records: Vec<Polled>) {
        let ordered = self.options.ordering == Ordering::Key;
        let mut freed = false;
        let mut passed = Vec::new();
        self.count_read(at, records.len() as u64);
        let read = Instant::now();
        for Polled { mut waiting, bytes, replaces } in records {
            let lane = &mut self.lanes[at];
            let (number, offset) = (waiting.number, waiting.offset);
            let is_news = lane.meet(offset);
            let due = waiting.due.unwrap_or_default().as_millis();
            let expected = lane.kind != LaneKind::Source && self.under_way.remove(&(due, at, offset));
            // It may be read before its acknowledgement is heard of.
            let copied = lane.kind != LaneKind::Source && self.copying.remove(&(due, number));
            let put_back = self.put_back.remove(&number).is_some();
            if !is_news {
                freed |= lane.room.free(1, bytes);
                continue;
            }
            let replaces = replaces.filter(|_| !expected && !copied);
            let meeting = self.meeting(at, &waiting, replaces);
            match meeting {
                Meeting::First => {}
                // It stays where it is, and is passed over when its turn comes.
                Meeting::Further { lane, offset } => {
                    self.mark(lane, offset, None);
                    passed.push((lane, offset));
                }
                Meeting::Behind => {
                    self.mark(at, offset, None);
                    passed.push((at, offset));
                }
            }
            if waiting.meta.replays > 0 {
                self.letter_came_back(&waiting);
            }
            let lane = &mut self.lanes[at];
            if meeting == Meeting::Behind {
                freed |= lane.kind == LaneKind::Source && lane.room.free(1, bytes);
                continue;
            }
            if ordered
                && meeting == Meeting::First
                && !expected
                && !put_back
                && let Some(key) = hash_of(&waiting.message)
            {
                self.keys.join(key, number);
            }
            if lane.kind == LaneKind::Source {
                waiting.arrived = Some(read);
                lane.fifo.push_back(waiting);
            } else {
                self.ahead.put(at, waiting, self.now);
            }
        }
        if freed {
            self.mailbox.call_reader();
        }
        self.pass_over_these(&passed);
    }

    /// Counts and logs records that were marked without a delivery, by lane and offset.
    pub(crate) fn pass_over_these(&mut self, passed: &[(usize, u64)]) {
        for (at, lane) in self.lanes.iter().enumerate().filter(|_| !passed.is_empty()) {
            let offsets: Vec<u64> =
                passed.iter().filter(|(of, _)| *of == at).map(|(_, offset)| *offset).collect();
            self.passed_over.note(lane, &offsets);
        }
    }
}
