//! The handler calls that run or wait in place: a table of slots, each with one delivery and its permit.

use std::collections::BTreeSet;

use redrive_core::Time;
use redrive_core::endpoints::Endpoint;

use super::permits::Permit;
use super::resets::SOLE_ENDPOINT;
use crate::engine::Delivery;

/// Identifies a call. The round of a slot changes with each call, so a late answer cannot settle another message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    slot: u32,
    round: u32,
}

#[cfg(test)]
impl CallId {
    pub(crate) const fn of_slot(slot: u32) -> Self {
        Self { slot, round: 0 }
    }
}

/// A delivery whose handler was started, or which waits in place for its next attempt.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) delivery: Delivery,
    pub(super) started: Time,
    /// Whether attempts were made that the store does not know of; then the call must not simply be released.
    pub(super) ahead_of_store: bool,
    /// Whether it is a probe of the breaker.
    pub(super) is_probe: bool,
    /// Whether it may have killed the process before.
    pub(super) is_suspect: bool,
    /// Its endpoint, if the sink has more than one.
    pub(super) to: Option<Endpoint>,
    /// The endpoint at which it has its turn as a suspect of resets.
    pub(super) turn: Option<u64>,
    /// Held as long as the call is in the table.
    pub(super) permit: Permit,
}

impl Call {
    pub(super) fn new(delivery: Delivery, started: Time, permit: Permit) -> Self {
        Self {
            delivery,
            started,
            ahead_of_store: false,
            is_probe: false,
            is_suspect: false,
            to: None,
            turn: None,
            permit,
        }
    }

    /// The endpoint under which its resets are counted.
    pub(super) fn endpoint(&self) -> u64 {
        self.to.map_or(SOLE_ENDPOINT, |to| to.endpoint)
    }
}

/// The result of withdrawing a delivery.
#[derive(Debug)]
pub enum Withdrawn {
    /// It was not running and now belongs to the caller.
    Taken(Box<Delivery>),
    Running,
    NotHere,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Calls that wait for their next attempt in blocking mode; each keeps its slot and its permit.
    waiting: WaitingCall,
}

#[derive(Debug)]
struct Slot {
    round: u32,
    call: Option<Call>,
}

impl Calls {
    /// Adds a call. The table is bounded by the permits, since each call holds one.
    pub(super) fn insert(&mut self, call: Call) -> CallId {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.slots[slot as usize];
            place.call = Some(call);
            return CallId { slot, round: place.round };
        }
        self.slots.push(Slot { round: 0, call: Some(call) });
        CallId { slot: self.slots.len() as u32 - 1, round: 0 }
    }

    /// Removes the call, unless it has already ended.
    pub(super) fn remove(&mut self, id: CallId) -> Option<Call> {
        let place = self.slots.get_mut(id.slot as usize).filter(|place| place.round == id.round)?;
        let call = place.call.take()?;
        place.round = place.round.wrapping_add(1);
        self.free.push(id.slot);
        Some(call)
    }

    /// Removes all calls that run; their late answers are ignored.
    pub(super) fn remove_all(&mut self) -> Vec<Call> {
        let ids: Vec<CallId> =
            (0..).zip(&self.slots).map(|(slot, place)| CallId { slot, round: place.round }).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// All calls, running or waiting.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        (0..).zip(&self.slots).filter_map(|(slot, place)| {
            place.call.as_ref().map(|call| (CallId { slot, round: place.round }, call))
        })
    }

    /// The call that has run for the longest.
    pub(super) fn longest_running(&self) -> Option<(CallId, &Call)> {
        self.iter().filter(|(id, _)| !self.waiting.holds(*id)).min_by_key(|(_, call)| call.started)
    }

    /// Lets a call wait in place until `due`.
    pub(super) fn wait(&mut self, call: Call, due: Time) {
        let id = self.insert(call);
        self.waiting.insert(due, id);
    }

    /// Removes the next waiting call that is due.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Call> {
        while let Some(id) = self.waiting.pop_due(now) {
            if let Some(call) = self.remove(id) {
                return Some(call);
            }
        }
        None
    }

    /// Removes all waiting calls, with their due times.
    pub(super) fn take_waiting(&mut self) -> Vec<(Time, Call)> {
        let waiting = self.waiting.take_all();
        waiting.filter_map(|(due, id)| Some((due, self.remove(id)?))).collect()
    }

    /// When the next waiting call is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.waiting.next_due()
    }

    /// Whether the handler of this message is running.
    pub(super) fn runs(&self, number: u64) -> bool {
        let mut calls = self.iter().filter(|(_, call)| call.delivery.receipt.number() == number);
        calls.any(|(id, _)| !self.waiting.holds(id))
    }

    /// Withdraws the delivery with this number, unless its handler is running.
    pub(super) fn withdraw(&mut self, number: u64) -> Withdrawn {
        let found = self.iter().find(|(_, call)| call.delivery.receipt.number() == number);
        let Some(id) = found.map(|(id, _)| id) else { return Withdrawn::NotHere };
        if !self.waiting.remove(id) {
            return Withdrawn::Running;
        }
        let call = self.remove(id);
        call.map_or(Withdrawn::NotHere, |call| Withdrawn::Taken(Box::new(call.delivery)))
    }

    /// How many handlers are running.
    pub(super) fn running(&self) -> usize {
        self.len() - self.waiting.len()
    }

    /// How many calls wait for their next attempt.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The creation time of the oldest message in the table. Linear in the table.
    pub(super) fn oldest(&self) -> Option<Time> {
        let calls = self.slots.iter().filter_map(|slot| slot.call.as_ref());
        calls.map(|call| call.delivery.meta.created).filter(|created| *created > Time::ZERO).min()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// The calls that wait, by due time. Bounded by the permits, since each call holds one.
#[derive(Debug, Default)]
struct WaitingCall {
    by_due: BTreeSet<(Time, CallId)>,
}

impl WaitingCall {
    fn insert(&mut self, due: Time, call: CallId) {
        self.by_due.insert((due, call));
    }

    /// Removes the next call that is due.
    fn pop_due(&mut self, now: Time) -> Option<CallId> {
        let (_, call) = self.by_due.first().copied().filter(|(due, _)| *due <= now)?;
        self.by_due.pop_first();
        Some(call)
    }

    /// Ends the wait of one call; returns whether it waited.
    fn remove(&mut self, call: CallId) -> bool {
        let found = self.by_due.iter().find(|(_, waiting)| *waiting == call).copied();
        found.is_some_and(|found| self.by_due.remove(&found))
    }

    fn take_all(&mut self) -> impl Iterator<Item = (Time, CallId)> + use<> {
        std::mem::take(&mut self.by_due).into_iter()
    }

    fn next_due(&self) -> Option<Time> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Whether a call waits. Linear.
    fn holds(&self, call: CallId) -> bool {
        self.by_due.iter().any(|(_, waiting)| *waiting == call)
    }

    fn len(&self) -> usize {
        self.by_due.len()
    }
}
