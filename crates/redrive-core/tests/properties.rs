//! Properties that hold for every policy, every sequence of outcomes and every number.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::policy::{BackoffSettings, BudgetSettings, CrashSettings};
use redrive_core::schedule::DELAY_MAX;
use redrive_core::views::Gate;
use redrive_core::{
    Budget, Class, Decision, Health, Meta, Outcome, Policy, PolicySettings, Random, Reason, Schedule, Time,
    after, decide, duration, expired,
};

const START: Time = Time::from_millis(1_700_000_000_000);

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..200_000_u64).prop_map(Duration::from_millis),
        (0..10_000_000_u64).prop_map(Duration::from_secs),
        Just(Duration::MAX),
    ]
}

fn any_class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

fn any_failure() -> impl Strategy<Value = Outcome> {
    (any_class(), prop::option::weighted(0.2, any_duration())).prop_map(|(class, retry_after)| {
        Outcome::Failed { class, retry_after, ambiguous: false, delay: None }
    })
}

fn any_health() -> impl Strategy<Value = Health> {
    prop_oneof![
        2 => Just(Health::Healthy),
        1 => any_duration().prop_map(|retry_in| Health::Unhealthy { retry_in }),
        1 => any_duration().prop_map(|retry_in| Health::Gated { by: Gate::Breaker, retry_in }),
        3 => Just(Health::Unhealthy { retry_in: Duration::ZERO }),
    ]
}

fn any_budget() -> impl Strategy<Value = Budget> {
    prop_oneof![
        3 => Just(Budget::Unlimited),
        1 => (0..2_u32, any_duration()).prop_map(|(remaining, next_in)| Budget::Tokens { remaining, next_in }),
    ]
}

/// Policies that pass the validator, over every kind of schedule and jitter.
fn any_policy() -> impl Strategy<Value = Policy> {
    let schedule = prop_oneof![
        prop::collection::btree_set(1..1_000_000_u64, 1..6).prop_map(|tiers| PolicySettings {
            tiers: Some(tiers.into_iter().map(|ms| Duration::from_millis(ms).into()).collect()),
            ..PolicySettings::default()
        }),
        (1..100_000_u64, 1.0..20.0_f64, 1..1_000_u64).prop_map(|(base, multiplier, times)| PolicySettings {
            backoff: Some(BackoffSettings {
                base: Some(Duration::from_millis(base).into()),
                multiplier: Some(multiplier),
                cap: Some(Duration::from_millis(base * times).into()),
                fixed: None,
            }),
            retries: Some(7),
            ..PolicySettings::default()
        }),
    ];
    let jitter = prop::sample::select(vec![
        "none",
        "full",
        "equal",
        "decorrelated",
        "plus(50%)",
        "plus(1s)",
        "around(10%)",
        "around(5s)",
    ]);
    let switches = (any::<bool>(), any::<bool>(), any::<bool>());
    (schedule, jitter, 1..20_u32, 0..4_000_u64, prop::option::of(1..100_000_u64), switches, 1..5_u32)
        .prop_map(|(schedule, jitter, rate_limited, hold_s, ttl_s, (classify, gate, park), threshold)| {
            let jitter = if schedule.tiers.is_some() && jitter == "decorrelated" { "full" } else { jitter };
            let settings = PolicySettings {
                jitter: Some(jitter.into()),
                attempts_for: vec![(Class::RateLimited.into(), rate_limited)],
                hold_max: Some(Duration::from_secs(hold_s).into()),
                ttl: ttl_s.map(|ttl| Duration::from_secs(ttl).into()),
                classify: Some(classify.into()),
                outage_gate: Some(gate),
                budget: BudgetSettings {
                    retries_per_minute: Some(10),
                    share_of_successes: None,
                    on_exhausted: Some(if park { "dead_letter" } else { "defer" }.into()),
                },
                crash: CrashSettings { threshold: Some(threshold), window: None },
                ..schedule
            };
            settings.resolve().expect("the strategy makes no faults")
        })
}

fn any_step() -> impl Strategy<Value = (Outcome, Health, Budget, Random)> {
    (any_failure(), any_health(), any_budget(), any::<u64>().prop_map(Random))
}

/// The Retry-After, as far as the policy honours it.
fn honoured(policy: &Policy, outcome: &Outcome) -> Duration {
    match outcome {
        Outcome::Failed { retry_after: Some(asked), .. } => (*asked).min(policy.retry_after_max()),
        _ => Duration::ZERO,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_sequence_of_outcomes_ends_within_the_printed_bounds(
        policy in any_policy(),
        steps in prop::collection::vec(any_step(), 1..12),
        replays in 0..2_u32,
    ) {
        let forecast = policy.forecast();
        let mut now = START;
        let mut meta = Meta { created: now, deadline: policy.deadline(now), replays, ..Meta::default() };
        let mut calls = 0_u64;
        // Repeating the same few steps is the worst case of a downstream over time.
        for (outcome, health, budget, random) in steps.iter().cycle() {
            calls += 1;
            prop_assert!(calls <= forecast.calls_max, "{} calls, {} allowed", calls, forecast.calls_max);
            prop_assert!(!expired(&meta, now), "an expired message was called");
            let decision = decide(&policy, &meta, outcome, health, budget, now, *random);
            meta = after(&policy, &meta, outcome, &decision, now);
            prop_assert!(meta.attempts <= forecast.attempts_max);
            prop_assert!(u64::from(meta.uncounted) <= forecast.uncounted_max + 1);
            prop_assert_eq!(u64::from(meta.attempts) + u64::from(meta.uncounted), calls);
            prop_assert!(u128::from(meta.held_ms) <= policy.hold_max().as_millis());
            match decision {
                Decision::RetryAt(retry) => {
                    prop_assert!(retry.due >= now.plus(honoured(&policy, outcome)), "before Retry-After");
                    prop_assert!(meta.deadline.is_none_or(|deadline| retry.due < deadline), "past the deadline");
                    prop_assert_eq!(retry.counts, retry.spends == 1);
                    prop_assert_eq!(retry.tier.is_some(), matches!(policy.schedule(), Schedule::Tiers(_)));
                    now = retry.due;
                }
                Decision::DeadLetter(_) => break,
                Decision::Complete => prop_assert!(false, "a failure completed"),
            }
        }
        let bound = forecast.terminal_max_with_retry_after;
        prop_assert!(now.since(START) <= bound, "{:?} waited, {:?} allowed", now.since(START), bound);
    }

    #[test]
    fn a_scheduled_delay_never_passes_the_cap(policy in any_policy(), attempts in 0..7_u32, last_delay_ms: u64, random: u64) {
        let meta = Meta { attempts, last_delay_ms, ..Meta::default() };
        let outcome = Outcome::failed(Class::Transient);
        let decision =
            decide(&policy, &meta, &outcome, &Health::Healthy, &Budget::Unlimited, START, Random(random));
        if let Decision::RetryAt(retry) = decision {
            let cap = Duration::from_millis(policy.schedule().cap_ms());
            prop_assert!(retry.due <= START.plus(cap));
            prop_assert!(retry.due <= START.plus(policy.longest_delay()));
        }
    }

    #[test]
    fn while_the_sink_is_down_nothing_dies_of_exhaustion(policy in any_policy(), attempts: u32, random: u64) {
        prop_assume!(policy.outage_gate());
        let meta = Meta { attempts, ..Meta::default() };
        let health = Health::Unhealthy { retry_in: Duration::ZERO };
        let outcome = Outcome::failed(Class::Transient);
        let decision = decide(&policy, &meta, &outcome, &health, &Budget::Unlimited, START, Random(random));
        prop_assert_ne!(decision, Decision::DeadLetter(Reason::MaxRetries));
    }

    #[test]
    fn no_numbers_make_decide_panic_or_a_delay_wrap(
        policy in any_policy(),
        (outcome, health, budget, random) in any_step(),
        numbers: [u32; 5],
        spans: [u64; 4],
        deadline: Option<u64>,
        now: u64,
    ) {
        let meta = Meta {
            created: Time::from_millis(spans[0]),
            deadline: deadline.map(Time::from_millis),
            attempts: numbers[0],
            uncounted: numbers[1],
            reconnects: numbers[2],
            crashes: numbers[3],
            last_crash: Some(Time::from_millis(spans[1])),
            replays: numbers[4],
            first_failed: None,
            held_ms: spans[2],
            last_delay_ms: spans[3],
            deferred: false,
        };
        let now = Time::from_millis(now);
        let decision = decide(&policy, &meta, &outcome, &health, &budget, now, random);
        let _ = after(&policy, &meta, &outcome, &decision, now);
        if let Decision::RetryAt(retry) = decision {
            prop_assert!(retry.due >= now);
        }
    }

    #[test]
    fn no_retry_number_and_no_durations_overflow_a_schedule(
        n: u32, base in any_duration(), multiplier: f64, cap in prop::option::of(any_duration()), class in any_class(),
    ) {
        for schedule in [
            Schedule::Exponential { base, multiplier, cap },
            Schedule::Fixed(base),
            Schedule::Tiers(vec![base]),
            Schedule::Custom(std::sync::Arc::new(move |_, _| base)),
        ] {
            prop_assert!(schedule.delay_ms(n, class) <= schedule.cap_ms());
            prop_assert!(u128::from(schedule.cap_ms()) <= DELAY_MAX.as_millis());
        }
    }

    #[test]
    fn exponential_delays_never_shrink(n in 1..u32::MAX, base in 1..1_000_000_u64, multiplier in 1.0..1_000.0_f64) {
        let schedule = Schedule::Exponential { base: Duration::from_millis(base), multiplier, cap: None };
        prop_assert!(schedule.delay_ms(n, Class::Transient) <= schedule.delay_ms(n + 1, Class::Transient));
    }

    #[test]
    fn every_duration_is_read_back_as_it_was_written(ms: u64) {
        let span = Duration::from_millis(ms);
        prop_assert_eq!(duration::parse(&duration::print(span)), Ok(span));
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in "\\PC{0,12}|[0-9hms%.()plusaround]{0,16}") {
        let _ = duration::parse(&text);
        let _ = text.parse::<redrive_core::Jitter>();
        let _ = text.parse::<redrive_core::Ratio>();
        let _ = Policy::profile(text).build();
    }
}
