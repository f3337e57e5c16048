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
use std::time::Duration;

use redrive_core::suspects::Suspects;
use redrive_core::{BreakerSettings, Message, Meta, Policy, Random, Reason, Time};

use super::calls::{CallId, Calls};
use super::failed::AttemptFailed;
use super::health::{HealthChange, HealthEntry, HealthFigures};
use super::permits::Permits;
use super::protection::{Protection, ProtectionSettings};
use super::resets::{ResetSuspects, SOLE_ENDPOINT};
use super::routes::{Router, Routes};
use super::settling::Settling;
use super::sweep::{self, Sweep};
use super::unconfirmed::Unconfirmed;
use super::waiting::Waiting;
use crate::engine::{Delivery, Settlement, SourcePlace, Ticket, Verdict};
use crate::failure::Failure;
use crate::figures::{Figures, recent::Recent};
use crate::settle;

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
    pub origin: Option<SourcePlace>,
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
    /// The number of the letter.
    pub number: u64,
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
    pub(super) policy: Arc<Policy>,
    pub(super) permits: Permits,
    pub(super) protection: Protection,
    pub(super) sweep: Sweep,
    pub(super) resets: ResetSuspects,
    pub(super) routes: Option<Routes>,
    pub(super) suspects: Suspects<Delivery>,
    pub(super) suspect_settling: Settling,
    pub(super) suspects_new: usize,
    pub(super) has_met_suspects: bool,
    pub(super) calls: Calls,
    pub(super) waiting: Waiting,
    pub(super) unconfirmed: Unconfirmed,
    batch: Vec<Settlement>,
    batch_parked: Vec<Parked>,
    batch_retries: usize,
    submitted: VecDeque<Submitted>,
    pub(super) unsettled: usize,
    pub(super) stopping: bool,
    pub(super) paused: bool,
    released: u64,
    pub(super) figures: Figures,
    pub(super) recent: Recent,
    /// Who wants to hear of failed attempts, and those that were not fetched yet.
    pub(super) watcher: Option<Arc<str>>,
    pub(super) failed: Vec<AttemptFailed>,
}

#[derive(Debug)]
struct Submitted {
    ticket: Ticket,
    len: usize,
    parked: Vec<Parked>,
}

impl Machine {
    pub fn new(policy: Arc<Policy>, concurrency: usize) -> Self {
        Self::protected(policy, concurrency, &ProtectionSettings::default())
    }

    pub fn protected(policy: Arc<Policy>, concurrency: usize, protection: &ProtectionSettings) -> Self {
        Self {
            figures: Figures::new(&policy),
            permits: Permits::new(concurrency),
            protection: Protection::new(protection, &policy, concurrency),
            sweep: Sweep::default(),
            resets: ResetSuspects::default(),
            routes: None,
            suspects: Suspects::new(policy.crash_threshold()),
            suspect_settling: Settling::No,
            suspects_new: 0,
            has_met_suspects: false,
            policy,
            calls: Calls::default(),
            waiting: Waiting::default(),
            unconfirmed: Unconfirmed::default(),
            batch: Vec::new(),
            batch_parked: Vec::new(),
            batch_retries: 0,
            submitted: VecDeque::new(),
            unsettled: 0,
            stopping: false,
            paused: false,
            released: 0,
            recent: Recent::default(),
            watcher: None,
            failed: Vec::new(),
        }
    }

    /// Messages go where the router says. Each endpoint is looked after by itself then, and none of them can close the
    /// whole pipeline.
    #[must_use]
    pub fn routed(mut self, router: Router, settings: &ProtectionSettings) -> Self {
        let permits = self.permits.free();
        self.routes = Some(Routes::new(router, &settings.breaker, permits));
        let own = ProtectionSettings { breaker: BreakerSettings::off(), ..settings.clone() };
        self.protection = Protection::new(&own, &self.policy, permits);
        self
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
        if self.stopping || self.suspects.want_silence() || self.is_reserved() {
            return 0;
        }
        let room = self.permits.free().min(unsettled_max.saturating_sub(self.unsettled));
        let allowed = self.protection.room(self.permits.used());
        room.min(if self.sweep.is_on() { allowed.max(sweep::LOOK_MAX) } else { allowed })
    }

    /// Whether the sole endpoint is reserved for one message.
    pub(super) fn is_reserved(&self) -> bool {
        self.routes.is_none() && self.resets.is_reserved(SOLE_ENDPOINT)
    }

    /// Time has passed: what the breaker and the ramp allow may have changed.
    pub fn tick(&mut self, now: Time) {
        self.protection.tick(now);
        self.recent.gate(self.paused || self.protection.is_gated(), now);
        self.sweep.tick(self.protection.is_out_of_reach(), now);
        self.expire_suspects(now);
        self.tick_resets(now);
        self.tick_unconfirmed(now);
    }

    /// This process does `owned` of `all` parts of the work, and so has that part of what is given to the pipeline as a
    /// whole.
    pub fn own(&mut self, owned: u32, all: u32) {
        self.protection.own(owned, all);
    }

    /// What a decision would be told now.
    pub fn views(&mut self, now: Time) -> Views {
        self.protection.views(now)
    }

    /// The process did not run for so long.
    pub fn stood_still(&mut self, span: Duration, now: Time) {
        self.protection.note(HealthChange::StoodStill { span }, now);
    }

    /// Appends what has happened to the health of the sink since the last call.
    pub fn health_changes(&mut self, out: &mut Vec<HealthEntry>) {
        self.protection.changes(out);
    }

    /// An earlier process left this reminder: a breaker that was open is open.
    pub fn remember(&mut self, reminder: &[u8]) {
        self.protection.remember(reminder);
    }

    /// The reminder for the next process, if it is another one than at the last call.
    pub fn reminder(&mut self, now: Time) -> Option<Vec<u8>> {
        self.protection.reminder(now)
    }

    /// How the sink is doing.
    pub fn health(&mut self, now: Time) -> HealthFigures {
        self.protection.figures(now)
    }

    /// Whether nothing keeps messages from being taken but the permits.
    pub fn is_unhindered(&self) -> bool {
        self.protection.room(0) == usize::MAX && !self.suspects.want_silence() && !self.is_reserved()
    }

    /// Whether the dead-letter guard wants the pipeline paused.
    pub fn is_halted(&self) -> bool {
        self.protection.halted().is_some()
    }

    /// Somebody lets a paused pipeline go on; with `anyway`, whatever the guard says of this flood.
    pub fn resume(&mut self, anyway: bool) {
        self.protection.resumed(anyway);
        self.pause(false);
    }

    /// An operator ends a wait that a Retry-After began.
    pub fn lift_wait(&mut self, now: Time) {
        self.protection.lift_wait(now);
        if let Some(routes) = &mut self.routes {
            routes.endpoints.lift_waits();
        }
    }

    /// Hears how a call ended. A call that is not known any more was given up before; its end changes nothing.
    pub fn ended(&mut self, call: CallId, ended: Ended, now: Time, random: Random) {
        let Some(call) = self.calls.remove(call) else { return };
        match ended {
            Ended::Done => self.succeeded(call, now),
            Ended::Unfinished => self.put_back(call),
            Ended::Failed(failure) => self.attempt_failed(call, failure, now, random),
        }
    }

    pub(super) fn settle(&mut self, settlement: Settlement, failure: Option<Failure>) {
        let Delivery { message, meta: known, .. } = &settlement.delivery;
        match settlement.verdict {
            Verdict::Done => {
                let calls = settle::next_call(known);
                self.figures.succeeded += 1;
                self.figures.retried_ended.succeeded += u64::from(calls > 1);
                self.figures.attempts_per_message.observe_number(u64::from(calls));
            }
            Verdict::Retry { .. } => self.batch_retries += 1,
            Verdict::Release => {
                self.figures.consumed -=
                    u64::from(settle::is_new(&settlement.delivery)).min(self.figures.consumed);
                self.released += 1;
            }
            Verdict::Dead { reason, meta, at } => {
                if !self.resets.is_idle() {
                    self.resets.forget(settlement.delivery.receipt.number());
                }
                self.protection.died(reason, at);
                self.figures.dead.add(reason);
                let calls = u64::from(meta.attempts) + u64::from(meta.uncounted);
                self.figures.retried_ended.dead += u64::from(calls > 1);
                self.figures.attempts_per_message.observe_number(calls);
                let number = settlement.delivery.receipt.number();
                self.batch_parked.push(Parked { number, message: message.clone(), reason, meta, failure });
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
    pub fn submitted(&mut self, ticket: Ticket, len: usize, now: Time) {
        self.batch_retries = 0;
        self.suspect_given(ticket, now);
        let parked = std::mem::take(&mut self.batch_parked);
        self.submitted.push_back(Submitted { ticket, len, parked });
    }

    /// The batch of `ticket` and all before it are stored; what became a dead letter by them is appended to `parked`.
    pub fn durable(&mut self, ticket: Ticket, now: Time, parked: &mut Vec<Parked>) {
        self.suspect_durable(|given| given <= ticket, now);
        while let Some(mut first) = self.submitted.pop_front_if(|first| first.ticket <= ticket) {
            self.unsettled -= first.len;
            parked.append(&mut first.parked);
        }
    }

    /// The batch of `ticket` is stored, while one before it cannot be for now.
    pub fn durable_alone(&mut self, ticket: Ticket, now: Time, parked: &mut Vec<Parked>) {
        self.suspect_durable(|given| given == ticket, now);
        let at = self.submitted.iter().position(|submitted| submitted.ticket == ticket);
        if let Some(mut stored) = at.and_then(|at| self.submitted.remove(at)) {
            self.unsettled -= stored.len;
            parked.append(&mut stored.parked);
        }
    }

    /// Takes nothing from now on; what runs may finish, what waits in place is put off.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.interrupt_waits();
        self.release_suspects();
        self.release_lot();
        self.release_apart();
        self.defer_all_unconfirmed();
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

    /// The call that has run for the longest, and whose it is.
    pub fn longest_running(&self) -> Option<(CallId, &Message)> {
        let longest = self.calls.longest(|call| !self.waiting.holds(call));
        longest.map(|(id, call)| (id, &call.delivery.message))
    }

    /// How many handlers run now.
    pub fn running(&self) -> usize {
        self.calls.len() - self.waiting.len()
    }

    /// How many calls hold a permit, running or waiting in place.
    pub fn permits_held(&self) -> usize {
        self.calls.len()
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
        let looked_after = self.protection.next_wake().into_iter().chain(self.sweep.next());
        let in_place = self.waiting.next_due().filter(|_| !self.is_reserved());
        let can_start = self.permits.free() > 0 && self.protection.room(self.permits.used()) > 0;
        let kept = self.resets.next_wake(can_start).into_iter().chain(self.unconfirmed.next_wake());
        taken.into_iter().chain(in_place).chain(looked_after).chain(kept).min()
    }

    /// The counters, and the gauges that are known here.
    pub fn figures(&mut self, now: Time) -> Figures {
        let suspects = self.suspects.len() as u64;
        let endpoints = self.routes.as_mut().map(|routes| routes.figures(now));
        Figures {
            health: HealthFigures {
                endpoints,
                suspects,
                resets: self.resets.figures(),
                ..self.protection.figures(now)
            },
            running: self.running(),
            waiting_in_place: self.waiting_in_place(),
            oldest_pending: self.calls.oldest(),
            recent: self.recent.figures(now),
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
