//! How the machine goes on after a call: success, a verdict, or a wait in place for the next attempt.

use std::time::Duration;

use redrive_core::breaker::Sign;
use redrive_core::endpoints::{Contact, EndpointCall};
use redrive_core::policy::Mode;
use redrive_core::{Decision, FailureKind, Meta, Random, Reason, Time, expired};

use super::calls::Call;
use super::failed::AttemptFailed;
use super::machine::{Machine, Start};
use super::protection::{CallEnd, Told, is_first};
use super::settling::Settling;
use crate::engine::{Settlement, Verdict};
use crate::failure::Failure;
use crate::figures::Figures;
use crate::settle::{self, Moment};

impl Machine {
    pub(super) fn succeeded(&mut self, call: Call, now: Time) {
        let Meta { created, .. } = call.delivery.meta;
        self.figures.attempts.ok += 1;
        if created > Time::ZERO {
            self.figures.end_to_end.observe_ms(now.as_millis().saturating_sub(created.as_millis()));
        }
        self.protection.took(now.since(call.started));
        self.clear_of_reset(&call, now);
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
        let (message, is_first) = (delivery.receipt.number(), is_first(&delivery.meta));
        let opened = self.protection.ended(CallEnd { message, is_first, is_probe: *is_probe, told }, now);
        let is_good = match told {
            Told::Sign(sign) => Some(sign == Sign::Good),
            Told::Busy | Told::Nothing => None,
        };
        self.tell_endpoint(call, EndpointCall { is_first, is_good, retry_after, voice: None }, contact, now);
        if opened {
            // Nothing is sent any more, so nothing waits in place for being sent.
            self.interrupt_waits();
        }
    }

    pub(super) fn attempt_failed(&mut self, mut call: Call, failure: Failure, now: Time, random: Random) {
        let failure = self.blame_for_reset(&mut call, failure, now);
        let asked = failure.retry_after().map(|asked| asked.min(self.policy.retry_after_max()));
        let told = Told::of(&failure, &call.delivery.meta);
        self.tell_protection(&call, told, contact(&failure), asked, now);
        if let Some(asked) = asked {
            self.protection.asked_to_wait(asked, now);
        }
        let mut views = self.protection.views(now);
        if let (Some(routes), Some(to)) = (&self.routes, call.to) {
            views.health = routes.endpoints.health(to, now).unwrap_or(views.health);
        }
        let Call { delivery, started, permit, is_suspect, .. } = call;
        let delivery = self.with_time_held(delivery, started);
        let moment = Moment { policy: &self.policy, views: &views, now, random };
        let (settlement, decision) = settle::failed(delivery, started, &failure, moment);
        if let Decision::RetryAt(retry) = &decision {
            self.protection.spend(retry.spends);
        }
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
            Verdict::Retry { due, meta } if self.waits_in_place() && !is_suspect => {
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
            let nothing = EndpointCall { is_first: false, is_good: None, retry_after: None, voice: None };
            if let Some(routes) = &mut self.routes {
                routes.ended(to, nothing, Time::ZERO);
            }
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
        self.start_freed(now, starts);
        while let Some(call) = self.waiting.pop_due(now) {
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
