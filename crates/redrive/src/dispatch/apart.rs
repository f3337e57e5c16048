//! How the machine runs messages whose receiver closed the connection: they wait for their turn at their endpoint, without a
//! permit, and one that is convicted becomes a dead letter.

use redrive_core::{FailureKind, Meta, Reason, Time, expired, suspects};

use super::calls::Call;
use super::health::HealthChange;
use super::machine::{Machine, Start};
use super::resets::{Blame, Closed, SOLE_ENDPOINT, Turn};
use crate::engine::Delivery;
use crate::failure::Failure;
use crate::settle;

impl Call {
    /// The key its resets are counted under.
    pub(super) fn endpoint(&self) -> u64 {
        self.to.map_or(SOLE_ENDPOINT, |to| to.endpoint)
    }
}

impl Machine {
    /// Returns the delivery if it may start, or queues it until its turn.
    pub(super) fn admit_apart(&mut self, delivery: Delivery, now: Time) -> Option<Delivery> {
        // While the sink is out of reach there are only probes, which run one at a time anyway.
        if self.resets.is_idle() || self.stopping || self.paused || self.protection.is_out_of_reach() {
            return Some(delivery);
        }
        self.resets.admit(delivery, &self.policy, now)
    }

    /// Starts messages whose turn it is, as far as permits allow.
    pub(super) fn start_apart(&mut self, now: Time, starts: &mut Vec<Start>) {
        if self.resets.is_idle() || self.stopping || self.paused || self.suspects.want_silence() {
            return;
        }
        while self.permits.free() > 0 && self.protection.room(self.permits.used()) > 0 {
            let (routes, running) = (&self.routes, self.calls.len() - self.waiting.len());
            let in_flight =
                |endpoint| routes.as_ref().map_or(running, |routes| routes.endpoints.running(endpoint));
            let Some(Turn { delivery, endpoint }) = self.resets.next(in_flight, now) else { return };
            let before = starts.len();
            if expired(&delivery.meta, now) {
                self.settle(settle::dead(delivery, Reason::TtlExceeded, now), None);
            } else {
                self.start(delivery, endpoint, now, starts);
            }
            if let Some(endpoint) = endpoint.filter(|_| starts.len() == before) {
                self.resets.turn_over(endpoint, now);
            }
        }
    }

    pub(super) fn tick_resets(&mut self, now: Time) {
        if let Some((more, within)) = self.resets.tick(now) {
            self.protection.tell(HealthChange::ReceiverClosedMore { more, within }, now);
        }
        if self.protection.is_out_of_reach() {
            self.release_apart();
        }
        let freed = self.resets.freed();
        if let Some(routes) = &mut self.routes {
            freed.for_each(|endpoint| routes.free_again(endpoint));
        }
    }

    /// Ends the turn of a call, if it had one.
    pub(super) fn end_turn_at(&mut self, call: &Call, now: Time) {
        if let Some(endpoint) = call.turn {
            self.resets.turn_over(endpoint, now);
        }
    }

    /// An answer clears its message, and shows that the endpoint is up.
    pub(super) fn note_answer(&mut self, call: &Call, now: Time) {
        if !self.resets.is_idle() {
            self.resets.answered(call.delivery.receipt.number(), call.endpoint(), now);
        }
    }

    /// Attributes a reset. Returns whether another message may have caused it; the failure of a convicted message becomes a
    /// crash.
    pub(super) fn blame_for_reset(
        &mut self,
        call: &mut Call,
        failure: Failure,
        now: Time,
    ) -> (Failure, bool) {
        match failure.kind() {
            FailureKind::Reset => {}
            FailureKind::Status(_) | FailureKind::Other => {
                self.note_answer(call, now);
                return (failure, false);
            }
            // No answer, but not a reset either.
            FailureKind::Refused | FailureKind::Timeout => return (failure, false),
        }
        let (message, endpoint) = (call.delivery.receipt.number(), call.endpoint());
        let others = match &self.routes {
            // This call is still counted there.
            Some(routes) => routes.endpoints.running(endpoint).saturating_sub(1),
            None => self.running(),
        };
        let closed = Closed { message, endpoint, in_turn: call.turn.is_some(), others };
        let Blame { times, is_shared, is_convicted, is_logged } =
            self.resets.closed(closed, &self.policy, now);
        let threshold = suspects::convicted_at(self.policy.crash_threshold());
        let message_id = || call.delivery.message.id().to_owned();
        if is_logged {
            let blame = times.map(|times| (times, threshold));
            self.protection.tell(HealthChange::ReceiverClosed { message_id: message_id(), blame }, now);
        }
        let Some(times) = times.filter(|_| is_convicted) else { return (failure, is_shared) };
        self.protection.note(HealthChange::ReceiverKilled { message_id: message_id(), times }, now);
        let before = self.policy.crash_threshold().saturating_sub(1);
        call.delivery.meta = Meta { crashes: before, last_crash: Some(now), ..call.delivery.meta };
        let text = format!(
            "{}; the receiver closed the connection {times} times while handling this message, the last time with \
             nothing else in flight there, and answered others in between",
            failure.chain()
        );
        (Failure::crash(text).of_kind(FailureKind::Reset).ambiguous(), false)
    }

    /// Releases messages that wait for their turn.
    pub(super) fn release_apart(&mut self) {
        for delivery in self.resets.take_waiting(Time::ZERO) {
            self.settle(settle::released(delivery), None);
        }
    }
}
