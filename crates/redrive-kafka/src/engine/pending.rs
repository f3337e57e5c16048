//! What waits in this member's memory: listed, and taken out by number. What was not read yet, and what other members own,
//! is not seen here.

use redrive::engine::Claimed;
use redrive::engine::letter::SCAN_BYTES;
use redrive::engine::pending::{PendingAt, PendingMessage, PendingScan, PendingState};
use redrive::engine::{Delivery, EngineError, Receipt};

use super::engine::{Claim, KafkaEngine};
use crate::backlog::keys::hash_of;
use crate::backlog::lane::Out;
use crate::record::{Waiting, origin_of};
use crate::topics::LaneKind;

impl KafkaEngine {
    pub(crate) fn list_pending(
        &self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> PendingScan {
        let list = |waiting: Listing<'_>| page(state, after, limit, look_max, waiting);
        let scan = match state {
            PendingState::Ready => list(Box::new(self.fresh_after(after))),
            PendingState::Held | PendingState::Delayed => {
                let timed = self.ahead.after(after).map(|(key, waiting)| {
                    (key, waiting.filter(|waiting| PendingState::timed(waiting.meta.deferred) == state))
                });
                list(Box::new(timed))
            }
            PendingState::KeyWait => {
                let blocked = self.keys.blocked_after(after, look_max + 1).into_iter();
                list(Box::new(blocked.map(|(key, waiting)| (key, Some(waiting.clone())))))
            }
            PendingState::InFlight => PendingScan::default(),
        };
        PendingScan { unlisted: self.unlisted(state), ..scan }
    }

    /// Fresh messages in the order of their places in the source.
    fn fresh_after(&self, after: Option<(u64, u64)>) -> impl Iterator<Item = ((u64, u64), Option<Waiting>)> {
        let mut sources: Vec<_> = self.lanes.iter().filter(|lane| lane.kind == LaneKind::Source).collect();
        sources.sort_unstable_by_key(|lane| lane.partition);
        sources.into_iter().flat_map(move |lane| {
            let from =
                lane.fifo.partition_point(|waiting| after.is_some_and(|(last, _)| waiting.number <= last));
            lane.fifo.range(from..).map(|waiting| {
                let is_over = lane.done.contains(waiting.offset);
                ((waiting.number, 0), (!is_over).then(|| waiting.clone()))
            })
        })
    }

    /// Messages that are in the topics, and not in memory yet.
    fn unlisted(&self, state: PendingState) -> u64 {
        let unread = |kind: LaneKind| -> u64 {
            self.lanes.iter().filter(|lane| lane.kind == kind).map(crate::backlog::lane::Lane::unread).sum()
        };
        match state {
            PendingState::Ready => unread(LaneKind::Source),
            PendingState::Delayed => {
                unread(LaneKind::Tier) + (self.copying.len() + self.put_back.len()) as u64
            }
            PendingState::Held | PendingState::KeyWait | PendingState::InFlight => 0,
        }
    }

    /// Hands one message out to be settled, whatever it waits for.
    pub(crate) fn claim_pending(&mut self, at: &PendingAt) -> Result<Claimed, EngineError> {
        if self.claim != Claim::Ours || self.closed || self.twins.is_reading() || self.unsure.is_some() {
            return Err(EngineError::Unavailable("the partitions are being assigned".to_owned()));
        }
        let found = self.take_fresh(at.number).or_else(|| self.take_waiting(at.number));
        let Some((lane, waiting)) = found else { return Ok(Claimed::NotThere) };
        let key = self.is_ordered().then(|| hash_of(&waiting.message)).flatten();
        let bytes = waiting.bytes();
        let arrived = waiting.arrived_at(self.now);
        let Waiting { offset, number, message, meta, history, due, carried, .. } = waiting;
        let origin = Some(self.source_place(number, &carried));
        let (epoch, now) = (self.epoch, self.now);
        let place = &mut self.lanes[lane];
        if place.kind == LaneKind::Source && place.room.free(1, bytes) {
            self.mailbox.call_reader();
        }
        let suspect = place.suspected.of(offset, due, now).map(Box::new);
        // It does not run, so nothing is said of it to who comes after this process.
        place.out.insert(offset, Out { carried, key, waits: true });
        let receipt = Receipt { lane: lane as u32, epoch, seq: number, at: offset };
        let doomed = None;
        let taken = Delivery { receipt, message, meta, history, due, arrived, origin, doomed, suspect };
        Ok(Claimed::Taken(Box::new(taken)))
    }

    /// A message that was never started: the place of its record is its number.
    fn take_fresh(&mut self, number: u64) -> Option<(usize, Waiting)> {
        let origin = origin_of(number, &self.source);
        let lane = *self.by_name.get(&(origin.topic, origin.partition))?;
        let fifo = &self.lanes[lane].fifo;
        let index = fifo.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        // One that is over is dropped when its turn comes.
        if self.lanes[lane].done.contains(self.lanes[lane].fifo[index].offset) {
            return None;
        }
        self.lanes[lane].fifo.remove(index).map(|waiting| (lane, waiting))
    }

    /// A message that waits for its time or its key.
    fn take_waiting(&mut self, number: u64) -> Option<(usize, Waiting)> {
        if let Some((lane, waiting)) = self.ahead.take(number) {
            let is_over = self.lanes[lane].done.contains(waiting.offset);
            return (!is_over).then_some((lane, waiting));
        }
        let (lane, waiting) = self.keys.take_blocked(number)?;
        if self.lanes[lane].done.contains(waiting.offset) {
            self.pass_over(lane, &waiting, hash_of(&waiting.message));
            return None;
        }
        Some((lane, waiting))
    }
}

type Listing<'a> = Box<dyn Iterator<Item = ((u64, u64), Option<Waiting>)> + 'a>;

/// A page of what is listed; `None` stands for one that was looked at and is not meant.
fn page(
    state: PendingState,
    after: Option<(u64, u64)>,
    limit: usize,
    look_max: usize,
    waiting: Listing<'_>,
) -> PendingScan {
    let mut scan = PendingScan { next: after, ..PendingScan::default() };
    let mut bytes = 0;
    for (key, waiting) in waiting {
        if scan.messages.len() >= limit || bytes >= SCAN_BYTES || scan.scanned >= look_max as u64 {
            return scan;
        }
        scan.scanned += 1;
        scan.next = Some(key);
        if let Some(Waiting { number, message, meta, history, due, .. }) = waiting {
            let at = PendingAt { number, state, key };
            let found = PendingMessage { at, message, meta, history, due };
            bytes += found.size();
            scan.messages.push(found);
        }
    }
    PendingScan { next: None, ..scan }
}
