//! The rate of a replay. Pure: the time and the randomness are arguments, and the time may be counted from any
//! origin.

use std::time::Duration;

use redrive_core::Random;

/// The highest allowed rate, in letters per second.
pub const RATE_MAX: f64 = 1_000_000.0;
/// The lowest rate that can be asked for: one letter an hour, rounded down.
pub const RATE_MIN: f64 = 0.000_277;
/// Unused capacity older than this is lost: after a pause or a standstill a job continues at its rate and does not
/// catch up.
const BURST: Duration = Duration::from_millis(100);
/// A letter may be early or late by this fraction of an interval. The rate is kept: after an early letter the next
/// one waits longer.
const JITTER: f64 = 0.4;

/// A token bucket that fills at the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Letters per second; `None` means as fast as possible.
    rate: Option<f64>,
    filled: f64,
    /// The fill level that the next letter needs: 1, give or take the jitter.
    needed: f64,
    at: Duration,
}

impl Pace {
    /// A pace that begins at `now`. The first letter may go at once.
    pub fn new(rate: Option<f64>, now: Duration) -> Self {
        Self { rate: rate.filter(|rate| *rate > 0.0), filled: 1.0, needed: 1.0, at: now }
    }

    /// How many of `wanted` letters may go at `now`. `random` gives the jitter of the next one.
    pub fn take(&mut self, now: Duration, wanted: usize, random: Random) -> usize {
        let Some(rate) = self.rate else { return wanted };
        let room = (rate * BURST.as_secs_f64()).max(1.0 + JITTER);
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.filled = (self.filled + passed * rate).min(room);
        self.at = now;
        if wanted == 0 || self.filled < self.needed {
            return 0;
        }
        let granted = wanted.min(1 + (self.filled - self.needed) as usize);
        self.filled -= granted as f64;
        self.needed = 1.0 + JITTER * (2.0 * random.unit() - 1.0);
        granted
    }

    /// Returns the tokens of letters that were granted but did not go.
    pub fn give_back(&mut self, unused: usize) {
        self.filled += unused as f64;
    }

    /// How long until the next letter may go.
    pub fn wait(&self) -> Duration {
        match self.rate {
            Some(rate) if self.filled < self.needed => {
                Duration::from_secs_f64(((self.needed - self.filled) / rate).min(3600.0))
            }
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redrive_core::SplitMix64;

    use super::*;

    /// Takes one grant after the other, like a job, on a clock of its own, and returns when each letter went.
    fn times(rate: f64, letters: usize) -> Vec<Duration> {
        let mut now = Duration::from_secs(7);
        let (begun, mut pace) = (now, Pace::new(Some(rate), now));
        let (mut went, mut random) = (Vec::new(), SplitMix64::new(3));
        while went.len() < letters {
            let granted = pace.take(now, letters - went.len(), Random(random.draw()));
            went.extend(std::iter::repeat_n(now.saturating_sub(begun), granted));
            now += pace.wait().max(Duration::from_micros(10));
        }
        went
    }

    #[test]
    fn twenty_a_second_is_one_around_every_fifty_milliseconds() {
        let went = times(20.0, 401);
        assert_eq!(went[0], Duration::ZERO);
        let mut spread = Vec::new();
        for (number, at) in went.iter().enumerate() {
            let off = at.as_secs_f64() - number as f64 / 20.0;
            assert!(off.abs() < JITTER / 20.0 + 0.002, "letter {number} went at {at:?}");
            spread.push(off);
        }
        let early = spread.iter().filter(|off| **off < -0.005).count();
        let late = spread.iter().filter(|off| **off > 0.005).count();
        assert!(early > 100 && late > 100, "{early} early, {late} late: no jitter");
    }

    #[test]
    fn less_than_one_a_second_is_a_pace_too() {
        let went = times(0.5, 3);
        assert!((went[2].as_secs_f64() - 4.0).abs() < 0.81, "{went:?}");
    }

    #[test]
    fn a_standstill_is_not_made_up_for() {
        let mut pace = Pace::new(Some(100.0), Duration::ZERO);
        let middle = Random(u64::MAX / 2);
        assert_eq!(pace.take(Duration::from_hours(1), 1_000_000, middle), 10);
        assert_eq!(pace.take(Duration::from_hours(1), 1_000_000, middle), 0);
    }

    #[test]
    fn what_did_not_go_may_go_later() {
        let mut pace = Pace::new(Some(1.0), Duration::ZERO);
        let early = Random(0);
        assert_eq!(pace.take(Duration::ZERO, 5, early), 1);
        pace.give_back(1);
        assert_eq!(pace.take(Duration::ZERO, 5, early), 1);
        assert_eq!(pace.take(Duration::ZERO, 5, early), 0);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None, Duration::ZERO);
        assert_eq!(pace.take(Duration::ZERO, 4096, Random(0)), 4096);
        assert_eq!(pace.wait(), Duration::ZERO);
    }

    proptest! {
        /// Whatever the calls: never more than the rate allows, and a caller that keeps asking is not slowed down.
        #[test]
        fn the_rate_is_kept(
            rate in 0.1f64..5_000.0,
            steps in prop::collection::vec((0u64..300, 0usize..2_000, any::<u64>()), 1..200),
        ) {
            let (mut now, mut pace) = (Duration::ZERO, Pace::new(Some(rate), Duration::ZERO));
            let mut went = 0;
            for (ms, wanted, random) in steps {
                now += Duration::from_millis(ms);
                let granted = pace.take(now, wanted, Random(random));
                prop_assert!(granted <= wanted);
                went += granted;
                let most = 1.0 + JITTER + (rate * 0.1).max(1.0 + JITTER) + rate * now.as_secs_f64();
                prop_assert!(went as f64 <= most + 1e-6, "{went} at {now:?}, at most {most}");
            }
        }
    }
}
