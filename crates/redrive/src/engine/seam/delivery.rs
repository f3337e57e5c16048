//! What passes the seam: deliveries on the way out, verdicts on the way back, and what an engine says of them.

use redrive_core::{Message, Meta, Reason, Time};

use crate::engine::history::{Attempt, History};
use crate::engine::position::SourcePosition;

/// Names one delivery towards the engine that handed it out. Opaque to all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// A partition, where the engine has them.
    pub lane: u32,
    /// Counts the times the lane was gained; a receipt of an older epoch settles nothing.
    pub epoch: u32,
    /// The message's number in its pipeline: the same whatever lane it waits in by now.
    pub seq: u64,
    /// Where the engine keeps it.
    pub at: u64,
}

impl Receipt {
    /// Tells messages apart, whatever hand-out this is: a retry may come from another lane than the first attempt.
    pub const fn number(&self) -> u64 {
        self.seq
    }
}

/// A message handed out for an attempt, with what is known of earlier ones.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Names it towards the engine.
    pub receipt: Receipt,
    /// The message.
    pub message: Message,
    /// What is known of its attempts.
    pub meta: Meta,
    /// Its attempts.
    pub history: History,
    /// When it was due; `None` for a fresh message.
    pub due: Option<Time>,
    /// When the process first had it, if that was later than its creation.
    pub arrived: Option<Time>,
    /// The record it came from, for engines that read a topic.
    pub origin: Option<SourcePosition>,
    /// Set if it must not be started but settled as dead for this reason: its bytes are damaged, or its key is blocked.
    pub doomed: Option<Reason>,
    /// Set if it was running when a process died: it runs alone, and is announced before.
    pub suspect: Option<Box<Suspect>>,
}

/// What an engine knows of a delivery that may have killed the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Unclean ends while it ran. The first one it may have shared with everything else that ran then; a further one is
    /// its own, since it was announced before it ran.
    pub crashes: u32,
    /// The first unclean end.
    pub first_crash: Option<Time>,
    /// The last unclean end.
    pub last_crash: Option<Time>,
}

/// Whether a suspect may run now, as far as its engine is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The next process will know that it ran.
    Yes,
    /// That is being written. Ask again when the engine has called.
    NotYet,
    /// It is not ours any more.
    Gone,
}

/// What shall become of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered.
    Done,
    /// Wait until `due`, remembered as `meta`.
    Retry {
        /// Not before this time.
        due: Time,
        /// What is known of its attempts now.
        meta: Meta,
    },
    /// It is a dead letter.
    Dead {
        /// Why.
        reason: Reason,
        /// What is known of its attempts now.
        meta: Meta,
        /// When it was given up.
        at: Time,
    },
    /// It was not started, or its end does not matter: back to where it came from, nothing counted.
    Release,
}

impl Verdict {
    /// Whether it says that the process survived the message: it ran and came back, or ended without running. A pill that
    /// is quarantined has not.
    pub const fn clears(&self) -> bool {
        !matches!(self, Self::Release | Self::Dead { reason: Reason::PoisonPill, .. })
    }
}

/// How many of `room` places go to due messages and how many to fresh ones, when both could fill it: half and half, the
/// odd place by turns. What one side leaves over, the other gets.
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
    /// What shall become of it.
    pub verdict: Verdict,
    /// The attempt that led to it.
    pub attempt: Option<Attempt>,
}

/// Names a batch given to `Deliver::settle`. Tickets become durable in the order they were given, except for those behind
/// one that cannot be stored for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What an engine has to say between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This batch and all before it are durable.
    Durable(Ticket),
    /// This batch is durable, and one before it is not: something of that one cannot be stored for now.
    DurableAlone(Ticket),
    /// Of the `all` parts of the pipeline's work, `owned` are done here from now on; others have the rest. An engine that
    /// has all of it need not say so.
    Share {
        /// Parts that are done here.
        owned: u32,
        /// All parts.
        all: u32,
    },
}

impl Event {
    /// The batch that is durable, if it is about one.
    pub const fn durable(self) -> Option<Ticket> {
        if let Self::Durable(ticket) = self { Some(ticket) } else { None }
    }
}

/// When somebody asks for a change of letters, and who. An engine whose records others read writes the name beside them; the
/// log of actions is kept above the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnBehalf<'a> {
    /// When it was asked for.
    pub at: Time,
    /// Who asks, where that is known.
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
    /// The gate of a pipeline that is paused, or is not.
    pub const fn of_pause(paused: bool) -> Self {
        if paused { Self::Shut } else { Self::Open }
    }

    /// Whether nothing is handed out.
    pub const fn is_shut(self) -> bool {
        matches!(self, Self::Shut)
    }
}

/// What becomes of a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// It is handed out to the caller, to be settled and not to be started. Nothing is noted as started.
    Taken(Box<Delivery>),
    /// It is being delivered, or its verdict is being written.
    InFlight,
    /// It is not there any more; look again.
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
