//! Counts what happens to deliveries: counters and histograms since the process began, and figures of the last
//! minutes.

use std::sync::Arc;

use redrive_core::{Decision, Meta, Policy, Time};

use super::calls::Call;
use crate::engine::{Delivery, Settlement, Verdict};
use crate::failure::Failure;
use crate::figures::{Figures, recent::Recent};
use crate::settle;

/// Totals of the decisions so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tally {
    pub succeeded: u64,
    /// Includes retries in place.
    pub retried: u64,
    pub dead: u64,
    pub released: u64,
}

#[derive(Debug)]
pub(super) struct Meters {
    figures: Figures,
    recent: Recent,
    released: u64,
}

impl Meters {
    pub(super) fn new(policy: &Policy) -> Self {
        Self { figures: Figures::new(policy), recent: Recent::default(), released: 0 }
    }

    pub(super) fn taken(&mut self, deliveries: &[Delivery]) {
        let new = deliveries.iter().filter(|delivery| settle::is_new(delivery)).count();
        self.figures.consumed += new as u64;
    }

    pub(super) fn started(&mut self, call: &Call) {
        let Delivery { message, meta, due, .. } = &call.delivery;
        let attempt = settle::next_call(meta);
        // A first delivery waited only if it was due after its creation.
        if let Some(due) = due
            && (attempt > 1 || (message.key().is_none() && *due > message.created()))
        {
            self.figures.retry_lateness.observe_ms(call.started.as_millis().saturating_sub(due.as_millis()));
            self.recent.late(*due, call.started);
        }
        if due.is_none() && attempt == 1 && meta.replays == 0 {
            let since = call.delivery.arrived.unwrap_or(message.created()).max(message.created());
            self.figures.stall.observe(call.started.since(since));
        }
    }

    pub(super) fn succeeded(&mut self, delivery: &Delivery, now: Time) {
        let Meta { created, held_ms, .. } = delivery.meta;
        self.figures.attempts.ok += 1;
        if created > Time::ZERO {
            self.figures.end_to_end.observe_ms(now.as_millis().saturating_sub(created.as_millis()));
            self.recent.succeeded(created, held_ms, delivery.due.unwrap_or(created), now);
        }
    }

    pub(super) fn failed(&mut self, delivery: &Delivery, failure: &Failure, now: Time) {
        self.figures.attempts.add(failure.class());
        self.recent.failed(failure.kind(), delivery.meta.replays > 0, now);
    }

    pub(super) fn decided(&mut self, decision: &Decision) {
        let Decision::RetryAt(retry) = decision else { return };
        let tier = self.tier_index(decision);
        self.figures.retries[tier].retries += 1;
        self.figures.deferred += u64::from(!retry.counts);
    }

    /// A message was deferred without an attempt.
    pub(super) fn deferred_unsent(&mut self) {
        self.figures.deferred += 1;
    }

    /// The label under which a decision is counted.
    pub(super) fn tier(&self, decision: &Decision) -> &Arc<str> {
        &self.figures.retries[self.tier_index(decision)].tier
    }

    /// The index of the decision's tier; without tiers there is one label for all.
    fn tier_index(&self, decision: &Decision) -> usize {
        let tier = if let Decision::RetryAt(retry) = decision { retry.tier } else { None };
        usize::from(tier.unwrap_or(0)).min(self.figures.retries.len() - 1)
    }

    pub(super) fn settled(&mut self, settlement: &Settlement) {
        match &settlement.verdict {
            Verdict::Done => {
                let calls = settle::next_call(&settlement.delivery.meta);
                self.figures.succeeded += 1;
                self.figures.retried_ended.succeeded += u64::from(calls > 1);
                self.figures.attempts_per_message.observe_number(u64::from(calls));
            }
            Verdict::Retry { .. } => {}
            Verdict::Release => {
                self.figures.consumed -=
                    u64::from(settle::is_new(&settlement.delivery)).min(self.figures.consumed);
                self.released += 1;
            }
            Verdict::Dead { reason, meta, .. } => {
                self.figures.dead.add(*reason);
                let calls = u64::from(meta.attempts) + u64::from(meta.uncounted);
                self.figures.retried_ended.dead += u64::from(calls > 1);
                self.figures.attempts_per_message.observe_number(calls);
            }
        }
    }

    /// Calls were abandoned: their messages will be called again.
    pub(super) fn given_up(&mut self, calls: usize) {
        self.figures.repeats += calls as u64;
    }

    /// Whether messages are held back now.
    pub(super) fn gate(&mut self, is_gated: bool, now: Time) {
        self.recent.gate(is_gated, now);
    }

    pub(super) fn dead(&self) -> u64 {
        self.figures.dead.total()
    }

    /// The counters.
    pub(super) fn figures(&mut self, now: Time) -> Figures {
        Figures { recent: self.recent.figures(now), ..self.figures.clone() }
    }

    pub(super) fn tally(&self) -> Tally {
        Tally {
            succeeded: self.figures.succeeded,
            retried: self.figures.retried(),
            dead: self.dead(),
            released: self.released,
        }
    }
}
