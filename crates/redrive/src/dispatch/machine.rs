//! The state machine of one pipeline.
//!
//! Its caller owns the engine and the handlers and goes round: [`Machine::room`] says how much to take,
//! [`Machine::taken`] which deliveries to start, [`Machine::ended`] hears how they went, [`Machine::batch`] is what to
//! settle, [`Machine::submitted`] and [`Machine::durable`] follow it until it is stored.

use std::collections::VecDeque;
use std::sync::Arc;

use redrive_core::{Message, Meta, Policy, Random, Reason, Time, expired};

use super::calls::{Call, CallId, Calls};
use super::permits::Permits;
use crate::engine::{Delivery, Settlement, Ticket, Verdict};
use crate::failure::Failure;
use crate::settle::{self, Moment};

pub use crate::settle::Views;

/// Verdicts that may wait to become durable; beyond it nothing is taken until the disk has caught up.
pub const UNSETTLED_MAX: usize = 65_536;
/// Of these, what is left for messages that are due: a disk that lags behind a backlog must not make retries late.
pub const UNSETTLED_FOR_DUE: usize = UNSETTLED_MAX / 4;

/// A handler to be called.
#[derive(Debug)]
pub struct Start {
    pub call: CallId,
    pub message: Message,
}

/// How a call ended.
#[derive(Debug)]
pub enum Ended {
    Done,
    Failed(Failure),
    /// It was not started, or was given up before it came to an end.
    Unfinished,
}

/// A message that is a dead letter now, durably, with the failure that led to it as the handler gave it.
#[derive(Debug)]
pub struct Parked {
    pub message: Message,
    pub reason: Reason,
    pub meta: Meta,
    pub failure: Option<Failure>,
}

/// What was decided so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tally {
    pub succeeded: u64,
    pub retried: u64,
    pub dead: u64,
    pub released: u64,
}

/// See the module's docs for the order of calls.
#[derive(Debug)]
pub struct Machine {
    policy: Arc<Policy>,
    permits: Permits,
    calls: Calls,
    batch: Vec<Settlement>,
    batch_parked: Vec<Parked>,
    submitted: VecDeque<Submitted>,
    unsettled: usize,
    stopping: bool,
    tally: Tally,
}

#[derive(Debug)]
struct Submitted {
    ticket: Ticket,
    len: usize,
    parked: Vec<Parked>,
}

impl Machine {
    pub fn new(policy: Arc<Policy>, concurrency: usize) -> Self {
        Self {
            policy,
            permits: Permits::new(concurrency),
            calls: Calls::default(),
            batch: Vec::new(),
            batch_parked: Vec::new(),
            submitted: VecDeque::new(),
            unsettled: 0,
            stopping: false,
            tally: Tally::default(),
        }
    }

    /// How many deliveries may be taken now, of whatever kind.
    pub fn room(&self) -> usize {
        self.room_below(UNSETTLED_MAX - UNSETTLED_FOR_DUE)
    }

    /// How many deliveries may be taken now if they are due.
    pub fn room_for_due(&self) -> usize {
        self.room_below(UNSETTLED_MAX)
    }

    fn room_below(&self, unsettled_max: usize) -> usize {
        if self.stopping {
            return 0;
        }
        self.permits.free().min(unsettled_max.saturating_sub(self.unsettled))
    }

    /// Looks at what was taken: most is to be started, some is settled without a start.
    pub fn taken(&mut self, deliveries: &mut Vec<Delivery>, now: Time, starts: &mut Vec<Start>) {
        for delivery in deliveries.drain(..) {
            if let Some(reason) = delivery.doomed {
                self.settle(settle::dead(delivery, reason, now), None);
            } else if expired(&delivery.meta, now) {
                self.settle(settle::dead(delivery, Reason::TtlExceeded, now), None);
            } else {
                self.start(delivery, now, starts);
            }
        }
    }

    fn start(&mut self, delivery: Delivery, now: Time, starts: &mut Vec<Start>) {
        // An engine that hands out more than there was room for, or while stopping, gets the rest back.
        let Some(permit) = self.permits.take().filter(|_| !self.stopping) else {
            return self.settle(settle::released(delivery), None);
        };
        let message = delivery.message.clone();
        let call = self.calls.insert(Call::new(delivery, now, permit));
        starts.push(Start { call, message });
    }

    /// Hears how a call ended. A call that is not known any more was given up before; its end changes nothing.
    pub fn ended(&mut self, call: CallId, ended: Ended, now: Time, random: Random, views: &Views) {
        let Some(call) = self.calls.remove(call) else { return };
        match ended {
            Ended::Done => self.settle(settle::succeeded(call.delivery), None),
            Ended::Unfinished => self.settle(settle::released(call.delivery), None),
            Ended::Failed(failure) => {
                let moment = Moment { policy: &self.policy, views, now, random };
                let settlement = settle::failed(call.delivery, call.started, &failure, moment);
                self.settle(settlement, Some(failure));
            }
        }
    }

    fn settle(&mut self, settlement: Settlement, failure: Option<Failure>) {
        match settlement.verdict {
            Verdict::Done => self.tally.succeeded += 1,
            Verdict::Retry { .. } => self.tally.retried += 1,
            Verdict::Release => self.tally.released += 1,
            Verdict::Dead { reason, meta, .. } => {
                self.tally.dead += 1;
                let message = settlement.delivery.message.clone();
                self.batch_parked.push(Parked { message, reason, meta, failure });
            }
        }
        self.unsettled += 1;
        self.batch.push(settlement);
    }

    /// The verdicts that are ready to be stored, if there are any.
    pub fn batch(&mut self) -> Option<Vec<Settlement>> {
        if self.batch.is_empty() {
            return None;
        }
        // The next batch is probably of the same size.
        let next = Vec::with_capacity(self.batch.len());
        Some(std::mem::replace(&mut self.batch, next))
    }

    /// The last batch was given to the engine under `ticket`.
    pub fn submitted(&mut self, ticket: Ticket, len: usize) {
        let parked = std::mem::take(&mut self.batch_parked);
        self.submitted.push_back(Submitted { ticket, len, parked });
    }

    /// The batch of `ticket` and all before it are stored; what became a dead letter by them is appended to `parked`.
    pub fn durable(&mut self, ticket: Ticket, parked: &mut Vec<Parked>) {
        while let Some(mut first) = self.submitted.pop_front_if(|first| first.ticket <= ticket) {
            self.unsettled -= first.len;
            parked.append(&mut first.parked);
        }
    }

    /// Takes nothing from now on; what runs may finish.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Gives up what still runs: it is released, nothing is counted. Returns how many calls that were.
    pub fn give_up(&mut self) -> usize {
        self.stop();
        let calls = self.calls.remove_all();
        let given_up = calls.len();
        for call in calls {
            self.settle(settle::released(call.delivery), None);
        }
        given_up
    }

    /// How many handlers run now.
    pub fn running(&self) -> usize {
        self.calls.len()
    }

    /// Whether nothing runs and nothing waits to become durable.
    pub fn is_at_rest(&self) -> bool {
        self.running() == 0 && self.unsettled == 0
    }

    /// When time alone brings work, given what the engine says of its delays.
    pub fn next_wake(&self, next_due: Option<Time>) -> Option<Time> {
        next_due.filter(|_| self.room_for_due() > 0)
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }
}
