//! The types that cross the seam: deliveries, verdicts, and the events of an engine.

use redrive_core::{Message, Meta, Reason, Time};

use crate::engine::history::{Attempt, History};
use crate::engine::position::SourcePosition;

/// Identifies a delivery to the engine that handed it out. Opaque to everyone else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The partition, on engines that have them.
    pub lane: u32,
    /// How often the lane was assigned to this process; a receipt of an older epoch settles nothing.
    pub epoch: u32,
    /// The message's number in its pipeline. It is the same for all hand-outs, in whatever lane.
    pub seq: u64,
    /// Where the engine stores it.
    pub at: u64,
}

impl Receipt {
    /// Identifies the message across hand-outs: a retry may come from another lane than the first attempt.
    pub const fn number(&self) -> u64 {
        self.seq
    }
}

/// A message handed out for an attempt, with the history of earlier ones.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Identifies it to the engine.
    pub receipt: Receipt,
    /// The message.
    pub message: Message,
    /// The summary of its attempts.
    pub meta: Meta,
    /// Its attempts.
    pub history: History,
    /// When it was due; `None` for a fresh message.
    pub due: Option<Time>,
    /// When this process first received it, if later than its creation.
    pub arrived: Option<Time>,
    /// The record it came from, for engines that read a topic.
    pub origin: Option<SourcePosition>,
    /// Set if it must not be started, but settled as dead for this reason: its bytes are damaged, or its key is
    /// blocked.
    pub doomed: Option<Reason>,
    /// Set if it was running when a process died: it must be announced and then run alone.
    pub suspect: Option<Box<Suspect>>,
}

/// What an engine knows about a delivery that may have killed the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Unclean ends while it ran. The first may be the fault of anything else that ran then; later ones are its own,
    /// because it was announced and ran alone.
    pub crashes: u32,
    /// When the first unclean end was.
    pub first_crash: Option<Time>,
    /// When the last unclean end was.
    pub last_crash: Option<Time>,
}

/// Whether the engine allows a suspect to run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// It may run: the next process will know that it ran.
    Yes,
    /// The announcement is still being written. Ask again after the engine's next wake-up.
    NotYet,
    /// This process does not own the message any more.
    Gone,
}

/// What to do with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered.
    Done,
    /// Retry it at `due`, and store `meta`.
    Retry {
        /// The earliest start.
        due: Time,
        /// The updated summary of its attempts.
        meta: Meta,
    },
    /// Make it a dead letter.
    Dead {
        /// Why.
        reason: Reason,
        /// The updated summary of its attempts.
        meta: Meta,
        /// When it was given up.
        at: Time,
    },
    /// Return it to where it came from, with nothing counted: it was not started, or its result does not matter.
    Release,
}

impl Verdict {
    /// Whether it proves that the process survived the message. A released message may not have run, and a quarantined
    /// pill has killed the process.
    pub const fn clears(&self) -> bool {
        !matches!(self, Self::Release | Self::Dead { reason: Reason::PoisonPill, .. })
    }
}

/// Divides `room` places between due and fresh messages: half and half, with the odd place alternating. Places that one
/// side cannot fill go to the other.
pub fn share(room: usize, due: usize, fresh: usize, odd_to_due: bool) -> (usize, usize) {
    let half = room / 2 + usize::from(odd_to_due && !room.is_multiple_of(2));
    let due_places = due.min(half.max(room.saturating_sub(fresh)));
    (due_places, fresh.min(room - due_places))
}

/// A verdict on its way to the store, with the record of the attempt that led to it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// What was handed out.
    pub delivery: Delivery,
    /// What to do with it.
    pub verdict: Verdict,
    /// The attempt that led to it.
    pub attempt: Option<Attempt>,
}

/// Names a batch given to `Deliver::settle`. Tickets become durable in order, except for those behind one that cannot
/// be stored for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What an engine reports to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This batch and all earlier ones are durable.
    Durable(Ticket),
    /// This batch is durable, but an earlier one is not: some of that one cannot be stored for now.
    DurableAlone(Ticket),
    /// Of the `all` partitions of the pipeline, this process now owns `owned`; other processes have the rest. An engine
    /// that owns all of them need not report it.
    Share {
        /// Partitions owned by this process.
        owned: u32,
        /// All partitions.
        all: u32,
    },
}

impl Event {
    /// The batch that became durable, if the event is about one.
    pub const fn durable(self) -> Option<Ticket> {
        if let Self::Durable(ticket) = self { Some(ticket) } else { None }
    }
}

/// When a change of letters was requested, and by whom. An engine whose records others read stores the name in them;
/// the action log is kept above the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnBehalf<'a> {
    /// When it was requested.
    pub at: Time,
    /// Who requested it, if known.
    pub by: Option<&'a str>,
}

impl From<Time> for OnBehalf<'_> {
    fn from(at: Time) -> Self {
        Self { at, by: None }
    }
}

/// Whether an engine hands out deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeGate {
    /// Deliveries are handed out.
    Open,
    /// Nothing is taken and nothing is rewritten.
    Shut,
}

impl TakeGate {
    /// The gate that goes with a pause: shut if paused.
    pub const fn of_pause(paused: bool) -> Self {
        if paused { Self::Shut } else { Self::Open }
    }

    /// Whether the gate is shut.
    pub const fn is_shut(self) -> bool {
        matches!(self, Self::Shut)
    }
}

/// The result of a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// It is handed out to the caller, to be settled without being started. It is not recorded as started.
    Taken(Box<Delivery>),
    /// It is being delivered, or its verdict is being written.
    InFlight,
    /// It is not there any more; look it up again.
    NotThere,
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn fresh_and_due_share_the_room_and_waste_none() {
        assert_eq!(share(10, 100, 100, false), (5, 5));
        assert_eq!(share(10, 2, 100, false), (2, 8));
        assert_eq!(share(10, 100, 3, false), (7, 3));
        assert_eq!(share(10, 1, 1, true), (1, 1));
        assert_eq!(share(0, 5, 5, true), (0, 0));
    }

    #[test]
    fn a_single_place_goes_to_each_side_by_turns() {
        assert_eq!(share(1, 9, 9, true), (1, 0));
        assert_eq!(share(1, 9, 9, false), (0, 1));
    }
}
