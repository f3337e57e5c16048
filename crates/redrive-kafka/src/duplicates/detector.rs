//! Compares each record with others of the same message as records are read.
//!
//! A crash can leave a message in several records, and a copy says which record it replaces. A source record is skipped
//! only if another record is known to have come from that very one: its number is that position, or a copy or letter
//! names that position. So a record that was put back onto the source by hand is never taken for the earlier one.

use std::sync::Arc;
use std::time::Instant;

use redrive_core::Time;

use super::died::Died;
use super::late::{self, IsReplacing, Replaced};
use super::twins::{TwinOrder, Twins};
use crate::backlog::lanes::Lanes;
use crate::record::{CopyRecord, Origin, Replaces, WaitingMessage, number_of, origin_of};
use crate::topics::LaneKind;

#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    twins: Twins,
    /// The last letters of the earlier owners.
    died: Died,
    /// Where the letters ended when the partitions were assigned.
    letter_ends: Vec<(i32, i64)>,
    /// Records skipped since the start because another record of their message counts.
    skipped: u64,
}

impl Duplicates {
    /// Prepares for newly assigned partitions: everything that is read now may have duplicates.
    pub fn begin(&mut self, now: Instant) {
        self.twins.begin(now);
    }

    /// Learns which letters earlier owners have written.
    pub fn learn(&mut self, letter_ends: Vec<(i32, i64)>, died: Died) {
        (self.letter_ends, self.died) = (letter_ends, died);
    }

    /// Whether the tiers are still being read, so that nothing may start.
    pub fn is_reading(&self) -> bool {
        self.twins.is_reading()
    }

    /// Whether reading the tiers takes too long to wait for.
    pub fn is_late(&self, now: Instant) -> bool {
        self.twins.is_late(now)
    }

    /// Notes that the tiers were read. Copies whose source record is still to come are remembered until then.
    pub fn tiers_read(&mut self, lanes: &Lanes, source: &Arc<str>) {
        self.twins.end(|number| {
            let origin = origin_of(number, source);
            let lane = lanes.find(source, origin.partition);
            lane.is_some_and(|at| lanes[at].next <= origin.offset.cast_unsigned())
        });
    }

    pub fn letter_ends(&self) -> &[(i32, i64)] {
        &self.letter_ends
    }

    /// Whether an earlier owner made a letter of this message in its last moments.
    pub fn has_died(&self, number: u64, replays: u32, created: Time) -> bool {
        self.died.has(number, replays, created)
    }

    /// Compares a record with others of its message. `replaces` is set on a copy that this assignment did not write.
    pub fn observe(
        &mut self,
        lanes: &Lanes,
        at: usize,
        waiting: &WaitingMessage,
        replaces: Option<Replaces>,
        is_replacing: IsReplacing<'_>,
    ) -> TwinOrder {
        let lane = &lanes[at];
        let is_source = lane.kind == LaneKind::Source;
        if is_source && !lane.is_original(waiting) {
            return self.meet_put_back(lane.record_at(waiting.offset));
        }
        if !is_source && !self.twins.is_reading() {
            return replaces.map_or(TwinOrder::First, |replaces| {
                self.meet_late(lanes, at, waiting, replaces, is_replacing)
            });
        }
        if !self.twins.are_possible() {
            return TwinOrder::First;
        }
        if let Some(replaces) = replaces.filter(|_| !is_source) {
            self.remember_put_back(lanes, waiting, replaces);
        }
        if self.died.has(waiting.number, waiting.meta.replays, waiting.meta.created) {
            return TwinOrder::Behind;
        }
        self.twins.observe(waiting.number, &waiting.meta, at, waiting.offset)
    }

    /// Handles a letter that was put back onto the source, by us or by hand. A message with that number was there
    /// before, so only a copy that names this very record counts.
    fn meet_put_back(&self, record: Replaces) -> TwinOrder {
        let is_replaced =
            self.twins.are_possible() && (self.died.replaced(record) || self.twins.replaced(record));
        if is_replaced { TwinOrder::Behind } else { TwinOrder::First }
    }

    /// Remembers the source record that a copy replaces if it is not the record that gave the message its number.
    fn remember_put_back(&mut self, lanes: &Lanes, waiting: &WaitingMessage, replaces: Replaces) {
        let of_source = lanes.sources().any(|lane| lane.topic_hash == replaces.topic);
        if of_source && waiting.number != number_of(replaces.partition, replaces.offset.cast_signed()) {
            self.twins.remember_place(replaces);
        }
    }

    /// Compares a copy that this assignment did not write with the record it replaces.
    fn meet_late(
        &mut self,
        lanes: &Lanes,
        at: usize,
        waiting: &WaitingMessage,
        replaces: Replaces,
        is_replacing: IsReplacing<'_>,
    ) -> TwinOrder {
        match late::replaced(lanes, replaces, is_replacing) {
            Replaced::Elsewhere => TwinOrder::First,
            Replaced::Ahead => {
                // A source record is compared when it is read.
                if waiting.number == number_of(replaces.partition, replaces.offset.cast_signed()) {
                    self.twins.expect_source(waiting.number, &waiting.meta, at, waiting.offset);
                }
                TwinOrder::First
            }
            Replaced::Waits { lane }
                if late::is_older_topic(&lanes[lane], replaces.offset, waiting.meta.created) =>
            {
                TwinOrder::First
            }
            Replaced::Waits { lane } => TwinOrder::Further { lane, offset: replaces.offset },
            Replaced::Started => TwinOrder::Behind,
        }
    }

    /// Returns lane and offset of the record that a letter replaces, if that record was assigned to us again and waits.
    /// The letter was written by this process for an earlier assignment, and has been stored now.
    pub fn replaced_by_late_letter(
        lanes: &Lanes,
        from: &Origin,
        letter: &CopyRecord,
        is_replacing: IsReplacing<'_>,
    ) -> Option<(usize, u64)> {
        let replaces = Replaces::place(from);
        let Replaced::Waits { lane } = late::replaced(lanes, replaces, is_replacing) else { return None };
        let is_other = late::is_older_topic(&lanes[lane], replaces.offset, letter.meta.created);
        (!is_other).then_some((lane, replaces.offset))
    }

    /// Counts and logs records that were marked as done without a delivery, by lane and offset.
    pub fn skip(&mut self, lanes: &Lanes, skipped: &[(usize, u64)]) {
        for (at, lane) in lanes.iter().enumerate().filter(|_| !skipped.is_empty()) {
            let offsets = || skipped.iter().filter(|(of, _)| *of == at).map(|(_, offset)| *offset);
            let (Some(first), Some(last)) = (offsets().min(), offsets().max()) else { continue };
            let records = offsets().count();
            self.skipped += records as u64;
            tracing::warn!(
                topic = %lane.topic, partition = lane.partition, first, last, records,
                "records are not delivered: another record of the same message is used"
            );
        }
    }

    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Starts over, after the partitions are gone.
    pub fn clear(&mut self) {
        self.twins.clear();
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::history::History;
    use redrive_core::{Message, Meta};

    use super::*;
    use crate::backlog::lanes::tests::lanes;
    use crate::record::Carried;

    fn waiting(number: u64, offset: u64, attempts: u32) -> WaitingMessage {
        WaitingMessage {
            offset,
            number,
            message: Message::builder("m").build().unwrap(),
            meta: Meta { attempts, ..Meta::default() },
            history: History::default(),
            due: None,
            arrived: None,
            doomed: None,
            carried: Carried::default(),
        }
    }

    #[test]
    fn a_source_record_is_behind_the_copy_that_was_read_first() {
        let (mut lanes, mut duplicates) = (lanes(), Duplicates::default());
        duplicates.begin(Instant::now());
        let copy = waiting(7, 3, 1);
        assert_eq!(duplicates.observe(&lanes, 1, &copy, None, &|_, _| false), TwinOrder::First);
        duplicates.tiers_read(&lanes, &"orders".into());
        assert!(!duplicates.is_reading());
        let source = waiting(7, 7, 0);
        assert_eq!(duplicates.observe(&lanes, 0, &source, None, &|_, _| false), TwinOrder::Behind);
        lanes.mark(0, 7);
        duplicates.skip(&lanes, &[(0, 7)]);
        assert_eq!(duplicates.skipped(), 1);
    }

    #[test]
    fn a_late_copy_takes_the_place_of_a_record_that_waits_and_yields_to_one_that_started() {
        let (mut lanes, mut duplicates) = (lanes(), Duplicates::default());
        let replaces = lanes[0].record_at(7);
        lanes[0].next = 8;
        lanes[0].fifo.push_back(waiting(7, 7, 0));
        let copy = waiting(7, 3, 1);
        let mut observe = |lanes: &Lanes, is_replacing: IsReplacing<'_>| {
            duplicates.observe(lanes, 1, &copy, Some(replaces), is_replacing)
        };
        assert_eq!(observe(&lanes, &|_, _| false), TwinOrder::Further { lane: 0, offset: 7 });
        assert_eq!(observe(&lanes, &|lane, offset| (lane, offset) == (0, 7)), TwinOrder::Behind);
        lanes[0].next = 7;
        assert_eq!(observe(&lanes, &|_, _| false), TwinOrder::First, "it is compared when it is read");
    }
}
