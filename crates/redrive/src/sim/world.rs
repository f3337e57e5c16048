//! The world of one run: the machine, the engine, the downstream, the clocks, and the steps between them.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Message, Policy, Random, Time};

use super::checkers::{self, Broken, Check};
use super::downstream::{Downstream, Fate, Reply};
use super::plan::Plan;
use super::witness::{CallReply, Record, State, Witness};
use crate::dispatch::{CallId, Ended, Machine, Start};
use crate::engine::conformance::Rng;
use crate::engine::{
    Accepted, Announced, Deliver, Delivery, Event, Memory, NewMessage, Query, ReminderKind, Settlement,
    Ticket,
};

/// One step, in the form shown by the report of a failing seed.
#[expect(dead_code, reason = "read through Debug, in the report")]
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Take { room: usize, came: usize },
    End { seq: u64, reply: CallReply },
    Late { seq: u64 },
    Give { verdicts: usize },
    Poll { durable: usize },
    Advance { ms: u64 },
    Ingest { seq: u64, again: bool },
    Crash,
    Restart,
    Clock { ms: i64 },
    Pause { closed: bool },
    Replay { job: u64, letters: usize, force: bool },
    Discard { letters: usize },
    Undo { letters: usize },
    Steer { seq: u64, is_cancelled: bool },
}

/// A running call; it ends when true time reaches `ends_ms`.
#[derive(Debug)]
pub(super) struct Running {
    pub call: CallId,
    pub seq: u64,
    pub began: Time,
    pub ends_ms: u64,
}

pub(super) struct World {
    pub plan: Arc<Plan>,
    pub rng: Rng,
    pub engine: Memory,
    pub machine: Machine,
    pub downstream: Downstream,
    pub witness: Witness,
    pub faults: bool,
    pub trace: Vec<(u64, Step)>,
    /// True time. Calls are measured by it, whatever the clock says.
    pub true_ms: u64,
    /// The error of the host's clock.
    pub skew_ms: i64,
    pub running: Vec<Running>,
    /// Calls that were reported as ended and will be reported again.
    pub late: Vec<(CallId, u64)>,
    pub offered: u32,
    pub jobs: Vec<(u64, Vec<u64>)>,
    /// The suspect that runs alone.
    pub alone: Option<u64>,
    /// Whether a call has crashed the process.
    pub killed: bool,
    /// Until when, by true time, the sink has asked for no calls.
    pub asked_until_ms: u64,
}

const CLOCK_START_MS: u64 = 1_800_000_000_000;

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x5EED);
        let downstream = Downstream::new(Rng::new(rng.draw()));
        let policy: Arc<Policy> = Arc::clone(&plan.policy);
        Self {
            engine: Memory::new(plan.store.clone()),
            machine: Machine::protected(policy, plan.concurrency, &plan.protection),
            alone: None,
            killed: false,
            asked_until_ms: 0,
            plan: Arc::new(plan),
            rng,
            downstream,
            witness: Witness::default(),
            faults: true,
            trace: Vec::new(),
            true_ms: 0,
            skew_ms: 0,
            running: Vec::new(),
            late: Vec::new(),
            offered: 0,
            jobs: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_millis((CLOCK_START_MS + self.true_ms).saturating_add_signed(self.skew_ms))
    }

    pub(super) fn note(&mut self, step: Step) {
        self.trace.push((self.true_ms, step));
    }

    pub(super) fn record(&mut self, seq: u64) -> Result<&mut Record, Broken> {
        let unknown = || Broken { checker: "conservation", detail: format!("{seq} was never accepted") };
        self.witness.records.get_mut(&seq).ok_or_else(unknown)
    }

    /// Checks the invariants that hold between any two steps.
    pub(super) fn check(&self) -> Check {
        let counts = self.engine.counts();
        checkers::conservation(&self.witness, counts)?;
        checkers::bounds(&self.plan, self.machine.running(), self.machine.room(), counts)?;
        if !self.machine.is_unhindered() {
            return Ok(());
        }
        checkers::no_neighbour_blocked(&self.plan, &self.witness, self.machine.room(), false, self.now())
    }

    /// Takes deliveries and starts them. Returns how many were taken.
    pub(super) fn take(&mut self) -> Result<usize, Broken> {
        let now = self.now();
        self.machine.tick(now);
        self.keep_reminder()?;
        let room = self.machine.room();
        let mut deliveries = Vec::new();
        self.engine.take(now, room, &mut deliveries).map_err(storage)?;
        let came = deliveries.len();
        self.note(Step::Take { room, came });
        for delivery in &deliveries {
            self.handed_out(delivery)?;
        }
        if room > 0 && !self.witness.gated {
            self.witness.mark_came_due(now);
        }
        let left = came < room;
        let mut seqs: Vec<(Message, u64)> =
            deliveries.iter().map(|d| (d.message.clone(), d.receipt.seq)).collect();
        let mut starts = Vec::new();
        let (before, running) = (self.machine.health(now), self.machine.running());
        self.machine.taken(&mut deliveries, now, &mut starts);
        self.machine.restart_due(now, &mut starts);
        checkers::nothing_sent_while_open(&before, running, starts.len())?;
        if let Some(run) = self.machine.suspect_turn()
            && let in_turn = self.machine.suspects_in_turn()
            && self.engine.announce(&in_turn, now).map_err(storage)? == Announced::Yes
        {
            let receipt = in_turn[0];
            checkers::alone(run, self.machine.running())?;
            self.alone = Some(receipt.seq);
            seqs.push((self.record(receipt.seq)?.message.clone(), receipt.seq));
            self.machine.start_suspect(now, &mut starts);
        }
        for start in starts {
            self.started(&start, &seqs)?;
        }
        if std::mem::take(&mut self.killed) {
            self.crash()?;
            // This is a new process now, which may have work to take.
            return Ok(came.max(1));
        }
        if !self.machine.is_unhindered() {
            return Ok(came);
        }
        checkers::no_neighbour_blocked(&self.plan, &self.witness, self.machine.room(), left, now)?;
        Ok(came)
    }

    /// Stores the state for the next process at once.
    fn keep_reminder(&mut self) -> Check {
        match self.machine.reminder(self.now()) {
            Some(reminder) => self.engine.keep_reminder(ReminderKind::Health, &reminder).map_err(storage),
            None => Ok(()),
        }
    }

    fn handed_out(&mut self, delivery: &Delivery) -> Check {
        let (plan, now) = (Arc::clone(&self.plan), self.now());
        // It may be handed out only in its turn; from now on it has a place in its key line.
        checkers::key_order(&plan, &self.witness, delivery.receipt.seq)?;
        let record = self.record(delivery.receipt.seq)?;
        checkers::conservation_of_delivery(record, delivery)?;
        checkers::replay_once_in_meta(record, delivery)?;
        checkers::attempts_bounded_in_meta(&plan, record, delivery)?;
        checkers::never_early(record, now)?;
        checkers::bounds_of_story(delivery)?;
        record.handed_out(delivery);
        Ok(())
    }

    /// A handler is called. Like a real one, it only knows the message.
    fn started(&mut self, start: &Start, seqs: &[(Message, u64)]) -> Check {
        // It was taken just now, or has waited for its turn since it was handed out.
        let waited = || {
            let out = |record: &Record| record.state == State::InFlight && record.message == start.message;
            self.witness.records.iter().find(|(_, record)| out(record)).map(|(seq, _)| *seq)
        };
        let seq = seqs.iter().find(|(message, _)| *message == start.message).map(|(_, seq)| *seq);
        let seq = seq.or_else(waited);
        let Some(seq) = seq else {
            let detail = format!("{:?} was started without being handed out", start.message);
            return Err(Broken { checker: "effect_once", detail });
        };
        let (plan, now, faults, true_ms) = (Arc::clone(&self.plan), self.now(), self.faults, self.true_ms);
        let fate = self.record(seq)?.fate;
        self.killed |= fate == Fate::Killer;
        self.record(seq)?.kills += u32::from(fate == Fate::Killer);
        let answer = self.downstream.call(&plan, fate, true_ms, faults);
        let record = self.record(seq)?;
        record.started(answer);
        checkers::attempts_bounded(&plan, record, now)?;
        checkers::nothing_sent_while_asked_to_wait(&plan, self.asked_until_ms, true_ms)?;
        let ends_ms = true_ms + answer.takes_ms;
        self.running.push(Running { call: start.call, seq, began: now, ends_ms });
        Ok(())
    }

    /// When the next call ends, by true time.
    pub(super) fn next_end(&self) -> Option<u64> {
        self.running.iter().map(|running| running.ends_ms).min()
    }

    /// Reports the end of one call that is over to the machine.
    pub(super) fn end_one(&mut self) -> Check {
        let Some(at) = self.running.iter().position(|running| running.ends_ms <= self.true_ms) else {
            return Ok(());
        };
        let Running { call, seq, began, .. } = self.running.swap_remove(at);
        let now = self.now();
        let record = self.record(seq)?;
        let Some(calling) = &mut record.call else { return Ok(()) };
        let answer = calling.answer;
        calling.reply = Some((CallReply::Reply(answer.reply), now));
        let id = record.message.id().to_owned();
        self.note(Step::End { seq, reply: CallReply::Reply(answer.reply) });
        self.downstream.ended(&id, &answer);
        let text = if self.rng.chance(5) { "x".repeat(3_000) } else { format!("{:?}", answer.reply) };
        let ended = answer.reply.to_failure(&text).map_or(Ended::Done, Ended::Failed);
        if answer.reply.is_an_answer() {
            self.witness.answered_began = self.witness.answered_began.max(began);
        }
        let random = Random(self.rng.draw());
        self.machine.ended(call, ended, now, random);
        self.keep_reminder()?;
        if let Reply::Failed { retry_after: Some(asked), .. } = answer.reply {
            let wait = asked.min(self.plan.policy.retry_after_shared_max());
            self.asked_until_ms = self.asked_until_ms.max(self.true_ms + wait.as_millis() as u64);
        }
        let health = self.machine.views(now).health;
        if let Some(calling) = &mut self.record(seq)?.call {
            calling.health = health;
        }
        if self.late.len() < 8 {
            self.late.push((call, seq));
        }
        Ok(())
    }

    /// Gives the settled batch to the engine. Returns its size.
    pub(super) fn give(&mut self) -> Result<usize, Broken> {
        let Some(batch) = self.machine.batch() else { return Ok(0) };
        self.note(Step::Give { verdicts: batch.len() });
        let ticket = self.engine.settle(batch.clone()).map_err(storage)?;
        self.machine.submitted(ticket, batch.len(), self.now());
        batch.iter().try_for_each(|settlement| self.given(settlement, ticket))?;
        Ok(batch.len())
    }

    fn given(&mut self, settlement: &Settlement, ticket: Ticket) -> Check {
        let plan = Arc::clone(&self.plan);
        let seq = settlement.delivery.receipt.seq;
        let before = self.record(seq)?.clone();
        checkers::conservation_of_settlement(&before, settlement)?;
        checkers::effect_once(&before, settlement, &self.downstream)?;
        checkers::never_early_verdict(&plan, &before, settlement)?;
        checkers::no_dead_for_outage(&plan, &before, settlement)?;
        checkers::budget_in_a_healthy_sink(&plan, &self.witness, &before, settlement)?;
        checkers::innocent_messages_are_not_quarantined(&plan, &before, settlement)?;
        self.record(seq)?.given(settlement, ticket);
        Ok(())
    }

    /// Processes what has become durable.
    pub(super) fn poll(&mut self) -> Check {
        let mut events = Vec::new();
        self.engine.poll(&mut events).map_err(storage)?;
        self.note(Step::Poll { durable: events.len() });
        let (mut parked, now) = (Vec::new(), self.now());
        for ticket in events.into_iter().filter_map(Event::durable) {
            self.machine.durable(ticket, now, &mut parked);
            self.witness.durable(ticket);
        }
        let expected = std::mem::take(&mut self.witness.parked_expected);
        if parked.len() as u64 != expected {
            let detail = format!("{expected} became dead letters, the machine named {}", parked.len());
            return Err(Broken { checker: "conservation", detail });
        }
        Ok(())
    }

    pub(super) fn ingest(&mut self) -> Check {
        self.offered += 1;
        let plan = Arc::clone(&self.plan);
        let again = self.offered > 1 && self.rng.chance(plan.duplicate_percent);
        let number =
            if again { self.rng.between(1, u64::from(self.offered) - 1) } else { u64::from(self.offered) };
        let now = self.now();
        // The payload distinguishes copies with the same id.
        let mut message =
            Message::builder(format!("m{number}")).created(now).payload(self.offered.to_le_bytes().to_vec());
        if self.rng.chance(70) {
            message = message.key(format!("k{}", self.rng.below(plan.keys)));
        }
        if let Some(deadline) = plan.policy.deadline(now) {
            message = message.deadline(deadline);
        }
        let message = message.build().expect("the simulation's messages are within all bounds");
        let delay = Duration::from_millis(self.rng.below(20_000));
        let due = self.rng.chance(plan.delayed_percent).then(|| now.plus(delay));
        let ingest = self.engine.ingest().expect("the memory engine takes messages");
        let mut answer = ingest.submit(vec![NewMessage { message: message.clone(), due }], now);
        let Ok(Ok(accepted)) = answer.try_recv() else {
            return Err(Broken { checker: "conservation", detail: "ingest gave no answer".to_owned() });
        };
        if let Accepted::New { seq } = accepted[0] {
            let fate = Fate::draw(&plan, &mut self.rng);
            self.witness.records.insert(seq, Record::new(message, fate, due));
            self.note(Step::Ingest { seq, again });
        }
        Ok(())
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.true_ms += ms;
        self.note(Step::Advance { ms });
    }

    /// How long until time alone brings an event; `None` if it never will.
    pub(super) fn next_event_in(&self) -> Option<u64> {
        let end = self.next_end().map(|at| at.saturating_sub(self.true_ms));
        let due = self.machine.next_wake(self.engine.next_due());
        let due = due.map(|due| due.since(self.now()).as_millis() as u64);
        end.into_iter().chain(due).min()
    }
}

pub(super) fn storage(error: impl std::fmt::Display) -> Broken {
    Broken { checker: "conservation", detail: error.to_string() }
}
