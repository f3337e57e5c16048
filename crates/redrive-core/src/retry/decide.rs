//! The one function that decides what happens after an attempt. Pure: the same arguments give the same decision.

use std::time::Duration;

use super::decision::Retry;
use super::schedule::DELAY_MAX;
use crate::policy::OnExhausted;
use crate::time::millis;
use crate::{Budget, Class, Decision, Health, Meta, Outcome, Policy, Random, Reason, Time};

/// How often one message may be retried immediately over a new connection. After that a stale connection counts as an
/// ordinary transient failure: otherwise a sink that drops every connection would be called for ever.
pub const RECONNECTS_MAX: u32 = 3;

/// The shortest deferral. It doubles with every uncounted call, up to [`DEFER_STEP_MAX`].
pub const DEFER_MIN: Duration = Duration::from_secs(5);
/// The longest step of a deferral. Since every deferral counts against `hold_max`, this bounds the number of deferrals.
pub const DEFER_STEP_MAX: Duration = Duration::from_mins(5);

/// What happens to a message after `outcome`. Reads top to bottom; the first line that applies wins.
///
/// `meta.attempts` are the counted failures before this outcome, so the attempt that just ended is number
/// `meta.attempts + 1`.
pub fn decide(
    policy: &Policy,
    meta: &Meta,
    outcome: &Outcome,
    health: &Health,
    budget: &Budget,
    now: Time,
    random: Random,
) -> Decision {
    let Outcome::Failed { class, retry_after, delay, .. } = *outcome else { return Decision::Complete };
    let message = Deciding { policy, meta, now, random };
    let asked_ms = message.asked_ms(retry_after);
    let sink_asks_ms = asked_ms.unwrap_or(0).max(millis(health.retry_in()));

    if policy.classify() && class == Class::Permanent {
        return Decision::DeadLetter(Reason::Permanent);
    }
    if policy.classify() && class == Class::Gone {
        return Decision::DeadLetter(Reason::Gone);
    }
    if class == Class::Credential {
        return message.defer(sink_asks_ms);
    }
    if class == Class::Reconnect && meta.reconnects < RECONNECTS_MAX && asked_ms.is_none() {
        return message.once_more_at_once();
    }
    if class == Class::Crash && message.crashes() >= policy.crash_threshold() {
        return Decision::DeadLetter(Reason::PoisonPill);
    }

    // The handler causes crashes: the sink's health says nothing about them, and each repetition costs a process.
    let may_be_the_sink = policy.outage_gate() && !health.is_healthy() && class != Class::Crash;
    let failed = meta.attempts.saturating_add(1);
    if failed >= policy.attempts_allowed(counted_as(class), meta.replays) {
        if may_be_the_sink {
            return message.defer(sink_asks_ms);
        }
        return Decision::DeadLetter(Reason::MaxRetries);
    }

    let (delay_ms, tier) = match (asked_ms, delay) {
        (None, None) => (message.scheduled_ms(failed, class, None), policy.schedule().tier(failed)),
        // The requested wait is a minimum. Without a backoff of its own it is also the wait.
        (asked_ms, delay) => {
            let own_ms = delay.map(|delay| message.scheduled_ms(failed, class, Some(delay)));
            let delay_ms = own_ms.unwrap_or(0).max(asked_ms.unwrap_or(0));
            (delay_ms, policy.schedule().tier_for(delay_ms))
        }
    };
    if message.too_late(delay_ms) {
        return Decision::DeadLetter(Reason::TtlExceeded);
    }
    if budget.is_empty() {
        if policy.on_exhausted() == OnExhausted::DeadLetter && !may_be_the_sink {
            return Decision::DeadLetter(Reason::BudgetExhausted);
        }
        return message.defer(delay_ms.max(sink_asks_ms).max(millis(budget.next_in())));
    }
    let due = now.plus(Duration::from_millis(delay_ms));
    Decision::RetryAt(Retry { due, counts: true, tier, spends: 1 })
}

/// Whether the deadline has passed. Such a message is never sent; it becomes a dead letter with reason `ttl_exceeded`.
pub fn expired(meta: &Meta, now: Time) -> bool {
    meta.deadline.is_some_and(|deadline| now >= deadline)
}

/// Whether a message that was held for `held_ms` in total has exceeded `hold_max`. It becomes a dead letter with reason
/// `hold_expired`.
pub fn outlasts_hold(policy: &Policy, held_ms: u64) -> bool {
    held_ms > millis(policy.hold_max())
}

/// The meta to store with a decision: [`Meta::after`], after dropping crashes outside the policy's window.
pub fn after(policy: &Policy, meta: &Meta, outcome: &Outcome, decision: &Decision, now: Time) -> Meta {
    match outcome.class() {
        None => *meta,
        Some(class) => meta.without_lapsed_crashes(policy.crash_window(), now).after(class, decision, now),
    }
}

/// The shortest deferral after this many uncounted calls.
pub fn defer_step(uncounted: u32) -> Duration {
    let doublings = uncounted.min(16);
    DEFER_MIN.saturating_mul(1 << doublings).min(DEFER_STEP_MAX)
}

/// The maximum number of deferrals of one message before `hold_max` ends it.
pub fn deferrals_max(hold_max: Duration) -> u64 {
    let mut left = hold_max;
    let mut deferrals = 0;
    while let Some(rest) = left.checked_sub(defer_step(deferrals)) {
        if defer_step(deferrals) == DEFER_STEP_MAX {
            return u64::from(deferrals) + left.as_secs() / DEFER_STEP_MAX.as_secs();
        }
        left = rest;
        deferrals += 1;
    }
    u64::from(deferrals)
}

/// The class whose attempt limit applies; a stale connection has none of its own.
fn counted_as(class: Class) -> Class {
    if class == Class::Reconnect { Class::Transient } else { class }
}

/// One message, and the inputs of its decision.
struct Deciding<'a> {
    policy: &'a Policy,
    meta: &'a Meta,
    now: Time,
    random: Random,
}

impl Deciding<'_> {
    /// Retry-After as a minimum: clamped, then jittered upwards only. Zero asks for nothing, so the schedule decides.
    fn asked_ms(&self, retry_after: Option<Duration>) -> Option<u64> {
        let asked = retry_after.filter(|asked| !asked.is_zero())?;
        let asked_ms = millis(asked.clamp(self.policy.retry_after_min(), self.policy.retry_after_max()));
        let spread_ms = self.policy.retry_after_jitter().of_ms(asked_ms);
        Some(asked_ms.saturating_add(self.random.below_ms(spread_ms)))
    }

    /// The delay of the schedule, or `instead` in its place; capped and jittered as the policy says.
    fn scheduled_ms(&self, retry: u32, class: Class, instead: Option<Duration>) -> u64 {
        let own_ttl = self.meta.deadline.map(|deadline| deadline.since(self.meta.created));
        let mut unspread = self.policy.unspread(retry, class, own_ttl, self.meta.last_delay_ms);
        if let Some(delay) = instead {
            unspread.delay_ms = millis(delay.min(DELAY_MAX));
        }
        self.policy.jitter().apply(unspread, self.random)
    }

    /// The number of crashes within the window, including this one.
    fn crashes(&self) -> u32 {
        let window = self.policy.crash_window();
        self.meta.without_lapsed_crashes(window, self.now).crashes.saturating_add(1)
    }

    fn too_late(&self, delay_ms: u64) -> bool {
        expired(self.meta, self.now.plus(Duration::from_millis(delay_ms)))
    }

    fn once_more_at_once(&self) -> Decision {
        if self.too_late(0) {
            return Decision::DeadLetter(Reason::TtlExceeded);
        }
        let tier = self.policy.schedule().tier_for(0);
        Decision::RetryAt(Retry { due: self.now, counts: false, tier, spends: 0 })
    }

    /// Waits at least `floor_ms` without using up an attempt; only the deadline and `hold_max` end such waiting.
    fn defer(&self, floor_ms: u64) -> Decision {
        let step_ms = millis(defer_step(self.meta.uncounted));
        let delay_ms = step_ms.max(floor_ms).saturating_add(self.random.below_ms(step_ms / 2));
        if self.too_late(delay_ms) {
            return Decision::DeadLetter(Reason::TtlExceeded);
        }
        if outlasts_hold(self.policy, self.meta.held_ms.saturating_add(delay_ms)) {
            return Decision::DeadLetter(Reason::HoldExpired);
        }
        let due = self.now.plus(Duration::from_millis(delay_ms));
        let tier = self.policy.schedule().tier_for(delay_ms);
        Decision::RetryAt(Retry { due, counts: false, tier, spends: 0 })
    }
}
