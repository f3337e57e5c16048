//! Everything that waits in this process, and which of it may start now: fresh and due messages, in order per key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::internal::engine::position::PartitionOffset;
use redrive::internal::engine::seam::share;
use redrive::internal::engine::{Delivery, Receipt, SourcePosition};
use redrive_core::{Reason, Time};

use super::due_reserve::DueReserve;
use super::held_back::HeldBack;
use super::key_order::{KeyOrder, LetterStates};
use super::lane::Out;
use super::lanes::Lanes;
use super::lookahead::{Due, LookAhead};
use crate::record::{Carried, Origin, WaitingMessage, origin_of};
use crate::topics::LaneKind;

/// Messages that may be looked at in one go only to find that they wait for their key.
const PASSED_MAX: usize = 4_096;
/// Messages among which the oldest is looked for.
const OLDEST_OF: usize = 64;
/// A waiting message this many records behind is rewritten, so that the committed offset can advance.
const STRAGGLER_OFFSETS: u64 = 1_000_000;
/// Stragglers that are moved in one go.
const STRAGGLERS_MAX: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Backlog {
    pub(super) source: Arc<str>,
    /// Whether retries happen in place: one delivery at a time for each partition.
    is_blocking: bool,
    pub(super) ahead: LookAhead,
    pub(super) keys: KeyOrder,
    held_back: HeldBack,
    due: DueReserve,
    /// Keys whose turn came while their lane was held.
    keys_of_held: Vec<u64>,
    odd_to_due: bool,
    next_source: usize,
}

/// What is needed to hand out messages.
pub(crate) struct Dispatch<'a> {
    pub lanes: &'a mut Lanes,
    pub letters: LetterStates<'a>,
    pub now: Time,
}

impl Backlog {
    pub fn new(source: Arc<str>, is_blocking: bool, ahead: LookAhead, keys: KeyOrder) -> Self {
        Self {
            source,
            is_blocking,
            ahead,
            keys,
            held_back: HeldBack::default(),
            due: DueReserve::default(),
            keys_of_held: Vec::new(),
            odd_to_due: false,
            next_source: 0,
        }
    }

    pub fn keys(&self) -> &KeyOrder {
        &self.keys
    }

    pub fn keys_mut(&mut self) -> &mut KeyOrder {
        &mut self.keys
    }

    /// Adds a record that was read.
    pub fn put(&mut self, lanes: &mut Lanes, at: usize, waiting: WaitingMessage, now: Time) {
        if lanes[at].kind == LaneKind::Source {
            lanes[at].fifo.push_back(waiting);
        } else {
            self.ahead.put(at, waiting, now);
        }
    }

    /// Hands out up to `room` messages, shared between due and fresh ones.
    pub fn hand_out(&mut self, with: &mut Dispatch<'_>, room: usize, out: &mut Vec<Delivery>) {
        let first = out.len();
        let due = self.ahead.due_count(with.now, room);
        let fresh = (self.fresh_count(with.lanes, room) + self.keys.free()).min(room);
        let (due_share, fresh_share) = share(room, due, fresh, self.odd_to_due);
        self.odd_to_due = !self.odd_to_due;
        self.hand_out_due(with, due_share, out);
        self.hand_out_fresh(with, out.len() - first + fresh_share, first, out);
        // Each side gets what the other left over.
        self.hand_out_due(with, room - (out.len() - first), out);
        self.hand_out_fresh(with, room, first, out);
    }

    /// Counts fresh messages that could be handed out, up to about `limit`.
    fn fresh_count(&self, lanes: &Lanes, limit: usize) -> usize {
        let mut count = 0;
        for lane in lanes.sources() {
            if !self.held_back.holds(lane.partition) && !lane.is_held {
                count += if self.is_blocking { usize::from(lane.out.is_empty()) } else { lane.fifo.len() };
            }
            if count >= limit {
                break;
            }
        }
        count
    }

    pub fn hand_out_due(&mut self, with: &mut Dispatch<'_>, room: usize, out: &mut Vec<Delivery>) {
        let mut left = room;
        let mut aside = Vec::new();
        while left > 0
            && aside.len() < PASSED_MAX
            && let Some(due) = self.ahead.pop_due(with.now)
        {
            match due {
                Ok(Due { lane, waiting }) if self.held_back.holds(with.lanes[lane].partition) => {
                    aside.push((lane, waiting));
                }
                // Superseded by another record of the same message.
                Ok(Due { lane, waiting }) if with.lanes[lane].done.contains(waiting.offset) => {}
                // Entries come in due order, so those behind it have to wait for the same commit.
                Ok(Due { lane, waiting }) if !with.lanes[lane].is_reserved(&waiting) => {
                    self.due.starved();
                    aside.push((lane, waiting));
                    break;
                }
                Ok(Due { lane, waiting }) => {
                    self.due.handed_out();
                    if let Some(delivery) = self.admit(with, lane, waiting) {
                        out.push(delivery);
                        left -= 1;
                    }
                }
                Err((lane, offset)) => {
                    let topic = &with.lanes[lane].topic;
                    tracing::error!(%topic, offset, "a waiting message was lost from the spill file; it comes again after a restart");
                }
            }
        }
        for (lane, waiting) in aside {
            self.ahead.put(lane, waiting, with.now);
        }
    }

    /// Hands out fresh messages until `out` holds `upto` more than `first`.
    fn hand_out_fresh(
        &mut self,
        with: &mut Dispatch<'_>,
        upto: usize,
        first: usize,
        out: &mut Vec<Delivery>,
    ) {
        while out.len() - first < upto
            && let Some((lane, waiting)) = self.keys.next_free()
        {
            let key = self.keys.key_of(&waiting.message);
            if let Some(key) = key.filter(|_| with.lanes[lane].is_held) {
                self.keys.wait_again(key, lane, waiting);
                self.keys_of_held.push(key);
                continue;
            }
            if with.lanes[lane].done.contains(waiting.offset) {
                // Superseded by another record of the same message, which waits for the key.
                self.drop_done(with.lanes, lane, &waiting, key);
                continue;
            }
            out.push(self.begin(with, lane, waiting, key));
        }
        let lanes = with.lanes.len();
        let (mut idle, mut looked) = (0, 0);
        while out.len() - first < upto && idle < lanes && looked < PASSED_MAX + upto {
            self.next_source = (self.next_source + 1) % lanes;
            let lane = self.next_source;
            let share = ((upto - (out.len() - first)) / 4).clamp(1, 64);
            let before = looked;
            for _ in 0..share {
                let Some(waiting) = self.next_fresh(with.lanes, lane) else { break };
                looked += 1;
                out.extend(self.admit(with, lane, waiting));
            }
            idle = if looked == before { idle + 1 } else { 0 };
        }
    }

    fn next_fresh(&self, lanes: &mut Lanes, at: usize) -> Option<WaitingMessage> {
        let lane = &mut lanes[at];
        if lane.is_held || lane.kind != LaneKind::Source || (self.is_blocking && !lane.out.is_empty()) {
            return None;
        }
        if self.held_back.holds(lane.partition) {
            return None;
        }
        loop {
            let lane = &mut lanes[at];
            let waiting = lane.fifo.front()?;
            let is_done = lane.done.contains(waiting.offset);
            if !is_done && !lane.reserved.admits(waiting.offset) {
                return None;
            }
            let waiting = lane.fifo.pop_front()?;
            if !is_done {
                return Some(waiting);
            }
            // Superseded by another record of the same message.
            lanes.free(at, waiting.bytes());
        }
    }

    /// Drops a record that waited for its key and has been superseded.
    pub(super) fn drop_done(
        &mut self,
        lanes: &Lanes,
        lane: usize,
        waiting: &WaitingMessage,
        key: Option<u64>,
    ) {
        self.keys.stop(key, waiting.number);
        lanes.free_fresh(lane, waiting.bytes());
    }

    /// Returns a delivery if the message may start now; otherwise the message waits for its key.
    fn admit(&mut self, with: &mut Dispatch<'_>, lane: usize, waiting: WaitingMessage) -> Option<Delivery> {
        let Some(key) = self.keys.key_of(&waiting.message) else {
            return Some(self.begin(with, lane, waiting, None));
        };
        let waiting = self.keys.start(key, lane, waiting, with.letters)?;
        Some(self.begin(with, lane, waiting, Some(key)))
    }

    fn begin(
        &mut self,
        with: &mut Dispatch<'_>,
        at: usize,
        waiting: WaitingMessage,
        key: Option<u64>,
    ) -> Delivery {
        let is_blocked = self.keys.is_blocked(key, waiting.number, with.letters);
        let doomed = waiting.doomed.or(is_blocked.then_some(Reason::KeyBlocked));
        let mut delivery = self.deliver(with.lanes, at, waiting, key, with.now, false);
        delivery.doomed = doomed;
        delivery
    }

    /// Makes a delivery of a message and notes that it is out. A message that is only claimed does not run.
    pub(super) fn deliver(
        &self,
        lanes: &mut Lanes,
        at: usize,
        waiting: WaitingMessage,
        key: Option<u64>,
        now: Time,
        is_claimed: bool,
    ) -> Delivery {
        let (bytes, arrived) = (waiting.bytes(), waiting.arrived_at(now));
        let WaitingMessage { offset, number, message, meta, history, due, carried, .. } = waiting;
        // A letter that was imported without a source position has a made-up number, which names no position.
        let origin = (!PartitionOffset::of(number).is_made()).then(|| self.source_position(number, &carried));
        lanes.free_fresh(at, bytes);
        let epoch = lanes.epoch();
        let lane = &mut lanes[at];
        let suspect = lane.suspected.of(offset, due, now).map(Box::new);
        if is_claimed {
            // It does not run, so nothing needs to be recorded for the next process.
            lane.out.insert(offset, Out { carried, key, waits: true });
        } else {
            lane.hand_out(offset, Out { carried, key, waits: suspect.is_some() });
        }
        let receipt = Receipt { lane: at as u32, epoch, seq: number, at: offset };
        Delivery { receipt, message, meta, history, due, arrived, origin, doomed: None, suspect }
    }

    /// Returns the source position that a message came from.
    fn source_position(&self, number: u64, carried: &Carried) -> SourcePosition {
        let topic = carried.topic.as_ref().unwrap_or(&self.source);
        let Origin { topic, partition, offset } = origin_of(number, topic);
        SourcePosition { topic, partition, offset: offset.cast_unsigned() }
    }

    /// Takes back a delivery that was not started.
    pub fn take_back(&mut self, lanes: &mut Lanes, delivery: Delivery, out: Out, now: Time) {
        let Delivery { receipt, message, meta, history, due, doomed, suspect: _, arrived: _, origin: _ } =
            delivery;
        let doomed = doomed.filter(|reason| *reason != Reason::KeyBlocked);
        let waiting = WaitingMessage {
            offset: receipt.at,
            number: receipt.seq,
            message,
            meta,
            history,
            due,
            arrived: Some(Instant::now()),
            doomed,
            carried: out.carried,
        };
        let at = receipt.lane as usize;
        let lane = &mut lanes[at];
        if lane.kind == LaneKind::Source {
            lane.room.fill(1, waiting.bytes());
            lane.put_back(waiting);
        } else {
            self.ahead.put(at, waiting, now);
        }
        self.keys.stop(out.key, receipt.seq);
    }

    /// Reserves what comes due soon.
    pub fn reserve(&mut self, lanes: &mut Lanes, instant: Instant, now: Time) {
        self.due.renew(instant, now, &self.ahead, lanes);
    }

    /// Starts nothing more from a lane, because one of its records cannot be written.
    pub fn hold(&mut self, lanes: &mut Lanes, at: usize) {
        self.ahead.park(at);
        lanes[at].is_held = true;
    }

    /// Resumes these lanes.
    pub fn resume(&mut self, lanes: &mut Lanes, resumed: &[usize]) {
        for at in resumed {
            self.ahead.unpark(*at);
            let lane = &mut lanes[*at];
            lane.is_held = false;
            tracing::info!(topic = %lane.topic, partition = lane.partition, "everything is written; the partition continues");
        }
        if !resumed.is_empty() {
            std::mem::take(&mut self.keys_of_held).into_iter().for_each(|key| self.keys.wake(key));
        }
    }

    /// With key order: starts nothing from the assigned partitions until everything that waits in their tiers is known,
    /// and nothing at all while another member has those tiers.
    pub fn hold_back<'a>(&mut self, lanes: &Lanes, tiers: &(impl Iterator<Item = &'a Arc<str>> + Clone)) {
        if self.keys.is_ordered() {
            self.held_back.begin(lanes, tiers);
        }
    }

    pub fn release_read<'a>(&mut self, lanes: &Lanes, tiers: &(impl Iterator<Item = &'a Arc<str>> + Clone)) {
        self.held_back.release_read(lanes, tiers);
    }

    pub fn is_holding_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Returns the source partitions whose tiers are read elsewhere, each with the first such tier partition.
    pub fn separated<'a>(
        &self,
        lanes: &Lanes,
        tiers: &(impl Iterator<Item = &'a Arc<str>> + Clone),
    ) -> Vec<(String, String)> {
        self.held_back.separated(lanes, tiers)
    }

    /// Takes out waiting messages that hold up the committed offset: too many records behind, or for longer than
    /// `after`.
    pub fn take_stragglers(
        &mut self,
        lanes: &mut Lanes,
        now: Instant,
        after: Duration,
    ) -> Vec<(usize, WaitingMessage)> {
        let mut stragglers = Vec::new();
        for (at, lane) in lanes.iter_mut().enumerate().filter(|(_, lane)| lane.kind != LaneKind::Source) {
            let prefix = lane.done.prefix();
            if lane.stuck.0 != prefix || lane.next == prefix {
                lane.stuck = (prefix, Some(now));
            }
            let since = *lane.stuck.1.get_or_insert(now);
            let below = if lane.next - prefix > STRAGGLER_OFFSETS {
                lane.next - STRAGGLER_OFFSETS / 2
            } else if lane.next > prefix && now.duration_since(since) > after {
                prefix + 1
            } else {
                continue;
            };
            let taken = self.ahead.take_stragglers(at, below, STRAGGLERS_MAX);
            stragglers.extend(taken.into_iter().map(|waiting| (at, waiting)));
        }
        stragglers
    }

    pub fn next_due(&self) -> Option<Time> {
        self.ahead.next_due()
    }

    /// Counts messages that wait for their due time, and the deferred ones among them.
    pub fn delayed(&self) -> (u64, u64) {
        (self.ahead.len() as u64, self.ahead.held() as u64)
    }

    /// Returns when the oldest waiting message was created, judged from the first ones only.
    pub fn oldest(&self, lanes: &Lanes) -> Option<Time> {
        let fresh =
            lanes.iter().filter_map(|lane| lane.fifo.front()).map(|waiting| waiting.message.created());
        let due = self.ahead.first(OLDEST_OF).map(|waiting| waiting.message.created());
        fresh.chain(due).min()
    }

    /// Drops everything that waits, after the partitions were taken away.
    pub fn clear(&mut self) {
        self.ahead.clear();
        self.keys.clear();
        self.held_back.clear();
        self.keys_of_held.clear();
        self.due = DueReserve::default();
        self.next_source = 0;
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::StoreOptions;
    use redrive::internal::engine::history::History;
    use redrive_core::{Message, Meta};

    use super::super::lanes::tests::lanes;
    use super::super::spill::Spill;
    use super::*;
    use crate::crash::reservation::Reservation;

    const NOW: Time = Time::from_millis(10_000);

    fn waiting(number: u64, due: Option<u64>) -> WaitingMessage {
        WaitingMessage {
            offset: number,
            number,
            message: Message::builder("m").build().unwrap(),
            meta: Meta::default(),
            history: History::default(),
            due: due.map(Time::from_millis),
            arrived: None,
            doomed: None,
            carried: Carried::default(),
        }
    }

    /// Returns a backlog with fresh messages 0 to 3 in lane 0, and a due one in lane 1.
    fn given() -> (tempfile::TempDir, Backlog, Lanes) {
        let dir = tempfile::tempdir().unwrap();
        let ahead = LookAhead::new(Spill::new(dir.path(), "orders"));
        let keys = KeyOrder::new(&StoreOptions::default());
        let mut backlog = Backlog::new("orders".into(), false, ahead, keys);
        let mut lanes = lanes();
        for lane in lanes.iter_mut() {
            lane.reserved = Reservation::unlimited();
        }
        for number in 0..4 {
            let fresh = waiting(number, None);
            lanes[0].room.fill(1, fresh.bytes());
            backlog.put(&mut lanes, 0, fresh, NOW);
        }
        backlog.put(&mut lanes, 1, waiting(9, Some(9_000)), NOW);
        (dir, backlog, lanes)
    }

    fn handed_out(backlog: &mut Backlog, lanes: &mut Lanes, room: usize) -> Vec<Delivery> {
        let mut out = Vec::new();
        backlog.hand_out(&mut Dispatch { lanes, letters: &|_| None, now: NOW }, room, &mut out);
        out
    }

    fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
        deliveries.iter().map(|delivery| delivery.receipt.seq).collect()
    }

    #[test]
    fn due_and_fresh_messages_share_the_room_and_each_is_out_once() {
        let (_dir, mut backlog, mut lanes) = given();
        assert_eq!(numbers(&handed_out(&mut backlog, &mut lanes, 3)), [9, 0, 1]);
        assert!(lanes[0].out.contains_key(&1) && lanes[1].out.contains_key(&9));
        assert_eq!(numbers(&handed_out(&mut backlog, &mut lanes, 9)), [2, 3]);
        assert!(handed_out(&mut backlog, &mut lanes, 9).is_empty());
    }

    #[test]
    fn a_message_that_is_taken_back_comes_again_before_later_ones() {
        let (_dir, mut backlog, mut lanes) = given();
        let mut out = handed_out(&mut backlog, &mut lanes, 3);
        let back = out.remove(1);
        let was_out = lanes[0].out.remove(&back.receipt.at).unwrap();
        backlog.take_back(&mut lanes, back, was_out, NOW);
        assert_eq!(numbers(&handed_out(&mut backlog, &mut lanes, 9)), [0, 2, 3]);
    }

    #[test]
    fn nothing_of_a_held_lane_starts_until_it_resumes() {
        let (_dir, mut backlog, mut lanes) = given();
        backlog.hold(&mut lanes, 0);
        backlog.hold(&mut lanes, 1);
        assert!(handed_out(&mut backlog, &mut lanes, 9).is_empty());
        backlog.resume(&mut lanes, &[0, 1]);
        assert_eq!(handed_out(&mut backlog, &mut lanes, 9).len(), 5);
    }

    #[test]
    fn a_record_that_is_done_meanwhile_is_dropped_when_its_turn_comes() {
        let (_dir, mut backlog, mut lanes) = given();
        lanes.mark(0, 1);
        lanes[1].room.fill(1, 0);
        lanes.mark(1, 9);
        assert_eq!(numbers(&handed_out(&mut backlog, &mut lanes, 9)), [0, 2, 3]);
    }

    #[test]
    fn a_straggler_is_taken_out_once_it_holds_the_offset_up_for_too_long() {
        let (_dir, mut backlog, mut lanes) = given();
        let (now, after) = (Instant::now(), Duration::from_mins(1));
        lanes[1].next = 10;
        lanes[1].done.mark(0);
        (1..9).for_each(|offset| assert!(lanes[1].done.mark(offset)));
        assert!(backlog.take_stragglers(&mut lanes, now, after).is_empty());
        let taken = backlog.take_stragglers(&mut lanes, now + after * 2, after);
        assert_eq!(taken.iter().map(|(lane, one)| (*lane, one.number)).collect::<Vec<_>>(), [(1, 9)]);
        assert_eq!(backlog.delayed(), (0, 0));
    }
}
