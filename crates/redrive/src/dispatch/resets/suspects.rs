//! Messages whose receiver closed the connection while it handled them: perhaps one of them kills it.

use std::time::Duration;

use redrive_core::{Meta, Policy, Time, suspects};

use super::evidence::{Evidence, Finding, Reset};
use super::notices::{Notices, WITHIN};
use super::turns::{Turns, Wants};
use crate::engine::Delivery;

/// The key of the endpoint of a sink that has only one.
pub(in crate::dispatch) const SOLE_ENDPOINT: u64 = 0;

/// A call whose receiver closed the connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::dispatch) struct Closed {
    pub(in crate::dispatch) message: u64,
    pub(in crate::dispatch) endpoint: u64,
    pub(in crate::dispatch) in_turn: bool,
    /// Other calls in flight at this endpoint.
    pub(in crate::dispatch) others: usize,
}

/// What a closed connection says about its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dispatch) struct Attribution {
    /// Resets attributed to this message; `None` if it is not tracked.
    pub(in crate::dispatch) times: Option<u32>,
    /// Whether the receiver may have died of another message.
    pub(in crate::dispatch) is_shared: bool,
    pub(in crate::dispatch) is_quarantined: bool,
    /// Whether to log it on a line of its own.
    pub(in crate::dispatch) is_logged: bool,
}

/// A delivery that may start now.
#[derive(Debug)]
pub(in crate::dispatch) struct Turn {
    pub(in crate::dispatch) delivery: Delivery,
    /// The endpoint at which it has its turn; `None` if it waited too long for one.
    pub(in crate::dispatch) endpoint: Option<u64>,
}

/// Figures for status and API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ResetFigures {
    /// Messages that currently run one at a time at their endpoint.
    pub apart: u64,
    /// Connections that receivers closed in the last one to two minutes.
    pub lately: u64,
}

#[derive(Debug, Default)]
pub(in crate::dispatch) struct ResetSuspects {
    evidence: Evidence,
    turns: Turns<Delivery>,
    notices: Notices,
}

impl ResetSuspects {
    /// Whether no receiver has closed a connection lately: the fast path.
    pub(in crate::dispatch) fn is_idle(&self) -> bool {
        self.evidence.is_empty() && self.turns.len() == 0
    }

    /// Returns the delivery if it may start, or queues it until its turn.
    pub(in crate::dispatch) fn admit(
        &mut self,
        delivery: Delivery,
        policy: &Policy,
        now: Time,
    ) -> Option<Delivery> {
        let Some(suspicion) = self.evidence.suspicion(delivery.receipt.number()) else {
            return Some(delivery);
        };
        let quarantines_at = suspects::quarantined_at(policy.crash_threshold());
        let is_last = suspicion.times + 1 >= quarantines_at || is_last_attempt(&delivery.meta, policy);
        let wants = if is_last { Wants::Alone } else { Wants::Turn };
        self.turns.wait(suspicion.endpoint, delivery, wants, now).err()
    }

    /// The next delivery that may start, given the number of calls in flight at an endpoint.
    pub(in crate::dispatch) fn next(&mut self, under_way: impl Fn(u64) -> usize, now: Time) -> Option<Turn> {
        let next = self.turns.next(under_way, now)?;
        Some(Turn { delivery: next.who, endpoint: next.turn })
    }

    /// Whether an endpoint is reserved for a suspect.
    pub(in crate::dispatch) fn is_reserved(&self, endpoint: u64) -> bool {
        self.turns.is_reserved(endpoint)
    }

    /// The endpoints that are reserved for a suspect.
    pub(in crate::dispatch) fn reserved(&self) -> impl Iterator<Item = u64> {
        self.turns.reserved()
    }

    /// The suspect whose turn it was has ended, or did not start.
    pub(in crate::dispatch) fn turn_over(&mut self, endpoint: u64, now: Time) {
        self.turns.over(endpoint, now);
    }

    /// An endpoint answered a message.
    pub(in crate::dispatch) fn answered(&mut self, message: u64, endpoint: u64, now: Time) {
        self.evidence.answered(message, endpoint, now);
    }

    /// A message is terminal.
    pub(in crate::dispatch) fn forget(&mut self, message: u64) {
        self.evidence.forget(message);
    }

    pub(in crate::dispatch) fn closed(&mut self, closed: Closed, policy: &Policy, now: Time) -> Attribution {
        let Closed { message, endpoint, in_turn, others } = closed;
        let quarantines_at = suspects::quarantined_at(policy.crash_threshold());
        let reset = Reset { message, endpoint, in_turn, beside_others: others > 0, quarantines_at };
        let Finding { times, is_shared, is_quarantined } = self.evidence.broke_off(reset, now);
        let is_logged = self.notices.closed(now) && !is_quarantined;
        Attribution { times, is_shared, is_quarantined, is_logged }
    }

    /// Removes old entries. Returns the number of resets to log as a summary, with the span they fell into.
    pub(in crate::dispatch) fn tick(&mut self, now: Time) -> Option<(u64, Duration)> {
        self.evidence.tick(now);
        self.turns.tick(now);
        self.notices.tick(now).map(|more| (more, WITHIN))
    }

    /// Endpoints whose reservation ended since the last call.
    pub(in crate::dispatch) fn freed(&mut self) -> impl Iterator<Item = u64> + use<> {
        self.turns.freed()
    }

    /// When time alone changes something, given whether any message could start.
    pub(in crate::dispatch) fn next_wake(&self, can_start: bool) -> Option<Time> {
        self.turns.next_wake(can_start)
    }

    /// Removes all waiting deliveries.
    pub(in crate::dispatch) fn take_waiting(&mut self, now: Time) -> Vec<Delivery> {
        self.turns.take_all(now)
    }

    pub(in crate::dispatch) fn figures(&self) -> ResetFigures {
        ResetFigures { apart: self.evidence.len() as u64, lately: self.notices.lately() }
    }
}

/// Whether the next counted attempt is the message's last.
fn is_last_attempt(meta: &Meta, policy: &Policy) -> bool {
    let allowed = policy.attempts_allowed(redrive_core::Class::Transient, meta.replays);
    meta.attempts.saturating_add(1) >= allowed
}
