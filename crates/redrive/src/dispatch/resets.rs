//! Messages whose receiver closed the connection while it handled them: perhaps it died of one of them.
//!
//! That says nothing about this process, and nothing about any other place. So these messages run one at a time among
//! themselves at the place they go to, and everybody else goes on: other places, other pipelines, and, but for a few
//! seconds now and then, the place itself.

mod evidence;
mod notices;
mod turns;

use std::time::Duration;

use redrive_core::{Meta, Policy, Time, suspects};

use self::evidence::{Evidence, Finding, Reset};
use self::notices::Notices;
use self::turns::{Turns, Wants};
use crate::engine::Delivery;

/// The place of messages that all go to the same one.
pub(super) const ONE_PLACE: u64 = 0;

/// A call whose receiver closed the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    pub(super) message: u64,
    pub(super) place: u64,
    pub(super) in_turn: bool,
    /// Other calls under way at this place.
    pub(super) others: usize,
}

/// What is to be made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blame {
    /// How often this message is to blame, if it is looked at.
    pub(super) times: Option<u32>,
    /// Whether the receiver may have died of another message.
    pub(super) is_shared: bool,
    pub(super) is_convicted: bool,
    /// Whether it is to be told by itself.
    pub(super) is_told: bool,
}

/// A delivery that may start now.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) delivery: Delivery,
    /// Where it has its turn; `None` if it waited for too long.
    pub(super) place: Option<u64>,
}

/// What is shown of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ResetFigures {
    /// Messages that run one at a time at their place.
    pub apart: u64,
    /// Connections that receivers closed in the last minute or two.
    pub lately: u64,
}

#[derive(Debug, Default)]
pub(super) struct ResetSuspects {
    evidence: Evidence,
    turns: Turns<Delivery>,
    notices: Notices,
}

impl ResetSuspects {
    /// Whether no receiver has closed a connection lately, so that there is nothing to ask.
    pub(super) fn is_idle(&self) -> bool {
        self.evidence.is_empty() && self.turns.len() == 0
    }

    /// Lets a delivery pass, or keeps it until it has its turn.
    pub(super) fn admit(&mut self, delivery: Delivery, policy: &Policy, now: Time) -> Option<Delivery> {
        let Some(suspicion) = self.evidence.suspicion(delivery.receipt.number()) else {
            return Some(delivery);
        };
        let convicts = suspects::convicted_at(policy.crash_threshold());
        let is_last = suspicion.times + 1 >= convicts || is_last_attempt(&delivery.meta, policy);
        let wants = if is_last { Wants::Alone } else { Wants::Turn };
        self.turns.wait(suspicion.place, delivery, wants, now).err()
    }

    /// The next delivery that may start, given how many calls are under way at a place.
    pub(super) fn next(&mut self, under_way: impl Fn(u64) -> usize, now: Time) -> Option<Turn> {
        let next = self.turns.next(under_way, now)?;
        Some(Turn { delivery: next.who, place: next.turn })
    }

    /// Whether a place is kept free for one of them.
    pub(super) fn is_reserved(&self, place: u64) -> bool {
        self.turns.is_reserved(place)
    }

    /// The one that had its turn has come to an end, or did not start.
    pub(super) fn turn_over(&mut self, place: u64, now: Time) {
        self.turns.over(place, now);
    }

    /// A place has answered a message.
    pub(super) fn answered(&mut self, message: u64, place: u64, now: Time) {
        self.evidence.answered(message, place, now);
    }

    /// A message is over.
    pub(super) fn forget(&mut self, message: u64) {
        self.evidence.forget(message);
    }

    pub(super) fn closed(&mut self, closed: Closed, policy: &Policy, now: Time) -> Blame {
        let Closed { message, place, in_turn, others } = closed;
        let convicts = suspects::convicted_at(policy.crash_threshold());
        let reset = Reset { message, place, in_turn, beside_others: others > 0, convicts };
        let Finding { times, is_shared, is_convicted } = self.evidence.broke_off(reset, now);
        let is_told = self.notices.closed(now) && !is_convicted;
        Blame { times, is_shared, is_convicted, is_told }
    }

    /// Time has passed. How many connections were closed in so long without being told, once that is to be said.
    pub(super) fn tick(&mut self, now: Time) -> Option<(u64, Duration)> {
        self.evidence.tick(now);
        self.turns.tick(now);
        self.notices.tick(now).map(|untold| (untold, notices::WITHIN))
    }

    /// Places that others may use again since the last call.
    pub(super) fn freed(&mut self) -> impl Iterator<Item = u64> + use<> {
        self.turns.freed()
    }

    /// When time alone changes something, given whether anybody could start.
    pub(super) fn next_wake(&self, can_start: bool) -> Option<Time> {
        self.turns.next_wake(can_start)
    }

    /// All that wait, to be given back.
    pub(super) fn take_waiting(&mut self, now: Time) -> Vec<Delivery> {
        self.turns.take_all(now)
    }

    pub(super) fn figures(&self) -> ResetFigures {
        ResetFigures { apart: self.evidence.len() as u64, lately: self.notices.lately() }
    }
}

/// Whether the next attempt that counts is the last one a message has.
fn is_last_attempt(meta: &Meta, policy: &Policy) -> bool {
    let allowed = policy.attempts_allowed(redrive_core::Class::Transient, meta.replays);
    meta.attempts.saturating_add(1) >= allowed
}
