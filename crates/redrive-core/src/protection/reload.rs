//! Limits calls per second after an outage. Permits alone do not bound the wave of held messages: where they are many
//! times what normal traffic needs, a minute's arrivals come back within a second.
//!
//! The limit starts at a multiple of the rate before the outage, and grows by half of that rate for every half minute
//! without a bad second, so that the backlog of a long outage does not take as long again.

use std::time::Duration;

use super::window::Window;
use crate::Time;

/// The window over which the usual rate is measured.
const USUAL_WINDOW: Duration = Duration::from_mins(5);
/// A shorter measurement is ignored if a rate is already known.
const MEASURED_MIN: Duration = Duration::from_secs(5);
/// How long without a bad second until the limit grows.
pub(crate) const GROWS_EVERY: Duration = Duration::from_secs(30);
/// The growth per step, as a share of the usual rate. After an outage of a minute the load is at most three times the
/// usual rate, which is about what retries without a breaker would cause.
pub(crate) const GROWS_BY: f64 = 0.5;
/// The lowest limit, in calls per second: a rarely called sink needs none.
const PER_SECOND_MIN: f64 = 10.0;
/// How much of a second's calls may be made at once.
const AT_ONCE: f64 = 0.1;

/// Measures how many good calls per second a sink takes while nothing holds them back.
#[derive(Clone, Debug)]
pub struct UsualRate {
    good: Window,
    began: Option<Time>,
    noted: Option<f64>,
}

impl Default for UsualRate {
    fn default() -> Self {
        Self { good: Window::new(USUAL_WINDOW), began: None, noted: None }
    }
}

impl UsualRate {
    /// Counts a good call that nothing held back.
    pub fn add(&mut self, now: Time) {
        self.good.add(now, false);
        self.began.get_or_insert(now);
    }

    /// Stores the measured rate when calls begin to be held back. If too little was measured since the last time, the
    /// previous rate stays.
    pub fn note(&mut self, now: Time) {
        let is_long = self.began.take().is_some_and(|began| now.since(began) >= MEASURED_MIN);
        if is_long || self.noted.is_none() {
            self.noted = self.good.busiest(now).or(self.noted);
        }
        self.good.clear();
    }

    /// Calls per second in the busiest part of the last minutes before calls were held back; `None` if nothing was measured.
    pub fn per_second(&self) -> Option<f64> {
        self.noted
    }

    /// Restores a rate that an earlier process measured.
    pub fn resume(&mut self, per_second: f64) {
        self.noted = Some(per_second);
    }
}

/// Limits calls per second while permits ramp up.
#[derive(Clone, Debug)]
pub struct Reload {
    usual: f64,
    per_second: f64,
    /// Calls that may be made now; negative after calls that started without asking.
    credit: f64,
    credited: Time,
    grows: Time,
    is_short: bool,
}

impl Reload {
    /// Starts at `factor` times the usual rate.
    pub fn new(usual: f64, factor: f64, now: Time) -> Self {
        let usual = usual.max(PER_SECOND_MIN / factor);
        let per_second = usual * factor;
        Self {
            usual,
            per_second,
            credit: (per_second * AT_ONCE).max(1.0),
            credited: now,
            grows: now.plus(GROWS_EVERY),
            is_short: false,
        }
    }

    /// Time until `held` messages are delivered, if `live` arrive per second meanwhile and the sink can take `most` per
    /// second.
    pub fn forecast(usual: f64, factor: f64, most: f64, live: f64, held: u64) -> Option<Duration> {
        let mut reload = Self::new(usual, factor, Time::ZERO);
        let (mut left, mut took) = (held as f64, Duration::ZERO);
        loop {
            let (rate, is_most) = (reload.per_second.min(most), reload.per_second >= most);
            let gone = Duration::try_from_secs_f64(left / (rate - live).max(f64::MIN_POSITIVE));
            match gone {
                Ok(gone) if gone <= GROWS_EVERY || (is_most && rate > live) => return Some(took + gone),
                _ if is_most => return None,
                _ => {}
            }
            left -= (rate - live) * GROWS_EVERY.as_secs_f64();
            took += GROWS_EVERY;
            reload.tick(Time::ZERO.plus(took));
        }
    }

    /// The current limit on calls per second.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    /// How many calls may start now.
    pub fn room(&self) -> usize {
        self.credit as usize
    }

    /// Records the start of a call.
    pub fn started(&mut self) {
        self.credit -= 1.0;
        self.is_short |= self.credit < 1.0;
    }

    /// Advances the time and refills the credit.
    pub fn tick(&mut self, now: Time) {
        // A clock that was set back adds no credit, and none twice.
        let passed = now.since(self.credited).as_secs_f64();
        self.credited = now;
        self.credit = (self.credit + passed * self.per_second).min((self.per_second * AT_ONCE).max(1.0));
        self.grows = self.grows.min(now.plus(GROWS_EVERY));
        if now >= self.grows {
            self.per_second += self.usual * GROWS_BY;
            self.grows = now.plus(GROWS_EVERY);
        }
    }

    /// Ends a second. Returns whether the limit held back calls in it. After a bad second the limit is at most the rate
    /// before the outage.
    pub fn second_over(&mut self, is_bad: bool, now: Time) -> bool {
        if is_bad {
            self.per_second = self.usual;
            self.grows = now.plus(GROWS_EVERY);
        }
        std::mem::replace(&mut self.is_short, self.credit < 1.0)
    }

    /// When the next call may start, if none may now.
    pub fn next_wake(&self) -> Option<Time> {
        let wait = (1.0 - self.credit) / self.per_second;
        // Several calls at once rather than a wake-up for each.
        (wait > 0.0).then(|| self.credited.plus(Duration::from_secs_f64(wait.max(0.01))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    /// Calls started in each second if there is always one waiting and every call is good.
    fn calls(reload: &mut Reload, seconds: std::ops::Range<u64>, bad: impl Fn(u64) -> bool) -> Vec<usize> {
        let second = |second: u64| {
            let mut started = 0;
            for ms in second * 1_000..(second + 1) * 1_000 {
                reload.tick(at(ms));
                while reload.room() > 0 {
                    reload.started();
                    started += 1;
                }
            }
            reload.second_over(bad(second), at((second + 1) * 1_000));
            started
        };
        seconds.map(second).collect()
    }

    fn near(calls: usize, expected: usize) -> bool {
        calls.abs_diff(expected) <= expected / 8 + 1
    }

    #[test]
    fn it_begins_at_a_multiple_of_the_usual_rate_and_grows_by_half_of_it() {
        let mut reload = Reload::new(500.0, 2.0, at(0));
        let calls = calls(&mut reload, 0..95, |_| false);
        assert!(calls[..29].iter().all(|calls| near(*calls, 1_000)), "{calls:?}");
        assert!(calls[31..59].iter().all(|calls| near(*calls, 1_250)), "{calls:?}");
        assert!(near(calls[94], 1_750), "{calls:?}");
    }

    #[test]
    fn a_bad_second_sets_it_back_to_the_usual_rate() {
        let mut reload = Reload::new(500.0, 2.0, at(0));
        let calls = calls(&mut reload, 0..70, |second| second == 34);
        assert!(near(calls[33], 1_250) && calls[36..64].iter().all(|calls| near(*calls, 500)), "{calls:?}");
        assert!(near(calls[68], 750), "{calls:?}");
    }

    #[test]
    fn seconds_in_which_it_held_nothing_back_are_told_apart() {
        let mut reload = Reload::new(500.0, 2.0, at(0));
        reload.started();
        assert!(!reload.second_over(false, at(1_000)));
        calls(&mut reload, 1..2, |_| false);
        while reload.room() > 0 {
            reload.started();
        }
        assert!(reload.second_over(false, at(3_000)));
    }

    #[test]
    fn what_is_rarely_called_is_not_slowed_down() {
        let mut reload = Reload::new(0.1, 2.0, at(0));
        assert!(near(calls(&mut reload, 0..2, |_| false)[1], 10));
    }

    #[test]
    fn a_clock_that_jumps_gives_no_more_than_is_allowed_at_once() {
        let mut reload = Reload::new(500.0, 2.0, at(0));
        (0..100).for_each(|_| reload.started());
        assert_eq!((reload.room(), reload.next_wake()), (0, Some(at(10))));
        reload.tick(Time::from_millis(1_700_000_000_000));
        assert_eq!(reload.room(), 0);
        reload.tick(at(86_400_000));
        assert_eq!((reload.room(), reload.next_wake()), (100, None));
    }

    #[test]
    fn the_usual_rate_is_that_of_the_busiest_quarter_minute_and_stays_over_an_outage() {
        let mut usual = UsualRate::default();
        assert_eq!(usual.per_second(), None);
        for ms in 0..60_000 {
            let every = if (15_000..30_000).contains(&ms) { 2 } else { 10 };
            if ms % every == 0 {
                usual.add(at(ms));
            }
        }
        usual.note(at(60_000));
        assert!(usual.per_second().is_some_and(|rate| (450.0..550.0).contains(&rate)), "{usual:?}");
        let before = usual.per_second();
        usual.note(at(86_400_000));
        assert_eq!(usual.per_second(), before, "nothing was measured since");
        usual.add(at(86_500_000));
        usual.note(at(86_501_000));
        assert_eq!(usual.per_second(), before, "and a second says little");
        (0..10_000).for_each(|ms| usual.add(at(86_600_000 + ms)));
        usual.note(at(86_610_000));
        assert!(usual.per_second().is_some_and(|rate| (950.0..1_050.0).contains(&rate)), "{usual:?}");
    }

    #[test]
    fn a_backlog_is_gone_sooner_the_longer_the_limit_grows() {
        let forecast =
            |held, most| Reload::forecast(500.0, 2.0, most, 500.0, held).map(|gone| gone.as_secs());
        // Drains 500 more per second than arrive, then 750 and 1,000.
        assert_eq!([15_000, 30_000].map(|held| forecast(held, 1e6)), [Some(30), Some(50)]);
        assert_eq!(forecast(30_000, 1_000.0), Some(60), "no faster than the sink");
        assert_eq!(forecast(1, 400.0), None, "more arrives than it takes");
    }
}
