//! The state machine of one pipeline.
//!
//! Its caller owns the engine and the handlers, and runs the loop: [`Machine::room`] says how much to take,
//! [`Machine::taken`] returns the calls to start, [`Machine::ended`] takes their outcomes, [`Machine::batch`] returns
//! what to settle, and [`Machine::submitted`] and [`Machine::durable`] follow it until it is stored.
//!
//! In blocking mode a failed delivery waits in place: it keeps its permit, and [`Machine::restart_due`] starts it
//! again. Attempts in place are known only here until the delivery is settled. An orderly end and a pause settle it
//! as a retry; a process that dies forgets the attempts.
//!
//! The state is in the parts; this file wires them together and answers questions about the whole. The path of one
//! delivery, from being taken to its verdict, is in `attempts.rs`.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::breaker::BreakerState;
use redrive_core::suspects::{self, Run};
use redrive_core::{Message, Meta, Policy, Reason, Time};

use super::calls::{Call, CallId, Calls, Withdrawn};
use super::failed::{AttemptFailed, FailureLog};
use super::health::{HealthChange, HealthEntry, HealthFigures};
use super::key_successes::{KeySuccesses, Saved};
use super::meters::{Meters, Tally};
use super::permits::Permits;
use super::protection::{BreakerOrder, Protection, ProtectionSettings};
use super::resets::{ResetSuspects, SOLE_ENDPOINT};
use super::routes::{Router, Routes};
use super::suspect_queue::{SuspectQueue, SuspectStart};
use super::sweep::{self, Sweep};
use super::unconfirmed::Unconfirmed;
use super::verdicts::{Parked, Verdicts};
use crate::backoff::Backoff;
use crate::engine::{Delivery, Receipt, Settlement, SourcePosition, TakeGate, Ticket};
use crate::failure::Failure;
use crate::figures::Figures;
use crate::settle;

pub use crate::settle::Views;

/// Verdicts that may wait to become durable; at this limit nothing is taken until the disk has caught up.
pub const UNSETTLED_MAX: usize = 65_536;
/// The part of it reserved for due messages, so that a disk that lags behind a backlog does not delay retries.
pub const UNSETTLED_FOR_DUE: usize = UNSETTLED_MAX / 4;

/// A handler call to make.
#[derive(Debug)]
pub struct Start {
    pub call: CallId,
    pub message: Message,
    /// 1 for the first call of the message, or the first since its replay.
    pub attempt: u32,
    pub replays: u32,
    pub origin: Option<SourcePosition>,
}

/// How a call ended.
#[derive(Debug)]
pub enum Ended {
    Done,
    Failed(Failure),
    /// The call was not started, or was abandoned before it finished.
    Unfinished,
}

/// The state before an operator's order for the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerAnswer {
    /// The previous state of the pipeline's breaker.
    pub was: BreakerState,
    /// Endpoints and origins that were in cooldown, for a sink with an endpoint per message.
    pub endpoints: usize,
}

/// See the module docs for the order of calls.
#[derive(Debug)]
pub struct Machine {
    pub(super) policy: Arc<Policy>,
    pub(super) backoff: Option<Backoff>,
    pub(super) permits: Permits,
    pub(super) calls: Calls,
    pub(super) protection: Protection,
    pub(super) sweep: Sweep,
    pub(super) routes: Option<Routes>,
    pub(super) resets: ResetSuspects,
    pub(super) suspects: SuspectQueue,
    pub(super) unconfirmed: Unconfirmed,
    pub(super) verdicts: Verdicts,
    pub(super) meters: Meters,
    pub(super) key_successes: KeySuccesses,
    pub(super) failures: FailureLog,
    pub(super) stopping: bool,
    pub(super) paused: bool,
}

impl Machine {
    pub fn new(policy: Arc<Policy>, concurrency: usize) -> Self {
        Self::protected(policy, concurrency, &ProtectionSettings::default())
    }

    pub fn protected(policy: Arc<Policy>, concurrency: usize, protection: &ProtectionSettings) -> Self {
        Self {
            permits: Permits::new(concurrency),
            calls: Calls::default(),
            protection: Protection::new(protection, &policy, concurrency),
            sweep: Sweep::default(),
            routes: None,
            resets: ResetSuspects::default(),
            suspects: SuspectQueue::new(policy.crash_threshold()),
            unconfirmed: Unconfirmed::default(),
            verdicts: Verdicts::default(),
            meters: Meters::new(&policy),
            key_successes: KeySuccesses::default(),
            failures: FailureLog::default(),
            stopping: false,
            paused: false,
            backoff: None,
            policy,
        }
    }

    /// Takes delays from this function instead of the policy's schedule.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Option<Backoff>) -> Self {
        self.backoff = backoff;
        self
    }

    /// Routes messages to their endpoints. Each endpoint has its own breaker, and none of them can stop the whole
    /// pipeline. The pipeline's breaker then opens only when our key is refused.
    #[must_use]
    pub fn routed(mut self, router: Router, settings: &ProtectionSettings) -> Self {
        let permits = self.permits.free();
        self.routes = Some(Routes::new(router, &settings.breaker, permits));
        let own = ProtectionSettings { many_endpoints: true, ..settings.clone() };
        self.protection = Protection::new(&own, &self.policy, permits);
        self
    }

    /// Records each failed attempt under the pipeline's name; fetch them with [`Self::failed`].
    pub fn watch_failures(&mut self, pipeline: Arc<str>) {
        self.failures = FailureLog::of(pipeline);
    }

    /// Appends the attempts that failed since the last call.
    pub fn failed(&mut self, out: &mut Vec<AttemptFailed>) {
        self.failures.take(out);
    }

    /// How many deliveries of any kind may be taken now.
    pub fn room(&self) -> usize {
        self.room_below(UNSETTLED_MAX - UNSETTLED_FOR_DUE)
    }

    /// How many deliveries may be taken now if they are due.
    pub fn room_for_due(&self) -> usize {
        self.room_below(UNSETTLED_MAX)
    }

    fn room_below(&self, unsettled_max: usize) -> usize {
        if self.stopping || self.suspects.wants_exclusive() || self.is_reserved() {
            return 0;
        }
        let room = self.permits.free().min(unsettled_max.saturating_sub(self.verdicts.unsettled()));
        let allowed = self.protection.room(self.permits.used());
        room.min(if self.sweep.is_on() { allowed.max(sweep::LOOK_MAX) } else { allowed })
    }

    /// Whether the sole endpoint is reserved for one message.
    pub(super) fn is_reserved(&self) -> bool {
        self.routes.is_none() && self.resets.is_reserved(SOLE_ENDPOINT)
    }

    /// Whether permits and protection allow another call.
    pub(super) fn may_call(&self) -> bool {
        self.permits.free() > 0 && self.protection.room(self.permits.used()) > 0
    }

    /// Updates everything that depends on time, such as the breaker and the ramp-up.
    pub fn tick(&mut self, now: Time) {
        self.protection.tick(now);
        self.meters.gate(self.paused || self.protection.is_gated(), now);
        self.sweep.tick(self.protection.is_out_of_reach(), now);
        while let Some(delivery) = self.suspects.pop_expired(now) {
            self.settle(settle::dead(delivery, Reason::TtlExceeded, now), None);
        }
        self.tick_resets(now);
        while let Some(undecided) = self.unconfirmed.pop_late(now) {
            self.defer_unconfirmed(undecided, now);
        }
    }

    fn tick_resets(&mut self, now: Time) {
        if let Some((more, within)) = self.resets.tick(now) {
            self.protection.tell(HealthChange::ReceiverClosedMore { more, within }, now);
        }
        if self.protection.is_out_of_reach() {
            let waiting = self.resets.take_waiting(Time::ZERO);
            self.release(waiting);
        }
        let freed = self.resets.freed();
        if let Some(routes) = &mut self.routes {
            freed.for_each(|endpoint| routes.free_again(endpoint));
        }
    }

    /// Says that this process has `owned` of `all` parts of the work, and so that share of limits of the whole
    /// pipeline.
    pub fn own(&mut self, owned: u32, all: u32) {
        self.protection.own(owned, all);
    }

    /// The sink's health and the budget, as a decision would see them now.
    pub fn views(&mut self, now: Time) -> Views {
        self.protection.views(now)
    }

    /// Records that the process did not run for `span`.
    pub fn stood_still(&mut self, span: Duration, now: Time) {
        self.protection.note(HealthChange::StoodStill { span }, now);
    }

    /// Appends the health changes since the last call.
    pub fn health_changes(&mut self, out: &mut Vec<HealthEntry>) {
        self.protection.changes(out);
    }

    /// Restores the state that an earlier process left: breakers that were open, including those of endpoints.
    pub fn remember(&mut self, reminder: &[u8]) {
        self.protection.remember(reminder);
        if let Some(routes) = &mut self.routes {
            routes.remember(reminder);
        }
    }

    /// The state for the next process, if it has changed since the last call.
    pub fn reminder(&mut self, now: Time) -> Option<Vec<u8>> {
        let endpoints = self.routes.as_mut().is_some_and(|routes| routes.is_reminder_due(now));
        (self.protection.is_reminder_due(now) | endpoints).then(|| self.last_reminder(now))
    }

    /// The state for the next process when this one ends.
    pub fn last_reminder(&self, now: Time) -> Vec<u8> {
        let mut reminder = self.protection.reminder(now);
        reminder.extend(self.routes.iter().flat_map(|routes| routes.reminder(now)));
        reminder
    }

    /// The health of the sink.
    pub fn health(&mut self, now: Time) -> HealthFigures {
        self.protection.figures(now)
    }

    /// Whether only the permits limit how many messages are taken.
    pub fn is_unhindered(&self) -> bool {
        self.protection.room(0) == usize::MAX && !self.suspects.wants_exclusive() && !self.is_reserved()
    }

    /// Whether the dead-letter guard wants the pipeline paused.
    pub fn is_halted(&self) -> bool {
        self.protection.halted().is_some()
    }

    /// Resumes a paused pipeline; with `anyway`, the guard ignores the current flood.
    pub fn resume(&mut self, anyway: bool) {
        self.protection.resumed(anyway);
        self.gate(TakeGate::Open);
    }

    /// Ends a wait for a Retry-After, on an operator's order.
    pub fn lift_wait(&mut self, now: Time) {
        self.protection.lift_wait(now);
        if let Some(routes) = &mut self.routes {
            routes.endpoints.lift_waits();
        }
    }

    /// Begins to record successes, starting from the state that the previous process saved.
    pub fn begin_delivering(&mut self, saved_successes: &[u8], now: Time) {
        self.key_successes = KeySuccesses::begin(saved_successes, now);
    }

    /// The keys with a success, for the next process, if a save is due.
    pub fn unsaved_key_successes(&mut self, now: Time) -> Option<Vec<u8>> {
        self.key_successes.save_if_due(now)
    }

    /// The keys with a success, when this process ends.
    pub fn last_key_successes(&mut self, now: Time) -> Vec<u8> {
        self.key_successes.save(Saved::AtEnd, now)
    }

    /// The keys with a recent success.
    pub fn key_successes(&self) -> &KeySuccesses {
        &self.key_successes
    }

    /// Carries out an operator's order for the breaker, and for those of all endpoints.
    pub fn order_breaker(&mut self, order: BreakerOrder, now: Time) -> BreakerAnswer {
        let was = self.protection.order_breaker(order, now);
        let endpoints = self.routes.as_mut().map_or(0, |routes| match order {
            BreakerOrder::Probe => routes.endpoints.probe_now(now),
            BreakerOrder::Close => routes.endpoints.close_all(now),
        });
        BreakerAnswer { was, endpoints }
    }

    /// The verdicts that are ready to be stored, if there are any.
    pub fn batch(&mut self) -> Option<Vec<Settlement>> {
        self.verdicts.take_batch()
    }

    /// How many retries are among the verdicts that are ready to be stored.
    pub fn batch_retries(&self) -> usize {
        self.verdicts.retries()
    }

    /// The last batch was given to the engine under `ticket`.
    pub fn submitted(&mut self, ticket: Ticket, len: usize, now: Time) {
        let over = self.suspects.submitted(ticket);
        self.suspects_over(over, now);
        self.verdicts.submitted(ticket, len);
    }

    /// The batch of `ticket` and all before it are stored; the resulting dead letters are appended to `parked`.
    pub fn durable(&mut self, ticket: Ticket, now: Time, parked: &mut Vec<Parked>) {
        let over = self.suspects.durable(|given| given <= ticket);
        self.suspects_over(over, now);
        self.verdicts.durable(ticket, parked);
    }

    /// The batch of `ticket` is stored, although an earlier one cannot be for now.
    pub fn durable_alone(&mut self, ticket: Ticket, now: Time, parked: &mut Vec<Parked>) {
        let over = self.suspects.durable(|given| given == ticket);
        self.suspects_over(over, now);
        self.verdicts.durable_alone(ticket, parked);
    }

    /// Reports it if the last suspect was settled, with the number cleared.
    fn suspects_over(&mut self, cleared: Option<u64>, now: Time) {
        if let Some(cleared) = cleared {
            self.protection.note(HealthChange::SuspectsCleared { cleared }, now);
        }
    }

    /// Takes nothing from now on. Running calls may finish; calls that wait in place are deferred.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.let_all_go();
    }

    /// Opens or shuts the take gate. While it is shut nothing may start, so nothing waits in place: it goes back to
    /// the engine.
    pub fn gate(&mut self, gate: TakeGate) {
        self.paused = gate.is_shut();
        if self.paused {
            self.let_all_go();
        }
    }

    /// Returns everything that waits here to the engine.
    fn let_all_go(&mut self) {
        self.interrupt_waits();
        let suspects = self.suspects.take_all();
        self.release(suspects);
        let queued = self.routes.as_mut().map(Routes::take_queued).unwrap_or_default();
        self.release(queued);
        let apart = self.resets.take_waiting(Time::ZERO);
        self.release(apart);
        for undecided in self.unconfirmed.take_all() {
            let now = undecided.ended;
            self.defer_unconfirmed(undecided, now);
        }
    }

    fn release(&mut self, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            self.settle(settle::released(delivery), None);
        }
    }

    /// Abandons all running calls without counting their attempts. Returns how many there were.
    pub fn give_up(&mut self) -> usize {
        self.stop();
        let calls = self.calls.remove_all();
        let given_up = calls.len();
        self.meters.given_up(given_up);
        for call in calls {
            self.put_back(call);
        }
        given_up
    }

    /// Whether a suspect was taken since this process began.
    pub fn has_met_suspects(&self) -> bool {
        self.suspects.has_met_any()
    }

    /// Records that several runs in a row ended without a clean stop while no message was suspected.
    pub fn note_unclean_ends(&mut self, runs: u32, now: Time) {
        self.protection.note(HealthChange::UncleanEnds { runs }, now);
    }

    /// How the next suspect would run, if it may start now as far as this pipeline is concerned.
    pub fn suspect_turn(&self) -> Option<Run> {
        let run = self.suspects.turn()?;
        // It may be the only message left that can probe the sink.
        let may = !self.stopping && !self.paused && self.may_call();
        (may && (run == Run::Alone || self.is_at_rest())).then_some(run)
    }

    /// The suspect whose turn it is, and those that may be announced together with it.
    pub fn suspects_in_turn(&self) -> Vec<Receipt> {
        self.suspects.in_turn()
    }

    /// Whether a suspect is running, or ran and its turn is not over.
    pub fn suspect_runs(&self) -> bool {
        self.suspects.is_running()
    }

    /// Starts the suspect whose turn it is. The caller has announced it.
    pub fn start_suspect(&mut self, now: Time, starts: &mut Vec<Start>) {
        let Some(permit) = self.permits.take() else { return };
        let is_probe = self.protection.admit_anybody();
        let Some(SuspectStart { delivery, crashes, exclusive, left }) = self.suspects.start() else { return };
        let message_id = delivery.message.id().to_owned();
        let threshold = suspects::quarantined_at(self.policy.crash_threshold());
        self.protection
            .note(HealthChange::RunsAlone { message_id, crashes, threshold, exclusive, left }, now);
        self.begin(Call { is_suspect: true, is_probe, ..Call::new(delivery, now, permit) }, starts);
    }

    /// Drops the suspect whose turn it is, because it now belongs to another member.
    pub fn drop_suspect(&mut self) {
        let dropped = self.suspects.pop();
        self.release(dropped.into_iter().collect());
    }

    /// Deliveries that hold a permit: their handler runs, or they wait in place.
    pub fn started(&self) -> impl Iterator<Item = &Delivery> {
        self.calls.iter().map(|(_, call)| &call.delivery)
    }

    /// Whether the handler of this message is running.
    pub fn runs(&self, number: u64) -> bool {
        self.calls.runs(number)
    }

    /// Deliveries that were taken and hold no permit: they wait for their endpoint, or for their turn as suspects.
    pub fn unstarted(&self) -> impl Iterator<Item = &Delivery> {
        self.suspects.waiting().chain(self.routes.iter().flat_map(Routes::waiting))
    }

    /// Withdraws the delivery with this number, unless its handler is running.
    pub fn withdraw(&mut self, number: u64) -> Withdrawn {
        let found = self.calls.withdraw(number);
        if !matches!(found, Withdrawn::NotHere) {
            return found;
        }
        let queued = self.routes.as_mut().and_then(|routes| routes.withdraw(number));
        let taken = queued.or_else(|| self.suspects.remove(number));
        taken.map_or(Withdrawn::NotHere, |delivery| Withdrawn::Taken(Box::new(delivery)))
    }

    /// Dead-letters a withdrawn delivery as cancelled.
    pub fn cancel(&mut self, delivery: Delivery, now: Time) {
        self.settle(settle::dead(delivery, Reason::Cancelled, now), None);
    }

    /// Takes a replayed message back. It did not die, so nothing is counted or reported.
    pub fn recall(&mut self, settlement: Settlement) {
        self.resets.forget(settlement.delivery.receipt.number());
        self.verdicts.push_silently(settlement);
    }

    /// Makes a withdrawn delivery due now.
    pub fn make_due(&mut self, delivery: Delivery, now: Time) {
        let meta = Meta { deferred: false, ..delivery.meta };
        self.settle(settle::put_off(Delivery { meta, ..delivery }, now), None);
    }

    /// Releases a withdrawn delivery.
    pub fn let_go(&mut self, delivery: Delivery) {
        self.settle(settle::released(delivery), None);
    }

    /// The call that has run for the longest, and its message.
    pub fn longest_running(&self) -> Option<(CallId, &Message)> {
        self.calls.longest_running().map(|(id, call)| (id, &call.delivery.message))
    }

    /// How many handlers are running.
    pub fn running(&self) -> usize {
        self.calls.running()
    }

    /// How many calls hold a permit, running or waiting in place.
    pub fn permits_held(&self) -> usize {
        self.calls.len()
    }

    /// How many calls wait in place.
    pub fn waiting_in_place(&self) -> usize {
        self.calls.waiting()
    }

    /// Whether nothing runs and nothing waits to become durable. Calls that wait in place count as at rest: only time
    /// moves them.
    pub fn is_at_rest(&self) -> bool {
        self.calls.running() == 0 && self.verdicts.unsettled() == 0
    }

    /// When time alone brings work; `next_due` is the engine's next due time.
    pub fn next_wake(&self, next_due: Option<Time>) -> Option<Time> {
        let taken = next_due.filter(|_| self.room_for_due() > 0);
        let health = self.protection.next_wake().into_iter().chain(self.sweep.next());
        let in_place = self.calls.next_due().filter(|_| !self.is_reserved());
        let waiting = self.resets.next_wake(self.may_call()).into_iter().chain(self.unconfirmed.next_wake());
        taken.into_iter().chain(in_place).chain(health).chain(waiting).min()
    }

    /// The counters, and the gauges that are known here.
    pub fn figures(&mut self, now: Time) -> Figures {
        let health = HealthFigures {
            endpoints: self.routes.as_mut().map(|routes| routes.figures(self.resets.reserved(), now)),
            suspects: self.suspects.len() as u64,
            resets: self.resets.figures(),
            ..self.protection.figures(now)
        };
        Figures {
            health,
            running: self.calls.running(),
            waiting_in_place: self.calls.waiting(),
            oldest_pending: self.calls.oldest(),
            ..self.meters.figures(now)
        }
    }

    pub fn tally(&self) -> Tally {
        self.meters.tally()
    }
}
