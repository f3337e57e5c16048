//! One assigned partition: what was read, handed out and completed. No I/O.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::internal::engine::ProblemKind;
use redrive::internal::engine::completion::CompletionSet;
use redrive::internal::engine::numbers::NumberMap;

use crate::commit::done::DoneOffsets;
use crate::commit::progress::CommitStanding;
use crate::consume::room::LookAheadLimit;
use crate::crash::reservation::Reservation;
use crate::crash::started;
use crate::crash::suspects::Suspected;

use crate::record::{Carried, Origin, Replaces, WaitingMessage, number_of, topic_hash};
use crate::topics::LaneKind;

/// A message that was handed out, with the data that its delivery does not carry.
#[derive(Clone, Debug)]
pub struct Out {
    pub carried: Carried,
    /// Its key, where keys are ordered.
    pub key: Option<u64>,
    /// Whether it is a suspect that has not been announced yet, and so does not run.
    pub waits: bool,
}

/// Why reading of a lane has stopped.
#[derive(Clone, Debug)]
pub struct ReadStopped {
    pub kind: ProblemKind,
    pub problem: String,
    /// When the client last reported it; it does so several times a second.
    pub heard: Instant,
}

/// A problem that was not reported for this long is over.
const STOPPED_HEARD_WITHIN: Duration = Duration::from_secs(15);

impl ReadStopped {
    /// Whether the problem is over although no record has arrived: the end of a partition is reported only once. A lost
    /// range stays lost.
    pub fn is_over(&self, now: Instant) -> bool {
        self.kind != ProblemKind::LostRange && now.duration_since(self.heard) > STOPPED_HEARD_WITHIN
    }
}

/// How far a partition has been read since it was assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// The end has not been reached yet.
    Behind,
    /// Nothing has arrived since the end was reached.
    AtEnd,
    /// The end was reached, and more has arrived since.
    Onward,
}

#[derive(Debug)]
pub struct PartitionLane {
    pub kind: LaneKind,
    pub topic: Arc<str>,
    pub topic_hash: u64,
    pub partition: i32,
    /// The name of this partition in the file of started messages.
    pub place: u64,
    pub room: Arc<LookAheadLimit>,
    /// The first offset that has not been seen.
    pub next: u64,
    /// One past the last known record.
    pub end: u64,
    /// How far the partition has been read since it was assigned.
    pub read: ReadState,
    /// There are no records to read below this offset. Transaction markers may follow the last record.
    pub empty_to: u64,
    /// Why no more records arrive, if so.
    pub stopped: Option<ReadStopped>,
    pub done: DoneOffsets,
    /// What was done when the partition was assigned.
    pub done_before: CompletionSet,
    /// One past the last copy that was acknowledged late, and so has to be read before anything starts.
    pub late_end: u64,
    /// One past the highest offset that was ever handed out.
    pub taken: u64,
    pub out: NumberMap<u64, Out>,
    /// Fresh messages in offset order.
    pub fifo: VecDeque<WaitingMessage>,
    /// How many were handed out at the last commit.
    pub noted_out: usize,
    /// How far messages may be handed out.
    pub reserved: Reservation,
    /// Whether a due message waits for the next commit.
    pub hurries: bool,
    /// The messages that may have killed the last owner.
    pub suspected: Suspected,
    /// The end of the prefix of done records, and since when it has not moved.
    pub stuck: (u64, Option<Instant>),
    /// Whether nothing more is started from this lane because one of its records cannot be written.
    pub is_held: bool,
}

impl PartitionLane {
    pub fn new(
        kind: LaneKind,
        topic: Arc<str>,
        partition: i32,
        done: CompletionSet,
        suspected: Suspected,
        room: Arc<LookAheadLimit>,
    ) -> Self {
        let committed = done.prefix();
        let reserved = Reservation::starting_at(committed.max(suspected.below()), suspected.due_by());
        Self {
            kind,
            place: started::place(&topic, partition),
            topic_hash: topic_hash(&topic),
            topic,
            partition,
            room,
            next: committed,
            end: committed,
            read: ReadState::Behind,
            empty_to: 0,
            stopped: None,
            done_before: done.clone(),
            done: DoneOffsets::starting_with(done),
            late_end: 0,
            taken: committed,
            out: NumberMap::default(),
            fifo: VecDeque::new(),
            noted_out: 0,
            reserved,
            hurries: false,
            suspected,
            stuck: (committed, None),
            is_held: false,
        }
    }

    /// For messages that cannot kill a process: nothing is suspected, whatever notes say about earlier deaths, and
    /// nothing waits for a reservation.
    #[must_use]
    pub fn without_suspects(self) -> Self {
        Self { suspected: Suspected::default(), reserved: Reservation::unlimited(), ..self }
    }

    /// Sets the first and last bitmap that an earlier owner may have left in `T.progress`.
    #[must_use]
    pub fn with_bitmaps(self, left: Option<(u64, u64)>) -> Self {
        Self { done: self.done.with_bitmaps(left), ..self }
    }

    /// Notes that a record was read. Returns whether it is new: not below the expected offset and not done.
    pub fn meet(&mut self, offset: u64) -> bool {
        if offset < self.next {
            return false;
        }
        // Offsets between two records hold no message: they are transaction markers, or were compacted away.
        for hole in self.next..offset {
            self.done.mark(hole);
        }
        self.next = offset + 1;
        if self.read == ReadState::AtEnd {
            self.read = ReadState::Onward;
        }
        self.end = self.end.max(self.next);
        !self.done.contains(offset)
    }

    /// Notes that everything present has been read. From now on the look-ahead limit applies.
    pub fn end_met(&mut self) {
        if self.read == ReadState::Behind {
            self.read = ReadState::Onward;
        }
        self.room.bind();
    }

    /// Whether a message of a tier may be handed out: a commit says that it may be running.
    pub fn is_reserved(&self, waiting: &WaitingMessage) -> bool {
        self.reserved.admits_due(waiting.due.unwrap_or_default().as_millis())
    }

    /// Whether a record is the one that gave its message its number.
    pub fn is_original(&self, waiting: &WaitingMessage) -> bool {
        self.kind == LaneKind::Source
            && waiting.number == number_of(self.partition, waiting.offset.cast_signed())
    }

    /// Returns the position of one of its records.
    pub fn origin_at(&self, offset: u64) -> Origin {
        Origin { topic: Arc::clone(&self.topic), partition: self.partition, offset: offset.cast_signed() }
    }

    /// Names one of its records the way a copy does.
    pub fn record_at(&self, offset: u64) -> Replaces {
        Replaces { topic: self.topic_hash, partition: self.partition, offset }
    }

    /// Notes that a record was handed out.
    pub fn hand_out(&mut self, offset: u64, out: Out) {
        self.taken = self.taken.max(offset + 1);
        self.out.insert(offset, out);
    }

    /// Returns the entries of this lane for the file of started messages: what runs, and what is known to have run.
    pub fn open_marks(&self) -> impl Iterator<Item = (u64, u64)> {
        let marked = self.out.keys().copied().chain(self.suspected.ran());
        marked.map(|offset| (self.place, offset))
    }

    /// Puts a fresh message back in its place.
    pub fn put_back(&mut self, waiting: WaitingMessage) {
        let at = self.fifo.partition_point(|other| other.offset < waiting.offset);
        self.fifo.insert(at, waiting);
    }

    /// Counts records that are known to exist but have not been read.
    pub fn unread(&self) -> u64 {
        self.end.saturating_sub(self.next.max(self.empty_to))
    }

    /// Counts records that have not been handed out: those in memory and those not yet read.
    pub fn lag(&self) -> u64 {
        let waiting = if self.kind == LaneKind::Source { self.fifo.len() } else { self.room.records() };
        waiting as u64 + self.unread()
    }

    /// Returns how long the first fresh message has waited since it was read.
    pub fn stalled_for(&self) -> Option<Duration> {
        Some(self.fifo.front()?.arrived?.elapsed())
    }

    /// Whether its end was reached since it was assigned.
    pub fn has_ended(&self) -> bool {
        self.read != ReadState::Behind
    }

    /// Notes that the client reached the end of the partition at `end`. If nothing has arrived since, there is no
    /// record before it.
    pub fn is_empty_up_to(&mut self, end: u64) {
        if self.read == ReadState::AtEnd {
            self.empty_to = self.empty_to.max(end);
        }
    }

    /// Notes where the broker says that the partition ends; `is_met` if the client has fetched everything before that.
    pub fn ends_at(&mut self, end: u64, is_met: bool) {
        if is_met {
            self.is_empty_up_to(end);
        }
        // The end of a topic written in transactions may be a marker, not a record.
        if self.kind != LaneKind::Replay {
            self.end = self.end.max(end);
            if self.next >= end {
                self.end_met();
            }
        }
    }

    /// Notes that a record arrived.
    pub fn resumed(&mut self) {
        if self.stopped.take_if(|stopped| stopped.kind != ProblemKind::LostRange).is_some() {
            tracing::info!(topic = %self.topic, partition = self.partition, "the partition is read again");
        }
    }

    /// Whether there is something to commit.
    pub fn has_news(&self) -> bool {
        self.done.has_news()
            || self.out.len() != self.noted_out
            || self.suspected.has_news()
            || self.needs_reservation()
    }

    fn needs_reservation(&self) -> bool {
        match self.kind {
            LaneKind::Source => self.reserved.has_news(self.taken, self.next, self.suspected.below()),
            LaneKind::Tier | LaneKind::Replay => self.reserved.has_due_news(),
        }
    }

    /// Whether something waits for the next commit.
    pub fn is_urgent(&self) -> bool {
        let is_low = self.kind == LaneKind::Source && self.reserved.is_low(self.taken, self.next);
        self.suspected.is_awaited() || is_low || self.hurries
    }

    /// Whether something from this lane runs.
    pub fn is_busy(&self) -> bool {
        self.out.values().any(|out| !out.waits)
    }

    /// Returns what the last note of an owner says; `leaves` if suspects of a tier are left.
    pub fn standing_at_end(&self, leaves: bool, run: Option<u64>, id: u64) -> CommitStanding<'_> {
        if self.reserved.is_unlimited() {
            return CommitStanding { clean: !self.is_busy(), of: Some(id), ..CommitStanding::default() };
        }
        let (taken, named) = (self.taken, Some(self.suspected.named_at_end()));
        let (by, of) = (self.vouched(run), Some(id));
        if self.is_busy() {
            let taken = taken.max(self.suspected.below());
            let until = self.until();
            return CommitStanding { clean: false, taken, until, by, of, named, out: 0 };
        }
        // Earlier suspects stay suspects; no others are added.
        let (below, until) = (self.suspected.below(), self.suspected.due_by());
        let prefix = self.done.prefix();
        let is_left = match self.kind {
            LaneKind::Source => prefix < below && (prefix < self.next || !self.has_ended()),
            LaneKind::Tier | LaneKind::Replay => leaves || self.suspected.ran().next().is_some(),
        };
        if is_left {
            return CommitStanding { clean: false, taken: below.max(prefix), until, by, of, named, out: 0 };
        }
        CommitStanding { named, ..CommitStanding::clean(taken) }
    }

    /// Returns the run whose local file says exactly what was handed out of this partition, if there is one.
    pub fn vouched(&self, run: Option<u64>) -> Option<u64> {
        run.filter(|_| self.suspected.is_exact())
    }

    /// Returns the due time up to which messages of a tier may have been handed out.
    pub fn until(&self) -> Option<u64> {
        (self.kind != LaneKind::Source).then(|| self.reserved.due_granted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(start: u64) -> PartitionLane {
        let done = CompletionSet::starting_at(start);
        PartitionLane::new(
            LaneKind::Source,
            "orders".into(),
            0,
            done,
            Suspected::default(),
            Arc::new(LookAheadLimit::new(10, 1000)),
        )
    }

    #[test]
    fn holes_between_records_do_not_hold_the_prefix_back() {
        let mut lane = lane(5);
        assert!(lane.meet(5) && lane.meet(9));
        lane.done.mark(5);
        assert_eq!(lane.done.prefix(), 9);
        assert!(!lane.meet(7), "what was met before is no news");
    }

    #[test]
    fn a_record_that_is_done_is_no_news() {
        let mut lane = lane(5);
        lane.done.mark(6);
        assert!(lane.meet(5) && !lane.meet(6) && lane.meet(7));
        assert_eq!(lane.unread(), 0);
        lane.end = 20;
        assert_eq!(lane.unread(), 12);
    }
}
