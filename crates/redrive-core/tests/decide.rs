//! The order of `decide`, line by line.

use std::time::Duration;

use redrive_core::decide::{DEFER_MIN, DEFER_STEP_MAX, RECONNECTS_MAX, defer_step, deferrals_max};
use redrive_core::decision::Retry;
use redrive_core::views::Gate;
use redrive_core::{
    Budget, Class, Decision, Health, Meta, Outcome, Policy, PolicyBuilder, Random, Reason, Time, after,
    decide, expired,
};

const NOW: Time = Time::from_millis(1_000_000);
const LOW: Random = Random(0);
const HIGH: Random = Random(u64::MAX);
const DOWN: Health = Health::Unhealthy { retry_in: Duration::ZERO };

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn tiered() -> PolicyBuilder {
    Policy::tiers(["5s", "30s", "5m"]).jitter("none")
}

fn asking(class: Class, retry_after: Duration) -> Outcome {
    Outcome::Failed { class, retry_after: Some(retry_after), ambiguous: false, delay: None }
}

/// Decides for a healthy sink without a budget.
fn on(policy: &PolicyBuilder, meta: &Meta, outcome: Outcome) -> Decision {
    with(policy, meta, outcome, Health::Healthy, Budget::Unlimited, LOW)
}

fn with(
    policy: &PolicyBuilder,
    meta: &Meta,
    outcome: Outcome,
    health: Health,
    budget: Budget,
    random: Random,
) -> Decision {
    decide(&policy.build().unwrap(), meta, &outcome, &health, &budget, NOW, random)
}

fn counted(delay: Duration, tier: Option<u8>) -> Decision {
    Decision::RetryAt(Retry { due: NOW.plus(delay), counts: true, tier, spends: 1 })
}

fn deferred(delay: Duration, tier: Option<u8>) -> Decision {
    Decision::RetryAt(Retry { due: NOW.plus(delay), counts: false, tier, spends: 0 })
}

fn failed(attempts: u32) -> Meta {
    Meta { attempts, ..Meta::default() }
}

#[test]
fn success_completes_whatever_else_is_true() {
    let worn = Meta { attempts: 99, deadline: Some(Time::ZERO), ..Meta::default() };
    let empty = Budget::Tokens { remaining: 0, next_in: secs(1) };
    assert_eq!(with(&tiered(), &worn, Outcome::Done, DOWN, empty, LOW), Decision::Complete);
    assert_eq!(after(&tiered().build().unwrap(), &worn, &Outcome::Done, &Decision::Complete, NOW), worn);
}

#[test]
fn a_permanent_failure_never_uses_up_the_budget() {
    // S1-7 S1-12 S4-1 S4-11: an invalid argument once used all attempts before it was parked.
    for (class, reason) in [(Class::Permanent, Reason::Permanent), (Class::Gone, Reason::Gone)] {
        let decision = with(&tiered(), &failed(0), asking(class, secs(9)), DOWN, Budget::Unlimited, LOW);
        assert_eq!(decision, Decision::DeadLetter(reason));
    }
}

#[test]
fn without_classification_permanent_failures_retry_like_the_rest() {
    let policy = tiered().classify(false);
    for class in [Class::Permanent, Class::Gone] {
        assert_eq!(on(&policy, &failed(0), Outcome::failed(class)), counted(secs(5), Some(0)));
        let last = on(&policy, &failed(3), Outcome::failed(class));
        assert_eq!(last, Decision::DeadLetter(Reason::MaxRetries));
    }
}

#[test]
fn each_failure_goes_one_tier_further_and_the_last_to_the_dead_letters() {
    // S4-5 S4-9: no wait after the last attempt.
    let at = |attempts| on(&tiered(), &failed(attempts), Outcome::failed(Class::Transient));
    assert_eq!(at(0), counted(secs(5), Some(0)));
    assert_eq!(at(1), counted(secs(30), Some(1)));
    assert_eq!(at(2), counted(secs(300), Some(2)));
    assert_eq!(at(3), Decision::DeadLetter(Reason::MaxRetries));
    assert_eq!(at(u32::MAX), Decision::DeadLetter(Reason::MaxRetries));
}

#[test]
fn a_class_may_have_its_own_number_of_attempts() {
    let policy = tiered().attempts_for(Class::RateLimited, 10);
    let at = |attempts, class| on(&policy, &failed(attempts), Outcome::failed(class));
    assert_eq!(at(8, Class::RateLimited), counted(secs(300), Some(2)));
    assert_eq!(at(9, Class::RateLimited), Decision::DeadLetter(Reason::MaxRetries));
    assert_eq!(at(3, Class::Transient), Decision::DeadLetter(Reason::MaxRetries));
}

#[test]
fn a_replayed_letter_has_the_attempts_of_a_replay() {
    let policy = tiered().replay_attempts(2);
    let replayed = |attempts| Meta { attempts, replays: 1, ..Meta::default() };
    assert_eq!(on(&policy, &replayed(0), Outcome::failed(Class::Transient)), counted(secs(5), Some(0)));
    assert_eq!(
        on(&policy, &replayed(1), Outcome::failed(Class::Transient)),
        Decision::DeadLetter(Reason::MaxRetries)
    );
    assert_eq!(on(&policy, &failed(1), Outcome::failed(Class::Transient)), counted(secs(30), Some(1)));
}

#[test]
fn a_wrong_credential_waits_and_burns_nothing() {
    let decision = on(&tiered(), &failed(3), Outcome::failed(Class::Credential));
    assert_eq!(decision, deferred(DEFER_MIN, Some(0)));
    let gated = Health::Gated { by: Gate::Credential, retry_in: secs(60) };
    let decision =
        with(&tiered(), &failed(3), Outcome::failed(Class::Credential), gated, Budget::Unlimited, LOW);
    assert_eq!(decision, deferred(secs(60), Some(2)));
}

#[test]
fn a_short_retry_after_waits_at_least_as_long_as_the_policy_says() {
    let policy = tiered().retry_after_jitter("0%").retry_after_min("10s");
    let at = |asked| on(&policy, &failed(0), asking(Class::RateLimited, asked));
    assert_eq!(at(secs(1)), counted(secs(10), Some(1)));
    assert_eq!(at(secs(11)), counted(secs(11), Some(1)));
    assert_eq!(at(Duration::ZERO), counted(secs(5), Some(0)), "asks for nothing, so the schedule decides");
    let above = tiered().retry_after_max("1m").retry_after_min("2m").build().unwrap_err().to_string();
    assert!(above.contains("retry_after_min") && above.contains("at most 1m"), "{above}");
}

#[test]
fn a_stale_connection_is_tried_again_at_once_a_few_times() {
    let at = |reconnects, attempts| {
        let meta = Meta { reconnects, attempts, ..Meta::default() };
        on(&tiered(), &meta, Outcome::failed(Class::Reconnect))
    };
    assert_eq!(at(0, 3), deferred(Duration::ZERO, Some(0)));
    assert_eq!(at(RECONNECTS_MAX - 1, 0), deferred(Duration::ZERO, Some(0)));
    assert_eq!(at(RECONNECTS_MAX, 0), counted(secs(5), Some(0)));
    assert_eq!(at(RECONNECTS_MAX, 3), Decision::DeadLetter(Reason::MaxRetries));
    // If the downstream asks to wait, the wait is honoured.
    let patient = on(&tiered(), &failed(0), asking(Class::Reconnect, secs(20)));
    assert_eq!(patient, counted(secs(20), Some(1)));
}

#[test]
fn a_stale_connection_past_the_deadline_is_not_tried_again() {
    let meta = Meta { deadline: Some(NOW), ..Meta::default() };
    let decision = on(&tiered(), &meta, Outcome::failed(Class::Reconnect));
    assert_eq!(decision, Decision::DeadLetter(Reason::TtlExceeded));
}

#[test]
fn the_third_crash_within_the_window_quarantines_and_exactly_three_are_made() {
    // S3-28 S3-40: E[crashes before detection] = k.
    let policy = tiered().retries(3);
    let crash = Outcome::failed(Class::Crash);
    let mut meta = Meta::default();
    let mut now = NOW;
    let mut crashes = 0;
    let reason = loop {
        crashes += 1;
        assert!(crashes < 10, "the crash loop never ends");
        let built = policy.build().unwrap();
        let decision = decide(&built, &meta, &crash, &Health::Healthy, &Budget::Unlimited, now, LOW);
        meta = after(&built, &meta, &crash, &decision, now);
        match decision {
            Decision::RetryAt(retry) => now = retry.due,
            Decision::DeadLetter(reason) => break reason,
            Decision::Complete => unreachable!(),
        }
    };
    assert_eq!((reason, crashes, meta.attempts, meta.crashes), (Reason::PoisonPill, 3, 3, 3));
    let restart = secs(10);
    assert_eq!(restart * crashes, secs(30)); // downtime = k · r
}

#[test]
fn crashes_outside_the_window_start_again_and_the_attempts_end_them() {
    // C-13: backoff longer than the window; S3-30: each crash renews the window.
    let policy = tiered();
    let long_ago = Meta { attempts: 2, crashes: 2, last_crash: Some(Time::ZERO), ..Meta::default() };
    assert_eq!(on(&policy, &long_ago, Outcome::failed(Class::Crash)), counted(secs(300), Some(2)));
    let built = policy.build().unwrap();
    let next = after(&built, &long_ago, &Outcome::failed(Class::Crash), &counted(secs(300), Some(2)), NOW);
    assert_eq!((next.crashes, next.attempts), (1, 3));
    assert_eq!(on(&policy, &next, Outcome::failed(Class::Crash)), Decision::DeadLetter(Reason::MaxRetries));
}

#[test]
fn an_outage_defers_what_would_be_dead() {
    // the only case in which the outage matters.
    for class in [Class::Transient, Class::RateLimited] {
        let decision = with(&tiered(), &failed(3), Outcome::failed(class), DOWN, Budget::Unlimited, LOW);
        assert_eq!(decision, deferred(DEFER_MIN, Some(0)));
    }
    let gated = Health::Gated { by: Gate::Breaker, retry_in: secs(30) };
    let decision =
        with(&tiered(), &failed(3), Outcome::failed(Class::Transient), gated, Budget::Unlimited, LOW);
    assert_eq!(decision, deferred(secs(30), Some(1)));
}

#[test]
fn an_outage_changes_nothing_while_attempts_are_left() {
    let decision =
        with(&tiered(), &failed(0), Outcome::failed(Class::Transient), DOWN, Budget::Unlimited, LOW);
    assert_eq!(decision, counted(secs(5), Some(0)));
}

#[test]
fn the_outage_gate_can_be_switched_off_and_never_covers_crashes() {
    let dead = Decision::DeadLetter(Reason::MaxRetries);
    let ungated = tiered().outage_gate(false);
    assert_eq!(
        with(&ungated, &failed(3), Outcome::failed(Class::Transient), DOWN, Budget::Unlimited, LOW),
        dead
    );
    assert_eq!(
        with(&tiered(), &failed(3), Outcome::failed(Class::Crash), DOWN, Budget::Unlimited, LOW),
        dead
    );
}

#[test]
fn deferrals_grow_and_are_spread_upward() {
    let steps: Vec<_> = (0..9).map(|n| defer_step(n).as_secs()).collect();
    assert_eq!(steps, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(defer_step(u32::MAX), DEFER_STEP_MAX);
    let meta = Meta { attempts: 3, uncounted: 1, ..Meta::default() };
    let at =
        |random| with(&tiered(), &meta, Outcome::failed(Class::Transient), DOWN, Budget::Unlimited, random);
    assert_eq!((at(LOW), at(HIGH)), (deferred(secs(10), Some(1)), deferred(secs(15), Some(1))));
}

#[test]
fn holding_ends_at_hold_max() {
    let policy = tiered().hold_max("1m");
    let held = |held_ms| Meta { attempts: 3, held_ms, ..Meta::default() };
    let at = |held_ms| {
        with(&policy, &held(held_ms), Outcome::failed(Class::Transient), DOWN, Budget::Unlimited, LOW)
    };
    assert_eq!(at(55_000), deferred(secs(5), Some(0)));
    assert_eq!(at(55_001), Decision::DeadLetter(Reason::HoldExpired));
    assert_eq!(at(u64::MAX), Decision::DeadLetter(Reason::HoldExpired));
}

#[test]
fn the_number_of_deferrals_follows_from_hold_max() {
    for (hold, deferrals) in
        [(0, 0), (4, 0), (5, 1), (14, 1), (15, 2), (314, 5), (315, 6), (614, 6), (615, 7), (915, 8)]
    {
        assert_eq!(deferrals_max(secs(hold)), deferrals, "{hold} s");
    }
    assert_eq!(deferrals_max(Duration::from_hours(24)), 292);
}

#[test]
fn while_waiting_the_deadline_wins_over_the_outage() {
    //
    let meta = Meta { attempts: 3, deadline: Some(NOW.plus(DEFER_MIN)), ..Meta::default() };
    let decision = with(&tiered(), &meta, Outcome::failed(Class::Transient), DOWN, Budget::Unlimited, LOW);
    assert_eq!(decision, Decision::DeadLetter(Reason::TtlExceeded));
}

#[test]
fn a_retry_that_would_start_at_the_deadline_is_not_made() {
    // S1-12 S1-31 S1-32: a retry due exactly at the deadline is dead-lettered.
    let at = |left_ms| {
        let meta = Meta { deadline: Some(NOW.plus(Duration::from_millis(left_ms))), ..Meta::default() };
        on(&tiered(), &meta, Outcome::failed(Class::Transient))
    };
    assert_eq!(at(5_001), counted(secs(5), Some(0)));
    assert_eq!(at(5_000), Decision::DeadLetter(Reason::TtlExceeded));
    assert_eq!(at(0), Decision::DeadLetter(Reason::TtlExceeded));
}

#[test]
fn a_message_past_its_deadline_is_expired() {
    // S1-34, C-6: never sent, and never dropped either.
    let meta = Meta { deadline: Some(NOW), ..Meta::default() };
    assert!(!expired(&meta, Time::from_millis(999_999)));
    assert!(expired(&meta, NOW));
    assert!(!expired(&Meta::default(), Time::MAX));
}

#[test]
fn retry_after_is_the_delay_itself_and_is_only_spread_upward() {
    // S1-18 S1-19 S3-7: not capped by the schedule, not added to it, never below.
    let policy = Policy::exponential("2s", 2.0, "120s").retry_after_jitter("20%");
    let at = |random| {
        with(
            &policy,
            &failed(0),
            asking(Class::RateLimited, secs(600)),
            Health::Healthy,
            Budget::Unlimited,
            random,
        )
    };
    assert_eq!((at(LOW), at(HIGH)), (counted(secs(600), None), counted(secs(720), None)));
    let exact = policy.retry_after_jitter("0%");
    let exactly = with(
        &exact,
        &failed(0),
        asking(Class::Transient, secs(15)),
        Health::Healthy,
        Budget::Unlimited,
        HIGH,
    );
    assert_eq!(exactly, counted(secs(15), None));
}

#[test]
fn retry_after_waits_in_the_tier_that_holds_it() {
    let policy = tiered().retry_after_jitter("0%");
    let at = |asked| on(&policy, &failed(0), asking(Class::RateLimited, secs(asked)));
    assert_eq!(at(3), counted(secs(3), Some(0)));
    assert_eq!(at(60), counted(secs(60), Some(2)));
    assert_eq!(at(7_200), counted(secs(7_200), Some(2)));
}

#[test]
fn a_hostile_retry_after_is_clamped_and_zero_asks_for_nothing() {
    let policy = tiered().retry_after_jitter("0%").retry_after_max("24h");
    let day = Duration::from_hours(24);
    assert_eq!(on(&policy, &failed(0), asking(Class::RateLimited, Duration::MAX)), counted(day, Some(2)));
    assert_eq!(
        on(&policy, &failed(1), asking(Class::RateLimited, Duration::ZERO)),
        counted(secs(30), Some(1))
    );
}

#[test]
fn retry_after_beyond_the_deadline_is_dead_now() {
    // S1-20
    let meta = Meta { deadline: Some(NOW.plus(secs(3_600))), ..Meta::default() };
    let decision = on(&tiered(), &meta, asking(Class::RateLimited, secs(7_200)));
    assert_eq!(decision, Decision::DeadLetter(Reason::TtlExceeded));
}

#[test]
fn retry_after_and_the_sinks_own_suggestion_are_floors_of_a_deferral() {
    let policy = tiered().retry_after_jitter("0%");
    let health = Health::Unhealthy { retry_in: secs(40) };
    for (asked, delay, tier) in [(20, 40, 2), (50, 50, 2)] {
        let outcome = asking(Class::Transient, secs(asked));
        let decision = with(&policy, &failed(3), outcome, health, Budget::Unlimited, LOW);
        assert_eq!(decision, deferred(secs(delay), Some(tier)));
    }
}

#[test]
fn an_empty_budget_defers_or_parks_as_the_policy_says() {
    // S3-37, C-14
    let empty = Budget::Tokens { remaining: 0, next_in: secs(12) };
    let at = |policy: &PolicyBuilder, meta: &Meta| {
        with(policy, meta, Outcome::failed(Class::Transient), Health::Healthy, empty, LOW)
    };
    let defers = tiered().retries_per_minute(100);
    assert_eq!(at(&defers, &failed(0)), deferred(secs(12), Some(1)));
    assert_eq!(at(&defers, &failed(1)), deferred(secs(30), Some(1)));
    let parks = defers.clone().on_exhausted("dead_letter");
    assert_eq!(at(&parks, &failed(0)), Decision::DeadLetter(Reason::BudgetExhausted));
    let one_left = Budget::Tokens { remaining: 1, next_in: secs(12) };
    let decision =
        with(&parks, &failed(0), Outcome::failed(Class::Transient), Health::Healthy, one_left, LOW);
    assert_eq!(decision, counted(secs(5), Some(0)));
    // The deadline and hold_max come before the budget.
    let late = Meta { deadline: Some(NOW.plus(secs(5))), ..Meta::default() };
    assert_eq!(at(&parks, &late), Decision::DeadLetter(Reason::TtlExceeded));
    let held = Meta { held_ms: 86_400_000, ..Meta::default() };
    assert_eq!(at(&defers, &held), Decision::DeadLetter(Reason::HoldExpired));
}

/// The outage gate takes precedence over the budget: in an outage every retry fails, and an empty budget says nothing
/// about a single message.
#[test]
fn an_empty_budget_parks_nothing_while_the_sink_is_down() {
    let empty = Budget::Tokens { remaining: 0, next_in: secs(12) };
    let parks = tiered().retries_per_minute(100).on_exhausted("dead_letter");
    let at = |policy: &PolicyBuilder, health, class| {
        with(policy, &failed(0), Outcome::failed(class), health, empty, LOW)
    };
    assert_eq!(at(&parks, DOWN, Class::Transient), deferred(secs(12), Some(1)));
    let gated = Health::Gated { by: Gate::Breaker, retry_in: secs(40) };
    assert_eq!(at(&parks, gated, Class::RateLimited), deferred(secs(40), Some(2)));
    let dead = Decision::DeadLetter(Reason::BudgetExhausted);
    assert_eq!(at(&parks, Health::Healthy, Class::Transient), dead);
    assert_eq!(at(&parks, DOWN, Class::Crash), dead, "a crash is not the sink's");
    assert_eq!(at(&parks.outage_gate(false), DOWN, Class::Transient), dead, "as somebody asked for");
}

#[test]
fn the_due_time_is_absolute_and_saturates_at_the_end_of_time() {
    // S1-28
    let policy = tiered().build().unwrap();
    let outcome = Outcome::failed(Class::Transient);
    let decision =
        decide(&policy, &Meta::default(), &outcome, &Health::Healthy, &Budget::Unlimited, Time::MAX, HIGH);
    assert!(matches!(decision, Decision::RetryAt(retry) if retry.due == Time::MAX));
}

#[test]
fn a_message_with_its_own_ttl_caps_delays_by_that() {
    // S1-51
    let policy =
        Policy::exponential("2s", 2.0, "120s").jitter("none").retries(9).ttl("5m").cap_ttl_share(0.5);
    let with_ttl =
        |ttl| Meta { attempts: 6, created: NOW, deadline: Some(NOW.plus(secs(ttl))), ..Meta::default() };
    let outcome = Outcome::failed(Class::Transient);
    assert_eq!(on(&policy, &with_ttl(60), outcome), counted(secs(30), None));
    assert_eq!(on(&policy, &with_ttl(3_600), outcome), counted(secs(120), None));
    assert_eq!(on(&policy.ttl("20s"), &failed(6), outcome), counted(secs(10), None));
}
