//! The state of a message between attempts. Small and plain: it is written with every retry.

use std::time::Duration;

use crate::time::millis;
use crate::{Class, Decision, Reason, Time};

/// The history of a message's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Meta {
    /// When the message was created; the TTL counts from here.
    pub created: Time,
    /// No attempt starts at or after this time.
    pub deadline: Option<Time>,
    /// Counted failed attempts so far. A replay starts again at zero.
    pub attempts: u32,
    /// Calls that did not count (outage gate, credential, reconnect), since the last replay.
    pub uncounted: u32,
    /// Attempts that ended in a stale connection, since the last replay.
    pub reconnects: u32,
    /// Attempts that ended in a crash, each within the policy's window of the one before.
    pub crashes: u32,
    /// When the last crash happened.
    pub last_crash: Option<Time>,
    /// How often it was replayed from the dead letters.
    pub replays: u32,
    /// The first failure (the `x-first-seen` of Kafka's headers).
    pub first_failed: Option<Time>,
    /// Time spent deferred so far, in milliseconds; bounded by `hold_max`.
    pub held_ms: u64,
    /// The last counted delay in milliseconds, the base of decorrelated jitter.
    pub last_delay_ms: u64,
    /// Whether it is deferred: its sink, its endpoint or the budget did not allow an attempt. Such a message is `held`
    /// in all counts; one that waits for a counted retry is `delayed`.
    pub deferred: bool,
}

impl Meta {
    /// The meta after a failed attempt of `class` and its decision at `now`. Pure bookkeeping: nothing is decided here.
    ///
    /// Every failed call is in exactly one of `attempts` and `uncounted`. Callers that have the policy use
    /// [`crate::after`] instead, which also forgets crashes that the policy's window no longer covers.
    #[must_use]
    pub fn after(self, class: Class, decision: &Decision, now: Time) -> Self {
        let mut next = self;
        let counted = match decision {
            Decision::Complete => return self,
            Decision::RetryAt(retry) => retry.counts,
            // A refused credential is our fault, and a held message uses up no attempts: the call that ends such a wait
            // does not count either.
            Decision::DeadLetter(reason) => class != Class::Credential && *reason != Reason::HoldExpired,
        };
        next.first_failed = self.first_failed.or(Some(now));
        // A stale connection is retried immediately: the message is not held.
        next.deferred = matches!(decision, Decision::RetryAt(retry) if !retry.counts && retry.due > now);
        if counted {
            next.attempts = self.attempts.saturating_add(1);
        } else {
            next.uncounted = self.uncounted.saturating_add(1);
        }
        if class == Class::Reconnect {
            next.reconnects = self.reconnects.saturating_add(1);
        }
        if class == Class::Crash {
            next.crashes = self.crashes.saturating_add(1);
            next.last_crash = Some(now);
        }
        if let Decision::RetryAt(retry) = decision {
            let delay_ms = millis(retry.due.since(now));
            if counted {
                next.last_delay_ms = delay_ms;
            } else {
                next.held_ms = self.held_ms.saturating_add(delay_ms);
            }
        }
        next
    }

    /// The meta without crashes that happened `window` or longer before `now`. Each crash renews the window.
    #[must_use]
    pub fn without_lapsed_crashes(self, window: Duration, now: Time) -> Self {
        match self.last_crash {
            Some(last) if now.since(last) >= window => Self { crashes: 0, last_crash: None, ..self },
            _ => self,
        }
    }

    /// The time left until the deadline; `None` without a deadline.
    pub fn ttl_remaining(&self, now: Time) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(now))
    }

    /// The meta of a replayed letter: attempts start again at zero, the history is kept.
    #[must_use]
    pub fn replayed(self) -> Self {
        Self {
            attempts: 0,
            uncounted: 0,
            reconnects: 0,
            crashes: 0,
            last_crash: None,
            held_ms: 0,
            last_delay_ms: 0,
            deferred: false,
            // A replay overrides the old deadline.
            deadline: None,
            replays: self.replays.saturating_add(1),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::decision::Retry;
    use super::*;

    const NOW: Time = Time::from_millis(10_000);

    fn retry(counts: bool) -> Decision {
        let due = NOW.plus(Duration::from_secs(3));
        Decision::RetryAt(Retry { due, counts, tier: None, spends: u32::from(counts) })
    }

    #[test]
    fn a_counted_retry_adds_an_attempt_and_remembers_its_delay() {
        let meta = Meta::default().after(Class::Transient, &retry(true), NOW);
        assert_eq!((meta.attempts, meta.uncounted, meta.last_delay_ms, meta.held_ms), (1, 0, 3_000, 0)); // S1-35
    }

    #[test]
    fn a_deferral_adds_only_to_what_does_not_count() {
        let before = Meta { attempts: 2, last_delay_ms: 7, held_ms: 5, ..Meta::default() };
        let meta = before.after(Class::Credential, &retry(false), NOW);
        assert_eq!((meta.attempts, meta.uncounted, meta.last_delay_ms, meta.held_ms), (2, 1, 7, 3_005));
    }

    #[test]
    fn only_what_waits_for_its_sink_is_deferred() {
        let counted = Meta::default().after(Class::Transient, &retry(true), NOW);
        let deferred = counted.after(Class::Credential, &retry(false), NOW);
        assert!(!counted.deferred && deferred.deferred);
        assert!(!deferred.after(Class::Transient, &retry(true), NOW).deferred);
        assert!(!deferred.after(Class::Transient, &Decision::DeadLetter(Reason::MaxRetries), NOW).deferred);
        let at_once = Decision::RetryAt(Retry { due: NOW, counts: false, tier: None, spends: 0 });
        assert!(!Meta::default().after(Class::Reconnect, &at_once, NOW).deferred);
    }

    #[test]
    fn a_dead_letter_counts_its_last_attempt_unless_it_was_only_held() {
        let dead = |class, reason| {
            let meta = Meta::default().after(class, &Decision::DeadLetter(reason), NOW);
            (meta.attempts, meta.uncounted)
        };
        assert_eq!(dead(Class::Transient, Reason::MaxRetries), (1, 0));
        assert_eq!(dead(Class::Permanent, Reason::Permanent), (1, 0));
        assert_eq!(dead(Class::Transient, Reason::TtlExceeded), (1, 0));
        assert_eq!(dead(Class::Transient, Reason::HoldExpired), (0, 1));
        assert_eq!(dead(Class::Credential, Reason::HoldExpired), (0, 1));
        assert_eq!(dead(Class::Credential, Reason::TtlExceeded), (0, 1));
    }

    #[test]
    fn the_first_failure_is_kept_and_success_changes_nothing() {
        let first = Meta::default().after(Class::Transient, &retry(true), NOW);
        let second = first.after(Class::Transient, &retry(true), NOW.plus(Duration::from_secs(9)));
        assert_eq!(second.first_failed, Some(NOW));
        assert_eq!(second.after(Class::Transient, &Decision::Complete, NOW), second);
    }

    #[test]
    fn reconnects_and_crashes_are_counted_in_total() {
        let meta = Meta::default()
            .after(Class::Reconnect, &retry(false), NOW)
            .after(Class::Transient, &retry(true), NOW)
            .after(Class::Reconnect, &retry(false), NOW)
            .after(Class::Crash, &retry(true), NOW);
        assert_eq!((meta.reconnects, meta.crashes, meta.last_crash), (2, 1, Some(NOW)));
        assert_eq!((meta.attempts, meta.uncounted), (2, 2));
    }

    #[test]
    fn crashes_lapse_a_window_after_the_last_one() {
        let window = Duration::from_mins(5);
        let meta = Meta { crashes: 2, last_crash: Some(NOW), ..Meta::default() };
        let within = NOW.plus(Duration::from_millis(299_999));
        assert_eq!(meta.without_lapsed_crashes(window, within), meta);
        assert_eq!(meta.without_lapsed_crashes(window, NOW.plus(window)), Meta::default());
        // A suspect whose crash has no time keeps its count.
        let untimed = Meta { crashes: 1, ..Meta::default() };
        assert_eq!(untimed.without_lapsed_crashes(window, Time::MAX), untimed);
    }

    #[test]
    fn a_replay_has_a_fresh_budget_and_keeps_the_story() {
        let worn = Meta {
            created: Time::from_millis(1),
            deadline: Some(NOW),
            attempts: 4,
            uncounted: 3,
            reconnects: 2,
            crashes: 1,
            last_crash: Some(NOW),
            replays: 1,
            first_failed: Some(NOW),
            held_ms: 9,
            last_delay_ms: 8,
            deferred: true,
        };
        let fresh =
            Meta { created: worn.created, replays: 2, first_failed: worn.first_failed, ..Meta::default() };
        assert_eq!(worn.replayed(), fresh);
    }

    #[test]
    fn the_rest_of_the_ttl_ends_at_zero() {
        let meta = Meta { deadline: Some(NOW), ..Meta::default() }; // S1-30
        assert_eq!(meta.ttl_remaining(Time::from_millis(9_000)), Some(Duration::from_secs(1)));
        assert_eq!(meta.ttl_remaining(NOW.plus(Duration::from_secs(1))), Some(Duration::ZERO));
        assert_eq!(Meta::default().ttl_remaining(NOW), None);
    }
}
