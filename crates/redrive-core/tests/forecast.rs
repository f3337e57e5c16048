//! What a policy implies, in numbers that the running code must keep.

use std::time::Duration;

use redrive_core::forecast::Shares;
use redrive_core::{Class, Forecast, Policy};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn the_default_policy_prints_its_consequences() {
    // S2-26 and story 12
    let forecast = Policy::default().forecast();
    assert_eq!((forecast.attempts, forecast.attempts_max), (4, 4));
    assert_eq!(forecast.waiting_min, Duration::from_millis(167_500));
    assert_eq!(forecast.waiting_max, secs(335));
    assert_eq!(forecast.uncounted_max, 295);
    assert_eq!(forecast.calls_max, 299);
    assert_eq!(forecast.dead_letter_max(), secs(335 + 120));
    assert_eq!(forecast.terminal_max, secs(335 + 86_400 + 299 * 30));
    assert_eq!(forecast.terminal_max_with_retry_after, secs(3 * 95_040 + 86_400 + 299 * 30));
    assert_eq!(
        forecast.to_string(),
        "attempts            4 = 1 + 3 retries\n\
         time to dead letter 2m47s … 5m35s of waiting, ≤ 7m35s with 4 × 30s timeout; + hold ≤ 24h (hold_max) while the sink is down\n\
         uncounted calls     ≤ 295 (outage, credential, reconnect)\n\
         terminal            ≤ 26h35m5s, ≤ 105h41m30s if every failure asks for the longest Retry-After"
    );
}

#[test]
fn a_timeout_of_ten_seconds_gives_the_story_its_six_minutes_fifteen() {
    let forecast = Policy::profile("tiered").timeout("10s").build().unwrap().forecast();
    assert_eq!(forecast.dead_letter_max(), secs(375));
}

#[test]
fn a_ttl_ends_everything_one_timeout_later() {
    let forecast = Policy::profile("push").build().unwrap().forecast();
    assert_eq!((forecast.waiting_min, forecast.waiting_max), (Duration::ZERO, secs(62))); // S1-50
    assert_eq!(forecast.terminal_max, secs(3_630));
    assert_eq!(forecast.terminal_max_with_retry_after, secs(3_630));
    assert!(forecast.to_string().ends_with("; ttl 1h"));
}

#[test]
fn classes_with_more_attempts_lengthen_the_bound() {
    let policy =
        Policy::tiers(["5s", "30s", "5m", "15m"]).jitter("none").attempts_for(Class::RateLimited, 10);
    let forecast = Forecast::of(&policy.hold_max("0s").build().unwrap());
    assert_eq!(forecast.waiting_max, secs(1_235)); // story 4: Σ delays ≤ 20m35s
    assert_eq!((forecast.attempts_max, forecast.calls_max), (10, 13));
    assert_eq!(forecast.terminal_max, secs(1_235 + 5 * 900 + 13 * 30));
    assert!(forecast.to_string().contains("5 = 1 + 4 retries; up to 10 for some classes"));
}

#[test]
fn a_delay_longer_than_any_retry_after_sets_the_bound() {
    let policy = Policy::fixed("1h").jitter("none").retry_after_max("1m").hold_max("0s").timeout("1s");
    let forecast = policy.build().unwrap().forecast();
    assert_eq!(forecast.terminal_max_with_retry_after, secs(3 * 3_600 + 7));
}

#[test]
fn decorrelated_delays_triple_up_to_the_cap() {
    let policy = Policy::exponential("1s", 2.0, "10s").jitter("decorrelated").retries(4).build().unwrap();
    let forecast = policy.forecast();
    assert_eq!((forecast.waiting_min, forecast.waiting_max), (secs(4), secs(3 + 9 + 10 + 10)));
    assert_eq!(policy.longest_delay(), secs(10));
}

#[test]
fn the_load_of_the_story_comes_out() {
    // Story 12: 15 % transient of which a third fails twice, 1 % poison.
    let forecast = Policy::default().forecast();
    let shares = Shares { transient: 0.15, failing_twice: 1.0 / 3.0, poison: 0.01 };
    let load = forecast.load(shares);
    let per_second: Vec<_> = load.retries.iter().map(|share| (share * 50_000.0).round() as u64).collect();
    assert_eq!(per_second, [8_000, 3_000, 500]);
    assert!((load.dead - 0.01).abs() < 1e-9);
    assert!((load.amplification - 1.24).abs() < 1e-9);
    let at_thirty = forecast.load(Shares { transient: 0.30, ..shares });
    assert!((at_thirty.amplification - 1.44).abs() < 1e-9);
}

#[test]
fn without_retries_every_failure_is_a_dead_letter() {
    let forecast = Policy::fixed("1s").retries(0).build().unwrap().forecast();
    let load = forecast.load(Shares { transient: 0.2, failing_twice: 0.5, poison: 0.1 });
    assert!(load.retries.is_empty());
    assert!((load.dead - 0.3).abs() < 1e-9);
    assert!((load.amplification - 1.3).abs() < 1e-9);
    assert_eq!(forecast.waiting_max, Duration::ZERO);
}

#[test]
fn dead_letters_diverge_above_the_share_that_people_can_look_at() {
    // Story 12: a triage of 200/s at 50,000/s is 0.40 %.
    let forecast = Policy::default().forecast();
    let shares = Shares { transient: 0.15, failing_twice: 1.0 / 3.0, poison: 0.01 };
    assert!((forecast.divergence(shares, 50_000.0, 200.0).unwrap() - 0.004).abs() < 1e-9);
    assert_eq!(forecast.divergence(shares, 100.0, 200.0), Some(1.0));

    // With one retry, messages that fail twice are dead too, which leaves less room for poison, or none.
    let one_retry = Policy::fixed("1s").retries(1).build().unwrap().forecast();
    assert_eq!(one_retry.divergence(shares, 50_000.0, 200.0), None);
    assert!((one_retry.divergence(shares, 1_000.0, 60.0).unwrap() - 0.01).abs() < 1e-9);
}
