//! An independent record of every message: what was promised, what was started, what became durable.
//!
//! It observes what passes between the machine and the engine, and never asks either of them.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::{Class, Health, Message, Meta, Reason, Time};

use super::downstream::{Fate, Reply, SimulatedAnswer};
use crate::engine::{Delivery, LetterState, Settlement, Ticket, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Waiting,
    InFlight,
    Done,
    Letter(LetterState),
}

/// One accepted message. Two of them may share a message id.
#[derive(Clone, Debug)]
pub struct Record {
    pub message: Message,
    pub fate: Fate,
    pub state: State,
    pub meta: Meta,
    pub due: Option<Time>,
    /// Some take found it due; the clock may have been set back since.
    pub came_due: bool,
    /// It certainly is in its key line: from the start, or since it was started or replayed.
    pub in_line: bool,
    /// The running call, or the last one until its verdict is durable.
    pub call: Option<CallRecord>,
    pub doomed: Option<Reason>,
    /// Given to the engine and not yet reported durable.
    pub given: Option<(Ticket, Verdict, bool)>,
    /// Calls since the last replay, and how many of them ended in a durable failure.
    pub calls: u32,
    pub failures: u32,
    /// Calls whose outcome was lost, because the process died or abandoned them.
    pub calls_lost: u32,
    /// How often it crashed the process since its last replay, and how often the process crashed while it ran alone.
    pub kills: u32,
    pub died_alone: u32,
    pub replays: u32,
    pub jobs: BTreeSet<u64>,
    /// Its effect may have happened although no answer arrived.
    pub unacknowledged: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct CallRecord {
    pub answer: SimulatedAnswer,
    /// What the machine was told, and when by its clock; `None` while the call runs.
    pub reply: Option<(CallReply, Time)>,
    pub health: Health,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallReply {
    Reply(Reply),
    Unfinished,
}

#[derive(Debug, Default)]
pub struct Witness {
    pub records: BTreeMap<u64, Record>,
    pub gated: bool,
    /// Dead letters that are durable in the engine but not yet reported by the machine.
    pub parked_expected: u64,
    /// Dead letters by reason, over the whole run.
    pub reasons: BTreeMap<Reason, u64>,
    pub crashes: u64,
    /// The latest start of a call that was answered, and whether the clock was moved, which makes that meaningless.
    pub answered_began: Time,
    pub clock_moved: bool,
}

impl Record {
    pub fn new(message: Message, fate: Fate, due: Option<Time>) -> Self {
        let meta = Meta { created: message.created(), deadline: message.deadline(), ..Meta::default() };
        Self {
            message,
            fate,
            state: State::Waiting,
            meta,
            due,
            came_due: due.is_none(),
            in_line: due.is_none(),
            call: None,
            doomed: None,
            given: None,
            calls: 0,
            failures: 0,
            calls_lost: 0,
            kills: 0,
            died_alone: 0,
            replays: 0,
            jobs: BTreeSet::new(),
            unacknowledged: false,
        }
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self.state, State::Done | State::Letter(LetterState::Open | LetterState::Discarded))
    }

    pub fn is_running(&self) -> bool {
        self.call.is_some_and(|call| call.reply.is_none())
    }

    pub fn failed_with(&self) -> Option<Class> {
        match self.call?.reply?.0 {
            CallReply::Reply(Reply::Failed { class, .. }) => Some(class),
            _ => None,
        }
    }

    pub fn handed_out(&mut self, delivery: &Delivery) {
        self.state = State::InFlight;
        self.doomed = delivery.doomed;
        self.call = None;
    }

    pub fn started(&mut self, answer: SimulatedAnswer) {
        self.calls += 1;
        self.in_line = true;
        self.call = Some(CallRecord { answer, reply: None, health: Health::Healthy });
    }

    pub fn given(&mut self, settlement: &Settlement, ticket: Ticket) {
        self.given = Some((ticket, settlement.verdict, settlement.attempt.is_some()));
    }

    /// The verdict is durable. Returns the reason if it made a dead letter.
    fn durable(&mut self) -> Option<Reason> {
        let (_, verdict, failed) = self.given.take()?;
        let call = self.call.take();
        self.failures += u32::from(failed);
        match verdict {
            Verdict::Release => {
                self.state = State::Waiting;
                self.calls_lost += u32::from(call.is_some());
                self.unacknowledged |= call.is_some_and(|call| call.answer.applies);
            }
            Verdict::Done => self.state = State::Done,
            Verdict::Retry { due, meta } => {
                self.unacknowledged |= call.is_some_and(|call| call.answer.applies);
                self.wait_until(due);
                self.meta = meta;
            }
            Verdict::Dead { meta, reason, .. } => {
                self.unacknowledged |= call.is_some_and(|call| call.answer.applies);
                self.meta = meta;
                self.state = State::Letter(LetterState::Open);
                return Some(reason);
            }
        }
        None
    }

    fn wait_until(&mut self, due: Time) {
        self.state = State::Waiting;
        self.due = Some(due);
        self.came_due = false;
    }

    pub fn replayed(&mut self, job: u64, due: Time) {
        self.jobs.insert(job);
        self.replays += 1;
        self.meta = self.meta.replayed();
        self.wait_until(due);
        self.in_line = true;
        (self.calls, self.failures, self.calls_lost) = (0, 0, 0);
        (self.kills, self.died_alone) = (0, 0);
    }

    fn crashed(&mut self) {
        if let Some(call) = self.call.take() {
            self.calls_lost += 1;
            // The effect of a running call may or may not have happened; that of a finished one has.
            self.unacknowledged |= call.answer.applies;
        }
        self.given = None;
        if self.state == State::InFlight {
            self.state = State::Waiting;
        }
    }
}

impl Witness {
    pub fn durable(&mut self, ticket: Ticket) {
        for record in self.records.values_mut() {
            if record.given.is_some_and(|(given, ..)| given <= ticket) {
                let Some(reason) = record.durable() else { continue };
                self.parked_expected += 1;
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
    }

    pub fn crashed(&mut self) {
        self.gated = false;
        self.crashes += 1;
        self.parked_expected = 0;
        self.records.values_mut().for_each(Record::crashed);
    }

    pub fn running(&self) -> usize {
        self.records.values().filter(|record| record.is_running()).count()
    }

    pub fn mark_came_due(&mut self, now: Time) {
        for record in self.records.values_mut().filter(|record| record.state == State::Waiting) {
            record.came_due |= record.due.is_none_or(|due| due <= now);
        }
    }
}
