//! How the machine goes on after a call: success, a verdict, or a wait in place for the next attempt.

use std::time::Duration;

use redrive_core::breaker::Sign;
use redrive_core::endpoints::{Contact, Endpoint, EndpointCall};
use redrive_core::policy::Mode;
use redrive_core::{Class, Decision, FailureKind, Health, Meta, Random, Reason, Time, expired};

use super::calls::Call;
use super::failed::AttemptFailed;
use super::machine::{Machine, Start};
use super::permits::Permit;
use super::protection::{CallEnd, Told, Which};
use super::settling::Settling;
use super::shared_wait::AskedWait;
use super::unconfirmed::Undecided;
use crate::engine::{Settlement, Verdict};
use crate::failure::Failure;
use crate::figures::Figures;
use crate::settle::{self, Moment, Views};

/// When an empty retry budget makes a dead letter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    AtOnce,
    /// Once the sink is known to be up: nothing may be dead-lettered for an outage that is not detected yet.
    OnceConfirmed,
    Never,
}

/// Resets possibly caused by another message that do not count as the last attempt. With the steps of a deferral they
/// take about a quarter of an hour.
const SHARED_RESETS_MAX: u32 = 8;

impl Machine {
    pub(super) fn succeeded(&mut self, call: Call, now: Time) {
        let Meta { created, held_ms, .. } = call.delivery.meta;
        self.figures.attempts.ok += 1;
        if created > Time::ZERO {
            self.figures.end_to_end.observe_ms(now.as_millis().saturating_sub(created.as_millis()));
            self.recent.succeeded(created, held_ms, call.delivery.due.unwrap_or(created), now);
        }
        self.protection.took(now.since(call.started));
        self.end_turn_at(&call, now);
        self.note_answer(&call, now);
        self.tell_protection(&call, Told::Sign(Sign::Good), Contact::Served, None, now);
        self.protection.succeeded(now);
        self.settle(settle::succeeded(call.delivery), None);
    }

    /// What the end of a call says about the sink, before anything is decided about the message.
    fn tell_protection(
        &mut self,
        call: &Call,
        told: Told,
        contact: Contact,
        retry_after: Option<Duration>,
        now: Time,
    ) {
        let Call { delivery, is_probe, is_suspect, .. } = call;
        if *is_suspect {
            self.suspect_settling = Settling::InBatch { cleared: true };
        }
        let (message, which) = (delivery.receipt.number(), Which::of(&delivery.meta));
        let opened = self.protection.ended(CallEnd { message, which, is_probe: *is_probe, told }, now);
        let (is_good, counts) = match told {
            Told::Sign(sign) => (Some(sign == Sign::Good), which.counts(sign)),
            Told::Busy | Told::Nothing => (None, false),
        };
        self.tell_endpoint(call, EndpointCall { counts, is_good, retry_after, voice: None }, contact, now);
        if is_good == Some(true) && !self.unconfirmed.is_empty() {
            self.confirm(call.to, call.started, now);
        }
        if opened {
            // Nothing is sent any more, so nothing waits in place for being sent.
            self.interrupt_waits();
        }
    }

    pub(super) fn attempt_failed(&mut self, mut call: Call, failure: Failure, now: Time, random: Random) {
        self.end_turn_at(&call, now);
        let (failure, is_shared) = self.blame_for_reset(&mut call, failure, now);
        let asked = failure.retry_after().map(|asked| asked.min(self.policy.retry_after_max()));
        let shared = asked.map(|asked| asked.min(self.policy.retry_after_shared_max()));
        let told = Told::of(&failure, &call.delivery.meta);
        self.tell_protection(&call, told, contact(&failure), shared, now);
        if let Some(asked) = asked.filter(|asked| !asked.is_zero()) {
            let until = now.plus(asked.min(self.policy.retry_after_shared_max()));
            let (message_id, kind) = (call.delivery.message.id().to_owned(), failure.kind());
            self.protection.asked_to_wait(AskedWait { since: now, until, asked, message_id, kind }, now);
        }
        let mut views = self.views_at(call.to, now);
        if views.health.is_healthy() && self.met_a_sink_that_is_down(&call, &failure, is_shared, now) {
            views.health = Health::Unhealthy { retry_in: Duration::ZERO };
        }
        self.figures.attempts.add(failure.class());
        self.recent.failed(failure.kind(), call.delivery.meta.replays > 0, now);
        let Call { delivery, started, permit, is_suspect, to, .. } = call;
        let delivery = self.with_time_held(delivery, started);
        let undecided = Undecided { delivery, started, ended: now, failure, random, to };
        let budget = match self.policy.mode() {
            Mode::Blocking => Letters::AtOnce,
            // A crash is the fault of the message.
            _ if undecided.failure.class() == Class::Crash => Letters::AtOnce,
            _ if is_suspect || self.stopping || self.paused || !self.unconfirmed.has_room() => Letters::Never,
            Mode::NonBlocking => Letters::OnceConfirmed,
        };
        self.conclude(undecided, &views, budget, Some(permit).filter(|_| !is_suspect));
    }

    /// Decides about a failed attempt and carries the decision out. With its permit the message may wait in place.
    fn conclude(&mut self, undecided: Undecided, views: &Views, budget: Letters, permit: Option<Permit>) {
        let Undecided { delivery, started, ended, failure, random, to } = undecided;
        let moment = Moment { policy: &self.policy, views, now: ended, random };
        let (settlement, decision) = settle::failed(delivery, started, &failure, moment);
        if decision == Decision::DeadLetter(Reason::BudgetExhausted) && budget != Letters::AtOnce {
            let undecided = Undecided { delivery: settlement.delivery, started, ended, failure, random, to };
            return match budget {
                Letters::OnceConfirmed => self.unconfirmed.push(undecided),
                _ => self.defer_unconfirmed(undecided, ended),
            };
        }
        if let Decision::RetryAt(retry) = &decision {
            self.protection.spend(retry.spends);
        }
        self.count_retry(&decision);
        if let Some(pipeline) = &self.watcher
            && let Some(attempt) = &settlement.attempt
        {
            let tier = &self.figures.retries[tier_of(&decision, &self.figures)].tier;
            let (delivery, decided) = (&settlement.delivery, (&decision, tier));
            self.failed.extend(AttemptFailed::new(pipeline, delivery, attempt, &failure, decided, ended));
        }
        match (settlement.verdict, permit) {
            (Verdict::Retry { due, meta }, Some(permit)) if self.waits_in_place() => {
                let Settlement { mut delivery, attempt, .. } = settlement;
                delivery.meta = meta;
                delivery.due = Some(due);
                if let Some(attempt) = &attempt {
                    delivery.history = delivery.history.with(attempt);
                }
                let call = Call { ahead_of_store: true, ..Call::new(delivery, started, permit) };
                let call = self.calls.insert(call);
                self.waiting.insert(due, call);
            }
            _ => self.settle(settlement, Some(failure)),
        }
    }

    /// The sink answered a call that started after others had failed: their empty budget counts.
    fn confirm(&mut self, to: Option<Endpoint>, started: Time, now: Time) {
        for undecided in self.unconfirmed.confirmed(to, started) {
            let views = self.views_at(undecided.to, now);
            self.conclude(undecided, &views, Letters::AtOnce, None);
        }
    }

    /// The sink may be down: defers the message.
    fn defer_unconfirmed(&mut self, undecided: Undecided, now: Time) {
        let health = Health::Unhealthy { retry_in: Duration::ZERO };
        let views = Views { health, ..self.protection.views(now) };
        self.conclude(undecided, &views, Letters::AtOnce, None);
    }

    /// Defers messages that have waited long enough for an answer.
    pub(super) fn tick_unconfirmed(&mut self, now: Time) {
        while let Some(undecided) = self.unconfirmed.pop_late(now) {
            self.defer_unconfirmed(undecided, now);
        }
    }

    /// Defers all messages that wait for an answer.
    pub(super) fn defer_all_unconfirmed(&mut self) {
        for undecided in self.unconfirmed.take_all() {
            let now = undecided.ended;
            self.defer_unconfirmed(undecided, now);
        }
    }

    /// The views for a decision about a message that goes to `to`.
    fn views_at(&mut self, to: Option<Endpoint>, now: Time) -> Views {
        let mut views = self.protection.views(now);
        if let (Some(routes), Some(to)) = (&self.routes, to) {
            views.health = routes.endpoints.health(to, now).unwrap_or(views.health);
        }
        views
    }

    /// Whether this attempt shows that the sink is down before breaker and pulse do: the message cannot have caused what it
    /// met, or nothing has succeeded since it first failed. Such an attempt must not end it.
    fn met_a_sink_that_is_down(&self, call: &Call, failure: &Failure, is_shared: bool, now: Time) -> bool {
        let meta = &call.delivery.meta;
        if self.protection.has_stopped(meta, now) {
            return true;
        }
        match (&self.routes, call.to) {
            _ if is_shared => meta.uncounted < SHARED_RESETS_MAX,
            _ if !failure.never_arrived() => false,
            // The endpoint is named by the message and may never have existed. One that restarts has answered since.
            (Some(routes), Some(to)) => {
                let since = meta.first_failed;
                routes.endpoints.answered(to).is_some_and(|at| since.is_some_and(|since| at >= since))
            }
            _ => self.protection.is_one_endpoint(),
        }
    }

    fn count_retry(&mut self, decision: &Decision) {
        let Decision::RetryAt(retry) = decision else { return };
        let tier = tier_of(decision, &self.figures);
        self.figures.retries[tier].retries += 1;
        if !retry.counts {
            self.figures.deferred += 1;
        }
    }

    fn waits_in_place(&self) -> bool {
        self.policy.mode() == Mode::Blocking && !self.stopping && !self.paused && !self.protection.is_open()
    }

    /// A call without an end: as if it had not been started, but attempts in place that it made before are kept.
    pub(super) fn put_back(&mut self, call: Call) {
        if let Some(to) = call.to {
            let nothing = EndpointCall { counts: false, is_good: None, retry_after: None, voice: None };
            if let Some(routes) = &mut self.routes {
                routes.ended(to, nothing, Time::ZERO);
            }
        }
        if let Some(place) = call.turn {
            self.resets.turn_over(place, Time::ZERO);
        }
        if call.is_probe {
            self.protection.probe_given_up();
        }
        if call.is_suspect {
            self.suspect_settling = Settling::InBatch { cleared: false };
        }
        if call.ahead_of_store {
            let due = call.delivery.due.unwrap_or_default();
            self.settle(settle::put_off(call.delivery, due), None);
        } else {
            self.settle(settle::released(call.delivery), None);
        }
    }

    /// Ends every wait in place: what waits becomes an ordinary retry, with all its attempts.
    pub(super) fn interrupt_waits(&mut self) {
        for (due, call) in self.waiting.take_all() {
            if let Some(call) = self.calls.remove(call) {
                self.settle(settle::put_off(call.delivery, due), None);
            }
        }
    }

    /// Starts again what waited in place and whose time has come; a deadline that passed meanwhile ends it instead.
    pub fn restart_due(&mut self, now: Time, starts: &mut Vec<Start>) {
        self.start_apart(now, starts);
        self.start_freed(now, starts);
        while !self.is_reserved()
            && let Some(call) = self.waiting.pop_due(now)
        {
            let Some(call) = self.calls.remove(call) else { continue };
            if expired(&call.delivery.meta, now) {
                self.settle(settle::dead(call.delivery, Reason::TtlExceeded, now), None);
            } else {
                self.go_on(call, now, starts);
            }
        }
    }

    /// While paused nothing waits in place, because nothing shall be started: it waits in the engine behind its gate.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if paused {
            self.interrupt_waits();
            self.release_suspects();
            self.release_lot();
            self.release_apart();
            self.defer_all_unconfirmed();
        }
    }
}

/// How far a failed call came. A timeout before anything was sent is one of connecting.
fn contact(failure: &Failure) -> Contact {
    match failure.kind() {
        FailureKind::Refused => Contact::Unreachable,
        FailureKind::Timeout if !failure.is_ambiguous() => Contact::Unreachable,
        _ => Contact::Failed,
    }
}

/// Where a decision is counted; where there are no tiers, there is one label for all.
fn tier_of(decision: &Decision, figures: &Figures) -> usize {
    let tier = if let Decision::RetryAt(retry) = decision { retry.tier } else { None };
    usize::from(tier.unwrap_or(0)).min(figures.retries.len() - 1)
}
