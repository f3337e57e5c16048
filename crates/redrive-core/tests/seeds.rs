//! The numbers of the seeds, each through the whole life of a message.

use std::time::Duration;

use redrive_core::policy::{BudgetRate, Mode, OnExhausted};
use redrive_core::{
    Budget, Class, Decision, Health, Meta, Outcome, Policy, PolicyBuilder, Random, Ratio, Reason, Time,
    after, decide,
};

const LOW: Random = Random(0);
const HIGH: Random = Random(u64::MAX);

/// Fails with `class` until the message is dead; returns the waits in milliseconds and the reason.
fn life(policy: &PolicyBuilder, class: Class, random: Random) -> (Vec<u64>, Reason) {
    let policy = policy.build().unwrap();
    let mut now = Time::from_millis(1_700_000_000_000);
    let mut meta = Meta { created: now, deadline: policy.deadline(now), ..Meta::default() };
    let mut waits = Vec::new();
    loop {
        let outcome = Outcome::failed(class);
        let decision = decide(&policy, &meta, &outcome, &Health::Healthy, &Budget::Unlimited, now, random);
        meta = after(&policy, &meta, &outcome, &decision, now);
        match decision {
            Decision::RetryAt(retry) => {
                waits.push(retry.due.since(now).as_millis() as u64);
                assert!(waits.len() < 1_000, "the message never ends");
                now = retry.due;
            }
            Decision::DeadLetter(reason) => {
                assert_eq!(meta.attempts as usize, waits.len() + 1);
                return (waits, reason);
            }
            Decision::Complete => unreachable!(),
        }
    }
}

fn waits_s(profile: &str, random: Random) -> Vec<f64> {
    let (waits, reason) = life(&Policy::profile(profile), Class::Transient, random);
    assert_eq!(reason, Reason::MaxRetries);
    waits.into_iter().map(|ms| ms as f64 / 1_000.0).collect()
}

#[test]
fn the_apns_worker_waits_one_two_and_four_seconds_and_up_to_half_more() {
    // S0-2 S0-3 S0-4 S0-5 S0-6: four attempts, 7 s plus jitter.
    assert_eq!(waits_s("apns-worker", LOW), [1.0, 2.0, 4.0]);
    assert_eq!(waits_s("apns-worker", HIGH), [1.5, 3.0, 6.0]);
    assert_eq!(Policy::profile("apns-worker").build().unwrap().attempts(), 4);
}

#[test]
fn push_spreads_from_zero_to_two_up_to_thirty_two_seconds() {
    // S1-2 S1-3 S1-4 S1-5 S1-8 S1-9 S1-50: 62 s without jitter.
    assert_eq!(waits_s("push", LOW), [0.0; 5]);
    assert_eq!(waits_s("push", HIGH), [2.0, 4.0, 8.0, 16.0, 32.0]);
    let (waits, _) = life(&Policy::profile("push").jitter("none"), Class::Transient, LOW);
    assert_eq!(waits.iter().sum::<u64>(), 62_000);
    let push = Policy::profile("push").build().unwrap();
    assert_eq!((push.retries(), push.attempts()), (5, 6)); // S1-47
    assert_eq!(push.ttl(), Some(Duration::from_hours(1))); // S1-33
    assert_eq!(push.retry_after_jitter(), Ratio::ZERO); // S1-19
    assert_eq!(push.schedule().cap_ms(), 120_000);
}

#[test]
fn equal_jitter_keeps_a_minimum_spacing() {
    // S1-10
    let (waits, _) = life(&Policy::profile("push").jitter("equal"), Class::Transient, LOW);
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000]);
}

#[test]
fn the_code_sample_adds_up_to_a_second_and_caps_last() {
    // S1-11
    let sample = Policy::exponential("2s", 2.0, "120s").jitter("plus(1s)").retries(7);
    let (high, _) = life(&sample, Class::Transient, HIGH);
    assert_eq!(high, [3_000, 5_000, 9_000, 17_000, 33_000, 65_000, 120_000]);
}

#[test]
fn push_goes_to_the_dead_letters_when_the_ttl_is_shorter_than_the_delay() {
    // S1-12 S1-31 S1-32
    let (waits, reason) = life(&Policy::profile("push").ttl("30s"), Class::Transient, HIGH);
    assert_eq!((waits, reason), (vec![2_000, 4_000, 8_000], Reason::TtlExceeded));
}

#[test]
fn a_time_critical_push_has_three_retries_and_never_waits_longer_than_half_its_ttl() {
    // S1-51
    assert_eq!(waits_s("push-critical", HIGH), [2.0, 4.0, 8.0]);
    let short = Policy::profile("push-critical").ttl("10s");
    assert_eq!(life(&short, Class::Transient, HIGH), (vec![2_000, 4_000], Reason::TtlExceeded));
    let critical = Policy::profile("push-critical").build().unwrap();
    assert_eq!(critical.cap_ttl_share(), Some(Ratio::percent(50)));
    assert_eq!(critical.unspread(60, Class::Transient, None, 0).cap_ms, 150_000);
}

#[test]
fn a_campaign_has_seven_retries_and_its_delays_stay_below_its_ttl() {
    // S1-52
    assert_eq!(waits_s("push-campaign", HIGH), [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0]);
    let campaign = Policy::profile("push-campaign").build().unwrap();
    assert!(campaign.ttl().is_some_and(|ttl| campaign.longest_delay() < ttl));
}

#[test]
fn delays_of_hours_are_kept_exactly() {
    // S1-29: some queues cap a delay at 900 s.
    let (waits, _) = life(&Policy::tiers(["1h", "24h"]).jitter("none"), Class::Transient, LOW);
    assert_eq!(waits, [3_600_000, 86_400_000]);
}

#[test]
fn tiers_give_a_known_time_to_the_dead_letter() {
    // S2-26 S2-83: equality with jitter none, the bound otherwise.
    let (waits, _) = life(&Policy::profile("tiered").jitter("none"), Class::Transient, HIGH);
    assert_eq!(waits.iter().sum::<u64>(), 335_000);
    assert_eq!(waits_s("tiered", LOW), [2.5, 15.0, 150.0]);
    assert_eq!(waits_s("tiered-short", HIGH), [1.0, 5.0, 30.0]);
    assert_eq!(waits_s("tiered-long", HIGH), [10.0, 60.0, 600.0]);
}

#[test]
fn the_queues_with_review_follow_their_presets() {
    // S3-5 S3-9 S3-10 S3-11 S3-12 S3-13 S3-14
    let exact = |profile: &str| life(&Policy::profile(profile).jitter("none"), Class::Transient, LOW).0;
    assert_eq!(exact("emails"), [2_000, 4_000, 8_000]);
    assert_eq!(exact("webhooks"), [5_000, 10_000, 20_000, 40_000, 80_000]);
    assert_eq!(exact("payments"), [60_000, 60_000]);
    assert_eq!(waits_s("emails", LOW), [1.8, 3.6, 7.2]);
    assert_eq!(waits_s("emails", HIGH), [2.2, 4.4, 8.8]);
    for (profile, attempts) in [("emails", 4), ("webhooks", 6), ("payments", 3)] {
        let policy = Policy::profile(profile).build().unwrap();
        assert_eq!(policy.attempts(), attempts);
        assert_eq!(policy.replay_attempts(), Some(3)); // S3-21
        assert_eq!(policy.on_exhausted(), OnExhausted::DeadLetter); // S3-37
        assert_eq!(policy.retry_after_jitter(), Ratio::percent(20)); // S3-7
    }
    assert_eq!(Policy::profile("payments").build().unwrap().budget(), Some(BudgetRate::PerMinute(100))); // S3-35
    assert_eq!(Policy::profile("emails").build().unwrap().budget(), None);
}

#[test]
fn a_tenth_more_and_then_the_cap_of_five_minutes() {
    // S3-6
    let custom = Policy::exponential("2s", 2.0, "5m").jitter("plus(10%)").retries(9);
    let (high, _) = life(&custom, Class::Transient, HIGH);
    assert_eq!(high[0], 2_200);
    assert_eq!(high[7..], [281_600, 300_000]);
}

#[test]
fn the_scale_variant_is_a_doubled_base_with_full_jitter() {
    // S3-8: U(0, min(cap, b · 2^n)) with b = 1 s starts at 2 s.
    let (high, _) =
        life(&Policy::exponential("2s", 2.0, "10s").jitter("full").retries(4), Class::Transient, HIGH);
    assert_eq!(high, [2_000, 4_000, 8_000, 10_000]);
}

#[test]
fn the_total_delay_follows_its_formula() {
    // S3-38: b · (2^(N−1) − 1); b = 2 s and N = 5 give 30 s.
    for (base_s, attempts) in [(2_u64, 5_u32), (1, 4), (5, 7)] {
        let policy =
            Policy::exponential(Duration::from_secs(base_s), 2.0, "24h").jitter("none").attempts(attempts);
        let (waits, _) = life(&policy, Class::Transient, LOW);
        assert_eq!(waits.iter().sum::<u64>(), 1_000 * base_s * (2_u64.pow(attempts - 1) - 1));
    }
}

#[test]
fn full_jitter_spreads_a_thousand_retries_evenly_over_two_seconds() {
    // S0-7 S3-39: 1000 / 2 s = 500 per second; without jitter all of them land on one instant.
    let policy = Policy::exponential("2s", 2.0, "120s").retries(1);
    let firsts = |jitter: &str| -> Vec<u64> {
        let policy = policy.clone().jitter(jitter);
        (0..1_000_u64).map(|i| life(&policy, Class::Transient, Random(i * (u64::MAX / 1_000))).0[0]).collect()
    };
    assert!(firsts("none").iter().all(|ms| *ms == 2_000));
    for quarter in 0..4 {
        let range = quarter * 500_u64..(quarter + 1) * 500;
        let count = firsts("full").iter().filter(|ms| range.contains(*ms)).count();
        assert!((245..=255).contains(&count), "{count} in {range:?}");
    }
}

#[test]
fn the_worker_doubles_from_a_tenth_of_a_second_up_to_two_seconds() {
    // S4-2 S4-3 S4-4 S4-5
    assert_eq!(waits_s("worker", HIGH), [0.1, 0.2, 0.4, 0.8]);
    assert_eq!(waits_s("worker", LOW), [0.0; 4]);
    let (waits, _) = life(&Policy::profile("worker").retries(7), Class::Transient, HIGH);
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    assert_eq!(Policy::profile("worker").build().unwrap().mode(), Mode::Blocking);
    assert_eq!(Policy::default().mode(), Mode::NonBlocking);
}

#[test]
fn an_invalid_argument_is_parked_after_one_attempt() {
    // S0-11 S4-1 S4-11
    for profile in redrive_core::profiles::ALL {
        let (waits, reason) = life(&Policy::profile(profile.name), Class::Permanent, HIGH);
        assert_eq!((waits, reason), (vec![], Reason::Permanent), "{}", profile.name);
    }
}

#[test]
fn the_envelope_carries_count_origin_and_remaining_ttl() {
    // S1-30 S1-33 S1-35 S1-36
    let policy = Policy::profile("push").build().unwrap();
    let created = Time::from_millis(5_000);
    let meta = Meta { created, deadline: policy.deadline(created), ..Meta::default() };
    let now = created.plus(Duration::from_mins(10));
    let outcome = Outcome::failed(Class::Transient);
    let decision = decide(&policy, &meta, &outcome, &Health::Healthy, &Budget::Unlimited, now, LOW);
    let next = after(&policy, &meta, &outcome, &decision, now);
    assert_eq!((next.attempts, next.created), (1, created));
    assert_eq!(next.ttl_remaining(now), Some(Duration::from_mins(50)));
}
