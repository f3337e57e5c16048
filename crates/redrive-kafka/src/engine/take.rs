//! Handing out: which messages may start now, fresh ones and due ones, each key in its order.

use std::time::Instant;

use redrive::engine::seam::share;
use redrive::engine::{Delivery, Receipt, SourcePlace};
use redrive_core::{Reason, Time};

use super::engine::{Claim, KafkaEngine};
use crate::backlog::keys::hash_of;
use crate::backlog::lane::Out;
use crate::backlog::lookahead::Due;
use crate::record::Origin;
use crate::record::{Carried, Waiting, origin_of};
use crate::topics::LaneKind;

/// Messages that may be looked at in one go and turn out to have to wait for their key.
const PASSED_MAX: usize = 4_096;

impl KafkaEngine {
    pub(crate) fn hand_out(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) {
        self.now = now;
        if self.is_closed_to_takers() || room == 0 {
            return;
        }
        let first = out.len();
        let due = self.ahead.due_count(now, room);
        let fresh = (self.fresh_count(room) + self.keys.free()).min(room);
        let (due_places, fresh_places) = share(room, due, fresh, self.odd_to_due);
        self.odd_to_due = !self.odd_to_due;
        self.hand_out_due_ones(now, due_places, out);
        self.hand_out_fresh_ones(out.len() - first + fresh_places, first, out);
        // What one side left over, the other gets.
        self.hand_out_due_ones(now, room - (out.len() - first), out);
        self.hand_out_fresh_ones(room, first, out);
        self.mark_started(&out[first..]);
        self.reserve_more();
    }

    pub(crate) fn hand_out_only_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) {
        self.now = now;
        if !self.is_closed_to_takers() {
            let first = out.len();
            self.hand_out_due_ones(now, room, out);
            self.mark_started(&out[first..]);
            self.reserve_more();
        }
    }

    fn is_closed_to_takers(&self) -> bool {
        self.gated
            || self.control.holds()
            || self.claim != Claim::Ours
            || self.closed
            || self.twins.is_reading()
            || self.unsure.is_some()
    }

    /// Fresh messages that could be handed out, counted up to about `limit`.
    fn fresh_count(&self, limit: usize) -> usize {
        let mut count = 0;
        for (at, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| lane.kind == LaneKind::Source) {
            if self.may_take(lane.partition) && !self.unwritten.holds(at) {
                count +=
                    if self.pipeline.blocking { usize::from(lane.out.is_empty()) } else { lane.fifo.len() };
            }
            if count >= limit {
                break;
            }
        }
        count
    }

    fn may_take(&self, partition: i32) -> bool {
        self.held_back.is_empty() || !self.held_back.contains(&partition)
    }

    fn hand_out_due_ones(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) {
        let mut left = room;
        let mut aside = Vec::new();
        while left > 0
            && aside.len() < PASSED_MAX
            && let Some(due) = self.ahead.pop_due(now)
        {
            match due {
                Ok(Due { lane, waiting }) if !self.may_take(self.lanes[lane].partition) => {
                    aside.push((lane, waiting));
                }
                // Another record of the message counts.
                Ok(Due { lane, waiting }) if self.lanes[lane].done.contains(waiting.offset) => {}
                // In the order of their times: those behind it have to wait for the same commit.
                Ok(Due { lane, waiting }) if !self.is_reserved(lane, &waiting) => {
                    self.dues.starved = true;
                    aside.push((lane, waiting));
                    break;
                }
                Ok(Due { lane, waiting }) => {
                    self.dues.handed += 1;
                    if let Some(delivery) = self.admit(lane, waiting) {
                        out.push(delivery);
                        left -= 1;
                    }
                }
                Err((lane, offset)) => {
                    let topic = &self.lanes[lane].topic;
                    tracing::error!(%topic, offset, "a waiting message was lost from the spill file; it comes again after a restart");
                }
            }
        }
        for (lane, waiting) in aside {
            self.ahead.put(lane, waiting, now);
        }
    }

    /// Fresh messages until `out` holds `upto` more than `first`.
    fn hand_out_fresh_ones(&mut self, upto: usize, first: usize, out: &mut Vec<Delivery>) {
        while out.len() - first < upto
            && let Some((lane, waiting)) = self.keys.next_free()
        {
            let key = hash_of(&waiting.message);
            if let Some(key) = key.filter(|_| self.unwritten.holds(lane)) {
                self.keys.wait_again(key, lane, waiting);
                self.unwritten.wait(key);
                continue;
            }
            if self.lanes[lane].done.contains(waiting.offset) {
                // Another record of the message counts, and stands in its line.
                self.pass_over(lane, &waiting, key);
                continue;
            }
            out.push(self.begin(lane, waiting, key));
        }
        let lanes = self.lanes.len();
        let (mut idle, mut looked) = (0, 0);
        while out.len() - first < upto && idle < lanes && looked < PASSED_MAX + upto {
            self.next_source = (self.next_source + 1) % lanes;
            let lane = self.next_source;
            let share = ((upto - (out.len() - first)) / 4).clamp(1, 64);
            let before = looked;
            for _ in 0..share {
                let Some(waiting) = self.next_fresh(lane) else { break };
                looked += 1;
                out.extend(self.admit(lane, waiting));
            }
            idle = if looked == before { idle + 1 } else { 0 };
        }
    }

    fn next_fresh(&mut self, lane: usize) -> Option<Waiting> {
        if self.unwritten.holds(lane) {
            return None;
        }
        let lane = &mut self.lanes[lane];
        if lane.kind != LaneKind::Source || (self.pipeline.blocking && !lane.out.is_empty()) {
            return None;
        }
        if !self.held_back.is_empty() && self.held_back.contains(&lane.partition) {
            return None;
        }
        while let Some(waiting) = lane.fifo.front() {
            let is_done = lane.done.contains(waiting.offset);
            if !is_done && !lane.reserved.admits(waiting.offset) {
                return None;
            }
            let waiting = lane.fifo.pop_front()?;
            if !is_done {
                return Some(waiting);
            }
            // Another record of the message counts.
            if lane.room.free(1, waiting.bytes()) {
                self.mailbox.call_reader();
            }
        }
        None
    }

    /// A message that waited for its key is not needed any more.
    pub(crate) fn pass_over(&mut self, lane: usize, waiting: &Waiting, key: Option<u64>) {
        if let Some(key) = key {
            self.keys.stop(key, waiting.number);
        }
        let lane = &self.lanes[lane];
        if lane.kind == LaneKind::Source && lane.room.free(1, waiting.bytes()) {
            self.mailbox.call_reader();
        }
    }

    /// A delivery if the message may start now; otherwise it waits for its key.
    fn admit(&mut self, lane: usize, waiting: Waiting) -> Option<Delivery> {
        if !self.is_ordered() {
            return Some(self.begin(lane, waiting, None));
        }
        let Some(key) = hash_of(&waiting.message) else { return Some(self.begin(lane, waiting, None)) };
        self.follow_letters(key);
        let waiting = self.keys.start(key, lane, waiting)?;
        Some(self.begin(lane, waiting, Some(key)))
    }

    fn begin(&mut self, at: usize, waiting: Waiting, key: Option<u64>) -> Delivery {
        let bytes = waiting.bytes();
        let arrived = waiting.arrived_at(self.now);
        let Waiting { offset, number, message, meta, history, due, doomed, carried, .. } = waiting;
        let origin = Some(self.source_place(number, &carried));
        let blocked = key.is_some_and(|key| self.is_blocked(key, number));
        let doomed = doomed.or(blocked.then_some(Reason::KeyBlocked));
        let lane = &mut self.lanes[at];
        if lane.kind == LaneKind::Source && lane.room.free(1, bytes) {
            self.mailbox.call_reader();
        }
        let suspect = lane.suspected.of(offset, due, self.now).map(Box::new);
        lane.hand_out(offset, Out { carried, key, waits: suspect.is_some() });
        let receipt = Receipt { lane: at as u32, epoch: self.epoch, seq: number, at: offset };
        Delivery { receipt, message, meta, history, due, arrived, origin, doomed, suspect }
    }

    /// The source record that a message came from.
    pub(crate) fn source_place(&self, number: u64, carried: &Carried) -> SourcePlace {
        let topic = carried.topic.as_ref().unwrap_or(&self.source);
        let Origin { topic, partition, offset } = origin_of(number, topic);
        SourcePlace { topic, partition, offset: offset.cast_unsigned() }
    }

    /// A delivery that was not started goes back to where it came from.
    pub(crate) fn take_back(&mut self, delivery: Delivery, out: Out) {
        let Delivery { receipt, message, meta, history, due, doomed, suspect, arrived: _, origin: _ } =
            delivery;
        let doomed = doomed.filter(|reason| *reason != Reason::KeyBlocked);
        let waiting = Waiting {
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
        let lane = &mut self.lanes[at];
        // The others that were announced with it may run, or have their turn yet.
        lane.suspected.take_turn_back(waiting.offset);
        self.started.did_not_run(lane.place, waiting.offset);
        // A suspect stays one.
        if suspect.is_none() {
            self.started.ended(lane.place, waiting.offset);
        }
        if lane.kind == LaneKind::Source {
            lane.room.fill(1, waiting.bytes());
            lane.put_back(waiting);
        } else {
            self.ahead.put(at, waiting, self.now);
        }
        if let Some(key) = out.key {
            self.keys.stop(key, receipt.seq);
        }
    }
}
