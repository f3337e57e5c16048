//! The state machine of one pipeline.
//!
//! Its caller owns the engine and the handlers and goes round: [`Machine::room`] says how much to take,
//! [`Machine::taken`] which deliveries to start, [`Machine::ended`] hears how they went, [`Machine::batch`] is what to
//! settle, [`Machine::submitted`] and [`Machine::durable`] follow it until it is stored.
//!
//! In blocking mode a delivery that failed waits in place: it keeps its permit, and [`Machine::restart_due`] starts it
//! again. What was attempted in place is known only here until the delivery is settled; an orderly end and a pause settle
//! it as a retry, a process that dies forgets it.

use std::collections::VecDeque;
use std::sync::Arc;

use redrive_core::policy::Mode;
use redrive_core::{Decision, Message, Meta, Policy, Random, Reason, Time, expired};

use super::calls::{Call, CallId, Calls};
use super::failed::AttemptFailed;
use super::permits::Permits;
use super::waiting::Waiting;
use crate::engine::{Delivery, Settlement, Ticket, Verdict};
use crate::failure::Failure;
use crate::figures::Figures;
use crate::figures::held::Deferred;
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
    /// 1 for the first call of the message, or the first since its replay.
    pub attempt: u32,
    pub replays: u32,
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
    /// Also those that wait in place.
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
    waiting: Waiting,
    batch: Vec<Settlement>,
    batch_parked: Vec<Parked>,
    batch_retries: usize,
    submitted: VecDeque<Submitted>,
    unsettled: usize,
    stopping: bool,
    paused: bool,
    released: u64,
    figures: Figures,
    deferred: Deferred,
    /// Who wants to hear of failed attempts, and those that were not fetched yet.
    watcher: Option<Arc<str>>,
    failed: Vec<AttemptFailed>,
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
            figures: Figures::new(&policy),
            policy,
            permits: Permits::new(concurrency),
            calls: Calls::default(),
            waiting: Waiting::default(),
            batch: Vec::new(),
            batch_parked: Vec::new(),
            batch_retries: 0,
            submitted: VecDeque::new(),
            unsettled: 0,
            stopping: false,
            paused: false,
            released: 0,
            deferred: Deferred::default(),
            watcher: None,
            failed: Vec::new(),
        }
    }

    /// Keeps a note of each failed attempt under the pipeline's name; fetch them with [`Self::failed`].
    pub fn watch_failures(&mut self, pipeline: Arc<str>) {
        self.watcher = Some(pipeline);
    }

    /// Appends the attempts that failed since the last call.
    pub fn failed(&mut self, out: &mut Vec<AttemptFailed>) {
        out.append(&mut self.failed);
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
            self.figures.consumed += u64::from(is_new(&delivery));
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
        self.begin(Call::new(delivery, now, permit), starts);
    }

    fn begin(&mut self, call: Call, starts: &mut Vec<Start>) {
        let Delivery { message, meta, due, .. } = &call.delivery;
        let attempt = settle::next_call(meta);
        if let Some(due) = due
            && (attempt > 1 || message.key().is_none())
        {
            self.figures.retry_lateness.observe(call.started.since(*due));
        }
        let (message, replays) = (message.clone(), meta.replays);
        let call = self.calls.insert(call);
        starts.push(Start { call, message, attempt, replays });
    }

    /// Starts again what waited in place and whose time has come; a deadline that passed meanwhile ends it instead.
    pub fn restart_due(&mut self, now: Time, starts: &mut Vec<Start>) {
        while let Some(call) = self.waiting.pop_due(now) {
            let Some(call) = self.calls.remove(call) else { continue };
            if expired(&call.delivery.meta, now) {
                self.settle(settle::dead(call.delivery, Reason::TtlExceeded, now), None);
            } else {
                self.begin(Call { started: now, ..call }, starts);
            }
        }
    }

    /// Hears how a call ended. A call that is not known any more was given up before; its end changes nothing.
    pub fn ended(&mut self, call: CallId, ended: Ended, now: Time, random: Random, views: &Views) {
        let Some(call) = self.calls.remove(call) else { return };
        match ended {
            Ended::Done => self.succeeded(call, now),
            Ended::Unfinished => self.put_back(call),
            Ended::Failed(failure) => self.attempt_failed(call, failure, now, random, views),
        }
    }

    fn succeeded(&mut self, call: Call, now: Time) {
        let Meta { created, .. } = call.delivery.meta;
        self.figures.attempts.ok += 1;
        if created > Time::ZERO {
            self.figures.end_to_end.observe(now.since(created));
        }
        self.settle(settle::succeeded(call.delivery), None);
    }

    fn attempt_failed(&mut self, call: Call, failure: Failure, now: Time, random: Random, views: &Views) {
        let Call { delivery, started, permit, .. } = call;
        let moment = Moment { policy: &self.policy, views, now, random };
        let (settlement, decision) = settle::failed(delivery, started, &failure, moment);
        self.figures.attempts.add(failure.class());
        self.count_retry(&decision);
        if let Some(pipeline) = &self.watcher
            && let Some(attempt) = &settlement.attempt
        {
            let tier = &self.figures.retries[tier_of(&decision, &self.figures)].tier;
            let message = &settlement.delivery.message;
            let decided = (&decision, tier);
            self.failed.extend(AttemptFailed::new(pipeline, message, attempt, &failure, decided, now));
        }
        match settlement.verdict {
            Verdict::Retry { due, meta } if self.waits_in_place() => {
                let Settlement { mut delivery, attempt, .. } = settlement;
                delivery.meta = meta;
                delivery.due = Some(due);
                if let Some(attempt) = &attempt {
                    delivery.history = delivery.history.with(attempt);
                }
                let call = self.calls.insert(Call { delivery, started, ahead_of_store: true, permit });
                self.waiting.insert(due, call);
            }
            _ => self.settle(settlement, Some(failure)),
        }
    }

    fn count_retry(&mut self, decision: &Decision) {
        let Decision::RetryAt(retry) = decision else { return };
        let tier = tier_of(decision, &self.figures);
        self.figures.retries[tier].retries += 1;
        if !retry.counts {
            self.figures.deferred += 1;
            self.deferred.add(retry.due);
        }
    }

    fn waits_in_place(&self) -> bool {
        self.policy.mode() == Mode::Blocking && !self.stopping && !self.paused
    }

    /// A call without an end: as if it had not been started, but attempts in place that it made before are kept.
    fn put_back(&mut self, call: Call) {
        if call.ahead_of_store {
            let due = call.delivery.due.unwrap_or_default();
            self.settle(settle::put_off(call.delivery, due), None);
        } else {
            self.settle(settle::released(call.delivery), None);
        }
    }

    /// Ends every wait in place: what waits becomes an ordinary retry, with all its attempts.
    fn interrupt_waits(&mut self) {
        for (due, call) in self.waiting.take_all() {
            if let Some(call) = self.calls.remove(call) {
                self.settle(settle::put_off(call.delivery, due), None);
            }
        }
    }

    fn settle(&mut self, settlement: Settlement, failure: Option<Failure>) {
        let Delivery { message, meta: known, .. } = &settlement.delivery;
        match settlement.verdict {
            Verdict::Done => {
                self.figures.succeeded += 1;
                self.figures.attempts_per_message.observe_number(u64::from(settle::next_call(known)));
            }
            Verdict::Retry { .. } => self.batch_retries += 1,
            Verdict::Release => {
                self.figures.consumed -= u64::from(is_new(&settlement.delivery)).min(self.figures.consumed);
                self.released += 1;
            }
            Verdict::Dead { reason, meta, .. } => {
                self.figures.dead.add(reason);
                let calls = u64::from(meta.attempts) + u64::from(meta.uncounted);
                self.figures.attempts_per_message.observe_number(calls);
                self.batch_parked.push(Parked { message: message.clone(), reason, meta, failure });
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

    /// How many retries are among the verdicts that are ready to be stored.
    pub fn batch_retries(&self) -> usize {
        self.batch_retries
    }

    /// The last batch was given to the engine under `ticket`.
    pub fn submitted(&mut self, ticket: Ticket, len: usize) {
        self.batch_retries = 0;
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

    /// Takes nothing from now on; what runs may finish, what waits in place is put off.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.interrupt_waits();
    }

    /// While paused nothing waits in place, because nothing shall be started: it waits in the engine behind its gate.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if paused {
            self.interrupt_waits();
        }
    }

    /// Gives up what still runs: the attempt that runs is not counted. Returns how many calls that were.
    pub fn give_up(&mut self) -> usize {
        self.stop();
        let calls = self.calls.remove_all();
        let given_up = calls.len();
        self.figures.repeats += given_up as u64;
        for call in calls {
            self.put_back(call);
        }
        given_up
    }

    /// How many handlers run now.
    pub fn running(&self) -> usize {
        self.calls.len() - self.waiting.len()
    }

    /// How many calls wait in place.
    pub fn waiting_in_place(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing runs and nothing waits to become durable. What waits in place is at rest: only time moves it on.
    pub fn is_at_rest(&self) -> bool {
        self.running() == 0 && self.unsettled == 0
    }

    /// When time alone brings work, given what the engine says of its delays.
    pub fn next_wake(&self, next_due: Option<Time>) -> Option<Time> {
        let taken = next_due.filter(|_| self.room_for_due() > 0);
        taken.into_iter().chain(self.waiting.next_due()).min()
    }

    /// The counters, and the gauges that are known here.
    pub fn figures(&mut self, now: Time) -> Figures {
        Figures {
            held: self.deferred.waiting(now),
            running: self.running(),
            waiting_in_place: self.waiting_in_place(),
            oldest_pending: self.calls.oldest(),
            ..self.figures.clone()
        }
    }

    pub fn tally(&self) -> Tally {
        let Figures { succeeded, dead, .. } = &self.figures;
        Tally {
            succeeded: *succeeded,
            retried: self.figures.retried(),
            dead: dead.total(),
            released: self.released,
        }
    }
}

/// Whether nobody has attempted it before.
fn is_new(delivery: &Delivery) -> bool {
    delivery.meta.replays == 0 && settle::next_call(&delivery.meta) == 1
}

/// Where a decision is counted; where there are no tiers, there is one label for all.
fn tier_of(decision: &Decision, figures: &Figures) -> usize {
    let tier = if let Decision::RetryAt(retry) = decision { retry.tier } else { None };
    usize::from(tier.unwrap_or(0)).min(figures.retries.len() - 1)
}
