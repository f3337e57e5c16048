//! The effect of an outage, compared with values computed by hand.

use std::time::Duration;

use redrive_core::{Policy, forecast_outage::OutageForecast};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn tiers(jitter: &str) -> Policy {
    Policy::tiers(["5s", "30s", "5m"]).jitter(jitter).build().unwrap()
}

fn near(is: f64, expected: f64, within: f64) {
    assert!((is - expected).abs() <= within, "{is} is not {expected} ± {within}");
}

fn near_secs(is: Duration, expected: u64, within: u64) {
    assert!(is.abs_diff(secs(expected)) <= secs(within), "{is:?} is not {expected} s ± {within} s");
}

#[test]
fn the_shares_of_the_requirements_come_out() {
    // C-2: 5.3 % with full jitter, none with equal; and 48 % for 2 s doubling, five retries, full.
    near(tiers("full").outage(secs(60)).dead, 0.053, 0.005);
    near(tiers("equal").outage(secs(60)).dead, 0.0, 0.0);
    near(Policy::profile("push").build().unwrap().outage(secs(60)).dead, 0.48, 0.01);
}

#[test]
fn a_long_outage_kills_what_arrived_early() {
    // Story 12: the waits end after 251 s on average, so (900 - 251) / 900 of the messages are dead.
    near(tiers("equal").outage(secs(900)).dead, 0.72, 0.01);
    near(tiers("none").outage(secs(900)).dead, (900.0 - 335.0) / 900.0, 0.001);
}

#[test]
fn without_jitter_the_load_comes_back_in_steps_that_can_be_counted() {
    // After 60 s: fresh messages, first retries for 5 s, second retries for 30 s; third ones 4m35s later, for 25 s.
    let reload = tiers("none").outage(secs(60)).reload;
    near(reload.peak, 3.0, 0.1);
    near_secs(reload.peak_for, 5, 1);
    near_secs(reload.raised_for, 30, 1);
    let echo = reload.echo.unwrap();
    near(echo.peak, 2.0, 0.1);
    near_secs(echo.begins, 275, 2);
    near_secs(echo.lasts, 25, 2);
}

#[test]
fn jitter_flattens_the_echo_and_not_the_first_wave() {
    let reload = tiers("equal").outage(secs(60)).reload;
    near(reload.peak, 3.0, 0.15);
    let echo = reload.echo.unwrap();
    assert!(echo.peak < 1.4 && echo.lasts > secs(90), "{echo:?}");
}

#[test]
fn recovery_is_counted_from_the_end_of_the_outage_and_the_dead_never_recover() {
    let forecast = tiers("none").outage(secs(60));
    // Messages that arrived in the first 25 s wait for the third tier: up to 335 - 35 = 300 s after the end.
    near_secs(forecast.recovery(0.5).unwrap(), 26, 2);
    near_secs(forecast.recovery(0.99).unwrap(), 299, 2);
    assert_eq!(forecast.recovery(0.0).unwrap(), forecast.recovery(0.00001).unwrap());
    assert!(tiers("equal").outage(secs(900)).recovery(0.99).is_none());
    assert!(tiers("equal").outage(secs(900)).recovery(0.2).is_some());
}

#[test]
fn every_attempt_in_the_outage_is_wasted() {
    // Without jitter a message makes 1 attempt if it arrives in the last 5 s, 2 before that, and 3 in the first 25 s.
    let wasted = tiers("none").outage(secs(60)).wasted;
    near(wasted, (5.0 + 2.0 * 30.0 + 3.0 * 25.0) / 60.0, 0.01);
}

#[test]
fn a_ttl_ends_messages_in_the_outage() {
    let policy = Policy::tiers(["5s", "30s", "5m"]).jitter("none").ttl("20s").build().unwrap();
    // The second wait passes the deadline: a message not delivered by the first retry is dead at once.
    near(policy.outage(secs(60)).dead, 55.0 / 60.0, 0.01);
}

#[test]
fn the_same_policy_gives_the_same_figures() {
    assert_eq!(tiers("full").outage(secs(60)), tiers("full").outage(secs(60)));
}

#[test]
fn extreme_outages_and_policies_end() {
    let one = Policy::fixed("1ms").retries(0).build().unwrap();
    assert_eq!(OutageForecast::of(&one, Duration::ZERO, 0).outage, Duration::ZERO);
    near(one.outage(secs(1)).dead, 1.0, 0.001);
    let many = Policy::fixed("1ms").retries(999).jitter("none").build().unwrap();
    near(OutageForecast::of(&many, secs(60), 50).dead, 59.0 / 60.0, 0.03);
    let long = Policy::profile("tiered-long").build().unwrap();
    near(OutageForecast::of(&long, Duration::from_hours(87_600), 50).dead, 1.0, 0.03);
}
