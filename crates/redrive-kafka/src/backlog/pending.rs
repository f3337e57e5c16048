//! Lists the messages that wait in this member's memory, and takes them out by number. Unread messages and those of
//! other members are not visible here.

use redrive::internal::engine::Delivery;
use redrive::internal::engine::letter::SCAN_BYTES;
use redrive::internal::engine::pending::{PendingAt, PendingMessage, PendingScan, PendingState};
use redrive_core::Time;

use super::lane::PartitionLane;
use super::lanes::Lanes;
use super::queue::Backlog;
use crate::record::{WaitingMessage, origin_of};
use crate::topics::LaneKind;

impl Backlog {
    /// Returns a page of waiting messages. `in_transit` counts delayed messages that no topic holds yet.
    pub fn list(
        &self,
        lanes: &Lanes,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
        in_transit: u64,
    ) -> PendingScan {
        let list = |waiting: Listing<'_>| page(state, after, limit, look_max, waiting);
        let scan = match state {
            PendingState::Ready => list(Box::new(fresh_after(lanes, after))),
            PendingState::Held | PendingState::Delayed => {
                let timed = self.ahead.after(after).map(|(key, waiting)| {
                    (key, waiting.filter(|waiting| PendingState::timed(waiting.meta.deferred) == state))
                });
                list(Box::new(timed))
            }
            PendingState::KeyWait => {
                let waiting = self.keys.waiting_after(after, look_max + 1).into_iter();
                list(Box::new(waiting.map(|(key, waiting)| (key, Some(waiting.clone())))))
            }
            PendingState::InFlight => PendingScan::default(),
        };
        PendingScan { unlisted: unlisted(lanes, state, in_transit), ..scan }
    }

    /// Hands out one message to be settled, whatever it waits for.
    pub fn claim(&mut self, lanes: &mut Lanes, at: &PendingAt, now: Time) -> Option<Delivery> {
        let found = self.take_fresh(lanes, at.number).or_else(|| self.take_waiting(lanes, at.number));
        let (lane, waiting) = found?;
        let key = self.keys.key_of(&waiting.message);
        Some(self.deliver(lanes, lane, waiting, key, now, true))
    }

    /// Takes out a message that was never started: its number tells where its record is.
    fn take_fresh(&self, lanes: &mut Lanes, number: u64) -> Option<(usize, WaitingMessage)> {
        let origin = origin_of(number, &self.source);
        let at = lanes.find(&origin.topic, origin.partition)?;
        let lane = &mut lanes[at];
        let index = lane.fifo.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        // A record that is done already is dropped when its turn comes.
        if lane.done.contains(lane.fifo[index].offset) {
            return None;
        }
        lane.fifo.remove(index).map(|waiting| (at, waiting))
    }

    /// Takes out a message that waits for its due time or its key.
    fn take_waiting(&mut self, lanes: &Lanes, number: u64) -> Option<(usize, WaitingMessage)> {
        if let Some((lane, waiting)) = self.ahead.take(number) {
            let is_done = lanes[lane].done.contains(waiting.offset);
            return (!is_done).then_some((lane, waiting));
        }
        let (lane, waiting) = self.keys.take_waiting(number)?;
        if lanes[lane].done.contains(waiting.offset) {
            let key = self.keys.key_of(&waiting.message);
            self.drop_done(lanes, lane, &waiting, key);
            return None;
        }
        Some((lane, waiting))
    }
}

/// Returns fresh messages in source order.
fn fresh_after(
    lanes: &Lanes,
    after: Option<(u64, u64)>,
) -> impl Iterator<Item = ((u64, u64), Option<WaitingMessage>)> {
    let mut sources: Vec<_> = lanes.sources().collect();
    sources.sort_unstable_by_key(|lane| lane.partition);
    sources.into_iter().flat_map(move |lane| {
        let from = lane.fifo.partition_point(|waiting| after.is_some_and(|(last, _)| waiting.number <= last));
        lane.fifo.range(from..).map(|waiting| {
            let is_done = lane.done.contains(waiting.offset);
            ((waiting.number, 0), (!is_done).then(|| waiting.clone()))
        })
    })
}

/// Counts messages that are in the topics but not in memory yet.
fn unlisted(lanes: &Lanes, state: PendingState, in_transit: u64) -> u64 {
    let unread = |kind: LaneKind| -> u64 {
        lanes.iter().filter(|lane| lane.kind == kind).map(PartitionLane::unread).sum()
    };
    match state {
        PendingState::Ready => unread(LaneKind::Source),
        PendingState::Delayed => unread(LaneKind::Tier) + in_transit,
        PendingState::Held | PendingState::KeyWait | PendingState::InFlight => 0,
    }
}

type Listing<'a> = Box<dyn Iterator<Item = ((u64, u64), Option<WaitingMessage>)> + 'a>;

/// Builds a page of matching messages; `None` is an entry that was scanned and does not match.
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
        if let Some(WaitingMessage { number, message, meta, history, due, .. }) = waiting {
            let at = PendingAt { number, state, key };
            let found = PendingMessage { at, message, meta, history, due };
            bytes += found.size();
            scan.messages.push(found);
        }
    }
    PendingScan { next: None, ..scan }
}
