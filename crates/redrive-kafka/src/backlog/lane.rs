//! One assigned partition: what was read of it, what is handed out, what is done. No I/O.

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

/// A message that was handed out, and what the delivery does not say of it.
#[derive(Clone, Debug)]
pub struct Out {
    pub carried: Carried,
    /// Its key, where keys are ordered.
    pub key: Option<u64>,
    /// Whether it is a suspect that was not announced yet: it does not run.
    pub waits: bool,
}

/// Why nothing more of a lane is read.
#[derive(Clone, Debug)]
pub struct ReadStopped {
    pub kind: ProblemKind,
    pub problem: String,
    /// When the client last said so; it says it several times a second.
    pub heard: Instant,
}

/// What was not said again for so long is over.
const STOPPED_HEARD_WITHIN: Duration = Duration::from_secs(15);

impl ReadStopped {
    /// Whether the problem is over although no record has come: the end of a partition is reported only once. A lost range
    /// stays lost.
    pub fn is_over(&self, now: Instant) -> bool {
        self.kind != ProblemKind::LostRange && now.duration_since(self.heard) > STOPPED_HEARD_WITHIN
    }
}

/// How far a partition was read since it was assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// Its end was not met yet.
    Behind,
    /// Nothing has come since its end was met.
    AtEnd,
    /// Its end was met, and more has come.
    Onward,
}

#[derive(Debug)]
pub struct PartitionLane {
    pub kind: LaneKind,
    pub topic: Arc<str>,
    pub topic_hash: u64,
    pub partition: i32,
    /// What it is called in the file of what was started.
    pub place: u64,
    pub room: Arc<LookAheadLimit>,
    /// The first offset that was not met yet.
    pub next: u64,
    /// One behind the last record, as far as is known.
    pub end: u64,
    /// Whether its end was met since it was assigned.
    pub read: ReadState,
    /// Up to where it holds nothing more to read. Beyond the last record there may be the ends of transactions.
    pub empty_to: u64,
    /// Set if nothing more will come, and why.
    pub stopped: Option<ReadStopped>,
    pub done: DoneOffsets,
    /// What was done when the partition was assigned.
    pub done_before: CompletionSet,
    /// One behind the last copy that was acknowledged late, and so has to be read before anything starts.
    pub late_end: u64,
    /// One behind the highest offset that was ever handed out.
    pub taken: u64,
    pub out: NumberMap<u64, Out>,
    /// Fresh messages in their order.
    pub fifo: VecDeque<WaitingMessage>,
    /// How many were out when it was last committed.
    pub noted_out: usize,
    /// How far it may be handed out.
    pub reserved: Reservation,
    /// Whether something due waits for the next commit.
    pub hurries: bool,
    /// Who may have killed the last owner.
    pub suspected: Suspected,
    /// Since when the prefix stands where it stands.
    pub stuck: (u64, Option<Instant>),
    /// Whether nothing more of it starts because one of its records cannot be written.
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

    /// For messages that cannot end a process: whatever notes say of earlier deaths, none is suspected, and nothing waits
    /// for a reservation.
    #[must_use]
    pub fn without_suspects(self) -> Self {
        Self { suspected: Suspected::default(), reserved: Reservation::unlimited(), ..self }
    }

    /// With the first and last bitmap that an owner before may have left in `T.progress`.
    #[must_use]
    pub fn with_bitmaps(self, left: Option<(u64, u64)>) -> Self {
        Self { done: self.done.with_bitmaps(left), ..self }
    }

    /// A record was read. Returns whether it is new: not below the expected offset and not done.
    pub fn meet(&mut self, offset: u64) -> bool {
        if offset < self.next {
            return false;
        }
        // Offsets between two records hold no message: a transaction's end, or something a compaction took away.
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

    /// Everything that was there has been read. From now on it holds back.
    pub fn end_met(&mut self) {
        if self.read == ReadState::Behind {
            self.read = ReadState::Onward;
        }
        self.room.bind();
    }

    /// Whether a message of a tier may be handed out: that it may run is committed.
    pub fn is_reserved(&self, waiting: &WaitingMessage) -> bool {
        self.reserved.admits_due(waiting.due.unwrap_or_default().as_millis())
    }

    /// Whether a record is the one that gave its message its number.
    pub fn is_original(&self, waiting: &WaitingMessage) -> bool {
        self.kind == LaneKind::Source
            && waiting.number == number_of(self.partition, waiting.offset.cast_signed())
    }

    /// Where one of its records is.
    pub fn origin_at(&self, offset: u64) -> Origin {
        Origin { topic: Arc::clone(&self.topic), partition: self.partition, offset: offset.cast_signed() }
    }

    /// One of its records, as a copy would name it.
    pub fn record_at(&self, offset: u64) -> Replaces {
        Replaces { topic: self.topic_hash, partition: self.partition, offset }
    }

    /// Notes that a record is handed out.
    pub fn hand_out(&mut self, offset: u64, out: Out) {
        self.taken = self.taken.max(offset + 1);
        self.out.insert(offset, out);
    }

    /// What the file of started messages must hold of this lane: what runs, and what is known to have run.
    pub fn open_marks(&self) -> impl Iterator<Item = (u64, u64)> {
        let marked = self.out.keys().copied().chain(self.suspected.ran());
        marked.map(|offset| (self.place, offset))
    }

    /// Puts a fresh message back to where it came from.
    pub fn put_back(&mut self, waiting: WaitingMessage) {
        let at = self.fifo.partition_point(|other| other.offset < waiting.offset);
        self.fifo.insert(at, waiting);
    }

    /// Records that are known to be there but were not read yet.
    pub fn unread(&self) -> u64 {
        self.end.saturating_sub(self.next.max(self.empty_to))
    }

    /// Records that were not handed out yet: those in memory, and those that were not read.
    pub fn lag(&self) -> u64 {
        let waiting = if self.kind == LaneKind::Source { self.fifo.len() } else { self.room.records() };
        waiting as u64 + self.unread()
    }

    /// How long the first of the fresh messages has waited since it was read.
    pub fn stalled_for(&self) -> Option<Duration> {
        Some(self.fifo.front()?.arrived?.elapsed())
    }

    /// Whether its end was met since it was assigned.
    pub fn has_ended(&self) -> bool {
        self.read != ReadState::Behind
    }

    /// The client has met the end of the partition at `end`, and if nothing came since, there is no record before it.
    pub fn is_empty_up_to(&mut self, end: u64) {
        if self.read == ReadState::AtEnd {
            self.empty_to = self.empty_to.max(end);
        }
    }

    /// The broker says where the partition ends; `is_met` if the client has fetched everything before that.
    pub fn ends_at(&mut self, end: u64, is_met: bool) {
        if is_met {
            self.is_empty_up_to(end);
        }
        // The end of a topic that is written in transactions is no record.
        if self.kind != LaneKind::Replay {
            self.end = self.end.max(end);
            if self.next >= end {
                self.end_met();
            }
        }
    }

    /// Something came of it.
    pub fn resumed(&mut self) {
        if self.stopped.take_if(|stopped| stopped.kind != ProblemKind::LostRange).is_some() {
            tracing::info!(topic = %self.topic, partition = self.partition, "the partition is read again");
        }
    }

    /// Whether something has to be committed.
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

    /// Whether something of it runs, or may.
    pub fn is_busy(&self) -> bool {
        self.out.values().any(|out| !out.waits)
    }

    /// What the last note of an owner says; `leaves` if suspects of a tier are left.
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
        // Earlier suspects stay suspects, and no others.
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

    /// The run whose file says exactly what was handed out of this partition, if there is one.
    pub fn vouched(&self, run: Option<u64>) -> Option<u64> {
        run.filter(|_| self.suspected.is_exact())
    }

    /// What may have been handed out of a tier.
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
