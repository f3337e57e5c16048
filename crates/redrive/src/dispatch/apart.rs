//! How the machine treats messages whose receiver closed the connection while it handled them: they wait for their turn at
//! their place, without a permit, and one that is to blame becomes a dead letter.

use redrive_core::{FailureKind, Meta, Reason, Time, expired, suspects};

use super::calls::Call;
use super::health::HealthChange;
use super::machine::{Machine, Start};
use super::resets::{Blame, Closed, ONE_PLACE, Turn};
use crate::engine::Delivery;
use crate::failure::Failure;
use crate::settle;

impl Call {
    /// Where its resets are counted.
    pub(super) fn place(&self) -> u64 {
        self.to.map_or(ONE_PLACE, |to| to.endpoint)
    }
}

impl Machine {
    /// Lets a delivery pass, or keeps it until it has its turn.
    pub(super) fn admit_apart(&mut self, delivery: Delivery, now: Time) -> Option<Delivery> {
        // While the sink is out of reach there are only probes, one at a time as it is.
        if self.resets.is_idle() || self.stopping || self.paused || self.protection.is_out_of_reach() {
            return Some(delivery);
        }
        self.resets.admit(delivery, &self.policy, now)
    }

    /// Starts those whose turn it is, as far as there are permits.
    pub(super) fn start_apart(&mut self, now: Time, starts: &mut Vec<Start>) {
        if self.resets.is_idle() || self.stopping || self.paused || self.suspects.want_silence() {
            return;
        }
        while self.permits.free() > 0 && self.protection.room(self.permits.used()) > 0 {
            let (routes, running) = (&self.routes, self.calls.len() - self.waiting.len());
            let under_way = |place| routes.as_ref().map_or(running, |routes| routes.endpoints.running(place));
            let Some(Turn { delivery, place }) = self.resets.next(under_way, now) else { return };
            let before = starts.len();
            if expired(&delivery.meta, now) {
                self.settle(settle::dead(delivery, Reason::TtlExceeded, now), None);
            } else {
                self.start(delivery, place, now, starts);
            }
            if let Some(place) = place.filter(|_| starts.len() == before) {
                self.resets.turn_over(place, now);
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
        if let Some(routes) = &mut self.routes {
            self.resets.freed().for_each(|place| routes.free_again(place));
        }
    }

    /// The turn of a call is over.
    pub(super) fn end_turn_at(&mut self, call: &Call, now: Time) {
        if let Some(place) = call.turn {
            self.resets.turn_over(place, now);
        }
    }

    /// What an end that is no reset says: an answer clears the message, and shows that its place is there.
    pub(super) fn note_answer(&mut self, call: &Call, now: Time) {
        if !self.resets.is_idle() {
            self.resets.answered(call.delivery.receipt.number(), call.place(), now);
        }
    }

    /// Looks at a failure. Whether it may have been another message that the receiver died of; and if this one has made it
    /// break off too often, the failure is a crash from here on.
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
            // No answer, and nothing to blame anybody for.
            FailureKind::Refused | FailureKind::Timeout => return (failure, false),
        }
        let (message, place) = (call.delivery.receipt.number(), call.place());
        let others = match &self.routes {
            // This call is still counted there.
            Some(routes) => routes.endpoints.running(place).saturating_sub(1),
            None => self.running(),
        };
        let closed = Closed { message, place, in_turn: call.turn.is_some(), others };
        let Blame { times, is_shared, is_convicted, is_told } = self.resets.closed(closed, &self.policy, now);
        let threshold = suspects::convicted_at(self.policy.crash_threshold());
        let message_id = || call.delivery.message.id().to_owned();
        if is_told {
            let blame = times.map(|times| (times, threshold));
            self.protection.tell(HealthChange::ReceiverClosed { message_id: message_id(), blame }, now);
        }
        let Some(times) = times.filter(|_| is_convicted) else { return (failure, is_shared) };
        self.protection.note(HealthChange::ReceiverKilled { message_id: message_id(), times }, now);
        let before = self.policy.crash_threshold().saturating_sub(1);
        call.delivery.meta = Meta { crashes: before, last_crash: Some(now), ..call.delivery.meta };
        let text = format!(
            "{}; the receiver closed the connection {times} times while handling this message, the last time with \
             nothing else under way there, and answered others in between",
            failure.chain()
        );
        (Failure::crash(text).of_kind(FailureKind::Reset).ambiguous(), false)
    }

    /// Those that wait for their turn go back.
    pub(super) fn release_apart(&mut self) {
        for delivery in self.resets.take_waiting(Time::ZERO) {
            self.settle(settle::released(delivery), None);
        }
    }
}
