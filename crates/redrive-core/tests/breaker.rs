//! The breaker over time: when it opens, which messages probe, when it closes, and that an incident always ends.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::breaker::{
    Breaker, BreakerChange, BreakerSettings, BreakerState, Cause, Retried, Sign, SlowAction,
};
use redrive_core::failure_kind::{Counted, FailureKind};
use redrive_core::views::Gate;
use redrive_core::{Ratio, Time, profiles};

const DOWN: Sign = Sign::Bad(FailureKind::Status(503));

fn at(ms: u64) -> Time {
    Time::from_millis(1_800_000_000_000 + ms)
}

fn opened() -> Breaker {
    let mut breaker = Breaker::new(BreakerSettings::default());
    let opened = (0..20).filter_map(|n| breaker.first_attempt(n, DOWN, at(0))).last();
    assert!(matches!(opened, Some(BreakerChange::Opened(_))), "{opened:?}");
    breaker
}

fn round(breaker: &mut Breaker, first: u64, good: &[bool], now: Time) -> Option<BreakerChange> {
    let mut change = None;
    for (message, is_good) in (first..).zip(good) {
        assert_eq!(breaker.probes_wanted(), 1);
        breaker.probe_started();
        assert_eq!(breaker.probes_wanted(), 0, "one after the other");
        change = breaker.probe_ended(message, *is_good, now);
    }
    change
}

#[test]
fn half_of_twenty_messages_within_ten_seconds_open_it() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    for n in 0..19 {
        assert_eq!(breaker.first_attempt(n, DOWN, at(n * 100)), None, "too few to say");
    }
    let Some(BreakerChange::Opened(cause)) = breaker.first_attempt(19, DOWN, at(2_000)) else {
        panic!("not open")
    };
    assert_eq!(
        (cause.failed, cause.of, cause.within, cause.by),
        (20, 20, Duration::from_secs(10), Gate::Breaker)
    );
    assert_eq!(breaker.gate(at(2_000)), Some((Gate::Breaker, Duration::from_secs(30))));
}

#[test]
fn the_failures_of_an_ordinary_day_do_not() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    for n in 0..60_000_u64 {
        let sign = if n % 100 < 19 { DOWN } else { Sign::Good };
        assert_eq!(breaker.first_attempt(n, sign, at(n * 10)), None);
    }
}

#[test]
fn more_than_a_fifth_of_503_over_five_minutes_opens_it() {
    let settings = BreakerSettings::of_profile(profiles::find("push").unwrap()); // S1-44
    assert_eq!(settings.slow.counts, [Counted::Status(503)]);
    let default = BreakerSettings::of_profile(profiles::find(profiles::DEFAULT).unwrap());
    assert_eq!(default, BreakerSettings::default());
    for (percent, kind, opens) in [(25, 503, true), (25, 502, false), (18, 503, false)] {
        let mut breaker = Breaker::new(settings.clone());
        let mut opened = None;
        for n in 0..36_000_u64 {
            let sign =
                if n * percent % 100 < percent { Sign::Bad(FailureKind::Status(kind)) } else { Sign::Good };
            opened = opened.or_else(|| breaker.first_attempt(n, sign, at(n * 10)).map(|_| n * 10));
        }
        assert_eq!(opened.is_some(), opens, "{percent} % of {kind}");
        assert!(opened.is_none_or(|ms| ms >= 300_000), "it judges over five minutes, not at {opened:?} ms");
    }
}

#[test]
fn the_slow_window_may_only_say_so() {
    let mut settings = BreakerSettings::default();
    settings.slow.action = SlowAction::Alert;
    let mut breaker = Breaker::new(settings);
    let changes: Vec<_> = (0..60_000_u64)
        .filter_map(|n| breaker.first_attempt(n, if n % 4 == 0 { DOWN } else { Sign::Good }, at(n * 10)))
        .collect();
    assert!(matches!(changes[..], [BreakerChange::Alert(_)]), "{changes:?}");
    assert!(breaker.is_closed());
}

#[test]
fn cooldowns_double_up_to_five_minutes_and_a_round_has_no_more_than_its_probes() {
    let mut breaker = opened();
    let mut now = at(0);
    for (n, wait) in [30_u64, 60, 120, 240, 300, 300].into_iter().enumerate() {
        assert_eq!(breaker.tick(now.plus(Duration::from_millis(wait * 1_000 - 1))), None);
        assert_eq!(breaker.probes_wanted(), 0, "nothing while it is open");
        now = now.plus(Duration::from_secs(wait));
        assert_eq!(breaker.tick(now), Some(BreakerChange::Probing { round: n as u32 + 1 }));
        let change = round(&mut breaker, 100, &[false, false, false], now);
        assert!(matches!(change, Some(BreakerChange::Reopened { .. })), "{change:?}");
    }
    assert_eq!((breaker.view().rounds, breaker.view().probes), (6, 18));
}

#[test]
fn good_probes_close_it_and_what_was_counted_is_forgotten() {
    let mut breaker = opened();
    breaker.tick(at(30_000));
    let closed = round(&mut breaker, 100, &[true; 5], at(30_100));
    let expected =
        BreakerChange::Closed { good: 5, probes: 5, rounds: 1, open_for: Duration::from_millis(30_100) };
    assert_eq!(closed, Some(expected));
    for n in 0..19 {
        assert_eq!(breaker.first_attempt(n, DOWN, at(30_200)), None, "it needs its sample again");
    }
}

#[test]
fn a_sink_with_a_few_failures_is_back_all_the_same() {
    let mut breaker = opened();
    breaker.tick(at(30_000));
    let closed = round(&mut breaker, 100, &[true, false, true, false, true], at(30_100));
    assert!(matches!(closed, Some(BreakerChange::Closed { good: 3, probes: 5, .. })), "{closed:?}");
}

#[test]
fn the_message_that_opened_it_is_a_probe_only_if_there_is_nobody_else() {
    let mut breaker = opened();
    breaker.tick(at(30_000));
    assert!(!breaker.may_probe(19) && breaker.may_probe(18));
    assert!(breaker.may_probe(19), "it has come back, so there is nobody else");
    round(&mut breaker, 50, &[false, false, false], at(30_000));
    assert!(!breaker.may_probe(52), "nor the one that failed as a probe");
}

#[test]
fn the_probes_of_a_round_are_different_messages() {
    let mut breaker = opened();
    breaker.tick(at(30_000));
    round(&mut breaker, 50, &[false, true], at(30_000));
    assert!(!breaker.may_probe(50) && !breaker.may_probe(51) && !breaker.may_probe(19));
    assert!(breaker.may_probe(52) && breaker.may_probe(50), "one that comes back is the only one there is");
    round(&mut breaker, 52, &[false, false], at(30_000));
    breaker.tick(at(90_000));
    assert!(!breaker.may_probe(53) && breaker.may_probe(51), "in the next round only the last one waits");
}

#[test]
fn what_was_open_is_open_for_the_next_process() {
    let mut breaker = opened();
    assert_eq!(Breaker::new(BreakerSettings::default()).still_open(at(0)), None);
    breaker.tick(at(30_000));
    round(&mut breaker, 50, &[false, false, false], at(30_000));
    let left = breaker.still_open(at(31_000)).unwrap();
    assert_eq!((left.since, left.next_probe, left.rounds, left.probes), (at(0), at(90_000), 1, 3));
    let mut next = Breaker::new(BreakerSettings::default());
    next.reopen(&left);
    assert_eq!(next.view(), breaker.view());
    assert_eq!(next.tick(at(89_999)), None);
    assert_eq!(next.tick(at(90_000)), Some(BreakerChange::Probing { round: 2 }));
    // After an interrupted round the next process probes at once; with the breaker turned off nothing is gated.
    let left = next.still_open(at(90_500)).unwrap();
    assert_eq!(left.next_probe, at(90_500));
    let mut off = Breaker::new(BreakerSettings::off());
    off.reopen(&left);
    assert!(off.is_closed());
    assert!(matches!(round(&mut next, 60, &[true; 5], at(91_000)), Some(BreakerChange::Closed { .. })));
    assert_eq!(next.still_open(at(92_000)), None);
}

#[test]
fn a_key_that_is_refused_is_named() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    let change = (0..20).find_map(|n| breaker.first_attempt(n, Sign::Credential, at(0)));
    assert!(
        matches!(change, Some(BreakerChange::Opened(cause)) if cause.by == Gate::Credential),
        "{change:?}"
    );
}

#[test]
fn a_probe_that_came_to_nothing_makes_room_for_another() {
    let mut breaker = opened();
    breaker.tick(at(30_000));
    breaker.probe_started();
    breaker.probe_came_to_nothing();
    assert_eq!(breaker.probes_wanted(), 1);
}

#[test]
fn one_that_is_off_never_opens() {
    let mut breaker = Breaker::new(BreakerSettings::off());
    assert!((0..10_000).all(|n| breaker.first_attempt(n, DOWN, at(0)).is_none()));
}

#[test]
fn a_clock_that_is_set_back_does_not_keep_it_open() {
    let mut breaker = opened();
    let hour = Duration::from_hours(1);
    let back = Time::from_millis(at(0).as_millis() - hour.as_millis() as u64);
    assert_eq!(breaker.tick(back), None);
    assert!(breaker.tick(back.plus(Duration::from_secs(30))).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    First { sign: u8 },
    Pass { ms: u64 },
    Probe { good: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..3).prop_map(|sign| Step::First { sign }),
        (0_u64..40_000).prop_map(|ms| Step::Pass { ms }),
        any::<bool>().prop_map(|good| Step::Probe { good }),
    ]
}

proptest! {
    /// Whatever happens: no probe is wanted while it is open, a round makes no more calls than it has probes, and the
    /// wait never exceeds the longest cooldown.
    #[test]
    fn it_keeps_its_bounds(steps in proptest::collection::vec(step(), 1..400), probes in 1_u32..8, min in 1_u32..30) {
        let mut settings = BreakerSettings { probes, ..BreakerSettings::default() };
        settings.fast.min = min;
        let (longest, mut breaker) = (settings.cooldown_max, Breaker::new(settings));
        let (mut now, mut in_round) = (at(0), 0);
        for (n, step) in (0_u64..).zip(steps) {
            match step {
                Step::First { sign } => {
                    let sign = [Sign::Good, DOWN, Sign::Credential][usize::from(sign)];
                    let before = breaker.state();
                    let change = breaker.first_attempt(n, sign, now);
                    prop_assert!(change.is_none() || before == BreakerState::Closed);
                    prop_assert!(change.is_none() || sign != Sign::Good);
                }
                Step::Pass { ms } => {
                    now = now.plus(Duration::from_millis(ms));
                    if breaker.tick(now).is_some() {
                        in_round = 0;
                    }
                }
                Step::Probe { good } if breaker.probes_wanted() > 0 => {
                    breaker.probe_started();
                    in_round += 1;
                    prop_assert!(in_round <= probes);
                    breaker.probe_ended(n, good, now);
                }
                Step::Probe { .. } => {}
            }
            prop_assert_eq!(breaker.probes_wanted() > 0, breaker.state() == BreakerState::HalfOpen);
            if let Some(next) = breaker.next_wake() {
                prop_assert!(next.since(now) <= longest);
            }
        }
    }

    /// A share of failures at or above the limit opens it, one below does not, in any order.
    #[test]
    fn it_opens_exactly_at_its_share(failed in 0_u32..=100, percent in 1_u16..=100) {
        let mut settings = BreakerSettings::default();
        settings.fast.failures = Ratio::percent(percent);
        settings.fast.min = 100;
        let mut breaker = Breaker::new(settings);
        // Successes first, so that the last one is a failure.
        let signs = (0..100).map(|n| if n < 100 - failed { Sign::Good } else { DOWN });
        let opened = (0_u64..).zip(signs).any(|(n, sign)| breaker.first_attempt(n, sign, at(0)).is_some());
        prop_assert_eq!(opened, failed > 0 && failed >= u32::from(percent));
    }
}

const REFUSED: Sign = Sign::Bad(FailureKind::Refused);

fn retried(message: u64) -> Retried {
    Retried { message, first_failed: Some(at(0)) }
}

/// After an hour of outage most of the messages are retries.
#[test]
fn messages_that_are_tried_again_open_it_where_the_sink_cannot_be_reached() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    let now = 3_600_000;
    for n in 0..19 {
        assert_eq!(breaker.later_attempt(retried(n), REFUSED, at(now + n)), None);
    }
    let opened = breaker.later_attempt(retried(19), REFUSED, at(now + 19));
    assert!(matches!(opened, Some(BreakerChange::Opened(Cause { failed: 20, of: 20, .. }))), "{opened:?}");
}

#[test]
fn a_message_that_is_tried_again_and_again_counts_once() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    for n in 0..10_000 {
        assert_eq!(breaker.later_attempt(retried(7), REFUSED, at(600_000 + n * 100)), None);
    }
    // Its first attempt is in the window and counts.
    for n in 0..19 {
        assert_eq!(breaker.first_attempt(n, REFUSED, at(5_000_000)), None);
        let own = Retried { message: n, first_failed: Some(at(5_000_000)) };
        assert_eq!(breaker.later_attempt(own, REFUSED, at(5_001_000)), None);
    }
}

#[test]
fn the_latest_outcome_of_a_message_counts() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    let now = 600_000;
    for n in 0..19 {
        breaker.later_attempt(retried(n), REFUSED, at(now));
        breaker.later_attempt(retried(n), Sign::Good, at(now + 1_000));
    }
    for n in 19..37 {
        assert_eq!(
            breaker.later_attempt(retried(n), REFUSED, at(now + 2_000)),
            None,
            "half of them are fine"
        );
    }
    assert!(breaker.later_attempt(retried(37), REFUSED, at(now + 2_000)).is_some());
}

/// The bad messages of a batch remain and come back together, while the sink is healthy.
#[test]
fn a_wave_of_bad_messages_does_not_open_it() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    (0..10_000).for_each(|n| {
        let sign = if n % 100 == 0 { DOWN } else { Sign::Good };
        assert_eq!(breaker.first_attempt(n, sign, at(n / 10)), None);
    });
    for wave in [35_000, 335_000] {
        for n in (0..10_000).step_by(100) {
            assert_eq!(breaker.later_attempt(retried(n), DOWN, at(wave + n / 10)), None);
        }
    }
}

/// 15 % fail about twice each, 1 % always: an ordinary day, at any rate.
#[test]
fn retries_of_an_ordinary_day_do_not_open_it() {
    for per_second in [5_u64, 50, 500] {
        let mut breaker = Breaker::new(BreakerSettings::default());
        let mut later: Vec<(u64, u64, u64)> = Vec::new();
        for n in 0..per_second * 900 {
            let ms = n * 1_000 / per_second;
            for (_, message, attempt) in later.extract_if(.., |(due, ..)| *due <= ms).collect::<Vec<_>>() {
                let is_poison = message % 100 == 99;
                let sign = if is_poison || attempt == 2 { DOWN } else { Sign::Good };
                let change = breaker.later_attempt(
                    Retried { message, first_failed: Some(at(message * 1_000 / per_second)) },
                    sign,
                    at(ms),
                );
                assert_eq!(change, None, "{per_second}/s");
                if sign == DOWN && attempt < 4 {
                    later.push((ms + 30_000, message, attempt + 1));
                }
            }
            let fails = n % 100 < 15 || n % 100 == 99;
            assert_eq!(breaker.first_attempt(n, if fails { DOWN } else { Sign::Good }, at(ms)), None);
            if fails {
                later.push((ms + 5_000, n, 2));
            }
        }
    }
}

/// Letters that are replayed to a service that is down.
#[test]
fn replayed_letters_open_it_each_once() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    for n in 0..1_000 {
        assert_eq!(breaker.first_since_replay(7, DOWN, at(n)), None, "one letter, however often");
    }
    let opened = (0..19).filter_map(|n| breaker.first_since_replay(100 + n, DOWN, at(1_000 + n))).last();
    assert!(matches!(opened, Some(BreakerChange::Opened(Cause { failed: 20, of: 20, .. }))), "{opened:?}");
}
