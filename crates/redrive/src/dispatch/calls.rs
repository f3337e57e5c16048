//! The handler calls that run now or wait in place: a table of slots, each with one delivery and the permit it runs on.

use redrive_core::Time;
use redrive_core::endpoints::Endpoint;

use super::permits::Permit;
use crate::engine::Delivery;

/// Names one call. A number is not used twice for the same slot, so a late answer cannot settle somebody else's message.
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

#[cfg(test)]
impl CallId {
    /// One that names nothing in particular.
    pub(crate) fn any() -> Self {
        Self { slot: 0, round: 0 }
    }
}

/// A delivery whose handler was started, or which waits in place for its next start.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) delivery: Delivery,
    pub(super) started: Time,
    /// Whether attempts were made that the store does not know of: then it must not go back as if nothing had happened.
    pub(super) ahead_of_store: bool,
    /// Whether the breaker asks by it how the sink is.
    pub(super) is_probe: bool,
    /// Whether it may have killed the process before.
    pub(super) is_suspect: bool,
    /// Where it goes, if the sink has more than one endpoint.
    pub(super) to: Option<Endpoint>,
    /// The endpoint at which it has its turn among messages with resets.
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
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    round: u32,
    call: Option<Call>,
}

impl Calls {
    /// Bounded by the permits: a call holds one.
    pub(super) fn insert(&mut self, call: Call) -> CallId {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.slots[slot as usize];
            place.call = Some(call);
            return CallId { slot, round: place.round };
        }
        self.slots.push(Slot { round: 0, call: Some(call) });
        CallId { slot: self.slots.len() as u32 - 1, round: 0 }
    }

    /// The call, if it has not ended before.
    pub(super) fn remove(&mut self, id: CallId) -> Option<Call> {
        let place = self.slots.get_mut(id.slot as usize).filter(|place| place.round == id.round)?;
        let call = place.call.take()?;
        place.round = place.round.wrapping_add(1);
        self.free.push(id.slot);
        Some(call)
    }

    /// All calls that run; their late answers will find nothing.
    pub(super) fn remove_all(&mut self) -> Vec<Call> {
        let ids: Vec<CallId> =
            (0..).zip(&self.slots).map(|(slot, place)| CallId { slot, round: place.round }).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// All calls.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        (0..).zip(&self.slots).filter_map(|(slot, place)| {
            place.call.as_ref().map(|call| (CallId { slot, round: place.round }, call))
        })
    }

    /// The call that has run for the longest, among those that `runs` says do.
    pub(super) fn longest(&self, runs: impl Fn(CallId) -> bool) -> Option<(CallId, &Call)> {
        let calls = (0..).zip(&self.slots).filter_map(|(slot, place)| {
            let id = CallId { slot, round: place.round };
            place.call.as_ref().filter(|_| runs(id)).map(|call| (id, call))
        });
        calls.min_by_key(|(_, call)| call.started)
    }

    /// When the oldest message in the table was made. Looks at all of them.
    pub(super) fn oldest(&self) -> Option<Time> {
        let calls = self.slots.iter().filter_map(|slot| slot.call.as_ref());
        calls.map(|call| call.delivery.meta.created).filter(|created| *created > Time::ZERO).min()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
