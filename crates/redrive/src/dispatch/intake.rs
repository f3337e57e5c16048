//! What the machine makes of deliveries that were taken: started, put off, told to wait for their turn, given back, or at
//! their end already.

use std::time::Duration;

use redrive_core::{Reason, Time, expired, outlasts_hold};

use super::calls::Call;
use super::machine::{Machine, Start};
use super::protection::Admission;
use crate::engine::Delivery;
use crate::settle;

/// How long the message that opened the breaker waits while others are the probes.
const ANOTHER_PROBE: Duration = Duration::from_secs(5);

impl Machine {
    /// Looks at what was taken: most is to be started, some is settled without a start.
    pub fn taken(&mut self, deliveries: &mut Vec<Delivery>, now: Time, starts: &mut Vec<Start>) {
        for delivery in deliveries.iter() {
            self.figures.consumed += u64::from(settle::is_new(delivery));
        }
        let sweep = self.sweep.is_on().then(|| self.figures.dead.total());
        self.taken_again(deliveries, now, starts);
        if let Some(dead) = sweep {
            self.sweep.looked((self.figures.dead.total() - dead) as usize);
        }
        self.note_suspects(now);
    }

    /// The same for deliveries that were taken before and have waited here since.
    pub(super) fn taken_again(&mut self, deliveries: &mut Vec<Delivery>, now: Time, starts: &mut Vec<Start>) {
        for delivery in deliveries.drain(..) {
            if let Some(reason) = delivery.doomed {
                self.settle(settle::dead(delivery, reason, now), None);
            } else if expired(&delivery.meta, now) {
                self.settle(settle::dead(self.with_time_held(delivery, now), Reason::TtlExceeded, now), None);
            } else if self.protection.is_out_of_reach() && self.is_held_too_long(&delivery, now) {
                self.settle(settle::dead(self.with_time_held(delivery, now), Reason::HoldExpired, now), None);
            } else if let Some(suspect) = delivery.suspect.as_deref().copied() {
                self.suspect(delivery, suspect, now);
            } else if let Some(delivery) = self.admit_apart(delivery, now) {
                self.start(delivery, None, now, starts);
            }
        }
    }

    /// A message that was kept from the sink until `now` says for how long.
    pub(super) fn with_time_held(&self, mut delivery: Delivery, now: Time) -> Delivery {
        let kept_ms = self.kept_ms(&delivery, now);
        delivery.meta.held_ms = delivery.meta.held_ms.saturating_add(kept_ms);
        delivery
    }

    fn kept_ms(&self, delivery: &Delivery, now: Time) -> u64 {
        self.protection.kept_ms(delivery.due.unwrap_or(delivery.meta.created), now)
    }

    /// Whether a message has waited for the sink for as long as it may. Asked only while the sink is out of reach: what
    /// can be delivered is.
    fn is_held_too_long(&self, delivery: &Delivery, now: Time) -> bool {
        outlasts_hold(&self.policy, delivery.meta.held_ms.saturating_add(self.kept_ms(delivery, now)))
    }

    /// Starts a delivery if everything allows it; `turn` is the place at which it has its turn, if it has one.
    pub(super) fn start(
        &mut self,
        delivery: Delivery,
        turn: Option<u64>,
        now: Time,
        starts: &mut Vec<Start>,
    ) {
        // An engine that hands out more than there was room for, or while stopping, gets the rest back.
        let Some(permit) = self.permits.take().filter(|_| !self.stopping) else {
            return self.settle(settle::released(delivery), None);
        };
        match self.protection.admit(delivery.receipt.number(), self.permits.used() - 1) {
            Admission::Free => {
                if let Some((delivery, to)) = self.route(delivery, turn, now) {
                    self.begin(Call { to, turn, ..Call::new(delivery, now, permit) }, starts);
                }
            }
            Admission::Probe => {
                self.begin(Call { is_probe: true, turn, ..Call::new(delivery, now, permit) }, starts);
            }
            Admission::Another => {
                let delivery = self.with_time_held(delivery, now);
                let settlement = self.defer_unsent(delivery, now.plus(ANOTHER_PROBE), now);
                self.settle(settlement, None);
            }
            Admission::Closed => self.settle(settle::released(delivery), None),
        }
    }

    pub(super) fn begin(&mut self, call: Call, starts: &mut Vec<Start>) {
        let Delivery { message, meta, due, .. } = &call.delivery;
        let attempt = settle::next_call(meta);
        // A first delivery waited only if it was due after it was made; a due time before that says nothing.
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
        let (message, replays, origin) = (message.clone(), meta.replays, call.delivery.origin.clone());
        self.protection.started(self.permits.used(), call.started);
        let call = self.calls.insert(call);
        starts.push(Start { call, message, attempt, replays, origin });
    }
}
