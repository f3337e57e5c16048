//! Messages whose receiver broke off after it had got them: perhaps it died of one of them.
//!
//! What was under way when a receiver dies breaks off together, and nobody knows whose fault it was. So these messages run
//! alone when their time comes, as those do that may have killed this process; the one whose receiver breaks off again and
//! again while it runs alone, and answers others in between, is the one. All of it is known to this process only.

use std::collections::BTreeMap;

use redrive_core::suspects;
use redrive_core::{FailureKind, Meta, Time};

use super::calls::Call;
use super::machine::Machine;
use crate::engine::Suspect;
use crate::failure::Failure;

/// Messages that are remembered, and that wait for their turn. Beyond it a connection that breaks is just a failure: a
/// network that drops one connection in ten must not make everything run one by one.
const REMEMBERED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Resets {
    known: BTreeMap<u64, Known>,
    /// When the sink last answered anybody.
    answered: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    times: u32,
    first: Time,
    last: Time,
}

impl Resets {
    pub(super) fn answered(&mut self, now: Time) {
        if !self.known.is_empty() {
            self.answered = Some(now);
        }
    }

    /// How a message with this number has to run.
    fn suspect(&self, message: u64) -> Option<Suspect> {
        let Known { times, first, last } = *self.known.get(&message)?;
        Some(Suspect { crashes: times, first_crash: Some(first), last_crash: Some(last) })
    }

    fn forget(&mut self, message: u64) {
        self.known.remove(&message);
    }

    /// The receiver broke off. How often it has, while this message was to blame.
    fn broke_off(&mut self, message: u64, was_alone: bool, now: Time) -> u32 {
        let answered = self.answered;
        if let Some(known) = self.known.get_mut(&message) {
            // Without an answer to anybody in between it is just gone.
            let blame = was_alone && answered.is_some_and(|answered| answered >= known.last);
            known.times += u32::from(blame);
            known.last = now;
            return known.times;
        }
        if self.known.len() < REMEMBERED_MAX {
            self.known.insert(message, Known { times: 1, first: now, last: now });
        }
        1
    }
}

impl Machine {
    /// Whether a delivery that was taken must run alone because of what its receiver did.
    pub(super) fn suspected_by_receiver(&self, message: u64) -> Option<Suspect> {
        self.resets.suspect(message).filter(|_| self.suspects.len() < REMEMBERED_MAX)
    }

    /// Looks at a failure. If the message has made its receiver break off too often, the failure is a crash from here on.
    pub(super) fn blame_for_reset(&mut self, call: &mut Call, failure: Failure, now: Time) -> Failure {
        let message = call.delivery.receipt.number();
        if failure.kind() != FailureKind::Reset {
            self.resets.forget(message);
            return failure;
        }
        let times = self.resets.broke_off(message, call.is_suspect, now);
        let threshold = self.policy.crash_threshold();
        if !suspects::is_convicted(times, threshold) {
            return failure;
        }
        self.resets.forget(message);
        let before = threshold.saturating_sub(1);
        call.delivery.meta = Meta { crashes: before, last_crash: Some(now), ..call.delivery.meta };
        let text =
            format!("{}; the receiver broke off {times} times while this message ran alone", failure.chain());
        Failure::crash(text).of_kind(FailureKind::Reset).ambiguous()
    }

    pub(super) fn clear_of_reset(&mut self, call: &Call, now: Time) {
        self.resets.answered(now);
        self.resets.forget(call.delivery.receipt.number());
    }
}
