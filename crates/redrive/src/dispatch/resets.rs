//! Messages whose receiver broke off after it had got them: perhaps it died of one of them.
//!
//! What was under way when a receiver dies breaks off together, and nobody knows whose fault it was. So these messages run
//! alone when their time comes, as those do that may have killed this process; the one whose receiver breaks off again and
//! again while it runs alone, and answers others in between, is the one. All of it is known to this process only.

use std::collections::BTreeMap;

use redrive_core::Time;

use crate::engine::Suspect;

/// Messages that are remembered, and that wait for their turn. Beyond it a connection that breaks is just a failure: a
/// network that drops one connection in ten must not make everything run one by one.
pub(super) const REMEMBERED_MAX: usize = 64;

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
    pub(super) fn suspect(&self, message: u64) -> Option<Suspect> {
        let Known { times, first, last } = *self.known.get(&message)?;
        Some(Suspect { crashes: times, first_crash: Some(first), last_crash: Some(last) })
    }

    pub(super) fn forget(&mut self, message: u64) {
        self.known.remove(&message);
    }

    /// The receiver broke off. How often it has, while this message was to blame.
    pub(super) fn broke_off(&mut self, message: u64, was_alone: bool, now: Time) -> u32 {
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
