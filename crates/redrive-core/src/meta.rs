//! What is remembered of a message between attempts. Small and plain: it is written with every retry.

use crate::{Class, Decision, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Meta {
    /// When the message was made; the TTL counts from here.
    pub created: Time,
    /// The attempt that would start at or after this instant is not made.
    pub deadline: Option<Time>,
    /// Counted failed attempts so far. A replay starts again at zero.
    pub attempts: u32,
    /// Calls that did not count (outage gate, credential, reconnect), since the last replay.
    pub uncounted: u32,
    /// Reconnects in a row.
    pub reconnects: u32,
    /// Attempts that ended in a crash.
    pub crashes: u32,
    /// How often it was driven again out of the dead letters.
    pub replays: u32,
    /// The first failure (the `x-first-seen` of Kafka's headers).
    pub first_failed: Option<Time>,
    /// Time spent deferred so far, in milliseconds; bounded by `hold_max`.
    pub held_ms: u64,
    /// The last counted delay in milliseconds; what decorrelated jitter grows from.
    pub last_delay_ms: u64,
}

impl Meta {
    /// The meta after a failed attempt of `class` was decided at `now`. Pure bookkeeping: no judgement here.
    #[must_use]
    pub fn after(self, class: Class, decision: &Decision, now: Time) -> Self {
        let mut next = self;
        next.first_failed = self.first_failed.or(Some(now));
        if class == Class::Crash {
            next.crashes = next.crashes.saturating_add(1);
        }
        next.reconnects = if class == Class::Reconnect { self.reconnects.saturating_add(1) } else { 0 };
        match decision {
            Decision::Complete => {}
            Decision::RetryAt(retry) if retry.counts => {
                next.attempts = next.attempts.saturating_add(1);
                next.last_delay_ms = retry.due.since(now).as_millis() as u64;
            }
            Decision::RetryAt(retry) => {
                next.uncounted = next.uncounted.saturating_add(1);
                next.held_ms = next.held_ms.saturating_add(retry.due.since(now).as_millis() as u64);
            }
            Decision::DeadLetter(_) => next.attempts = next.attempts.saturating_add(1),
        }
        next
    }

    /// The meta of a letter that is driven again: a fresh attempt budget, the story kept.
    #[must_use]
    pub fn replayed(self) -> Self {
        Self {
            attempts: 0,
            uncounted: 0,
            reconnects: 0,
            crashes: 0,
            held_ms: 0,
            last_delay_ms: 0,
            // A letter is replayed because somebody wants it delivered: its old deadline does not apply any more.
            deadline: None,
            replays: self.replays.saturating_add(1),
            ..self
        }
    }
}
