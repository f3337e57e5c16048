//! How many letters may go now. Pure: the time is an argument, counted from wherever the caller likes.

use std::time::Duration;

/// The fastest pace that can be asked for, in letters per second.
pub const RATE_MAX: f64 = 1_000_000.0;
/// What was not used within this time is lost: after a pause or a standstill a job goes on at its pace and does not make
/// up for the time.
const BURST: Duration = Duration::from_millis(100);

/// A bucket of letters that fills at the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Letters per second; `None` is as fast as it goes.
    rate: Option<f64>,
    filled: f64,
    at: Duration,
}

impl Pace {
    /// A pace that begins at `now`. The first letter may go at once.
    pub fn new(rate: Option<f64>, now: Duration) -> Self {
        Self { rate: rate.filter(|rate| *rate > 0.0), filled: 1.0, at: now }
    }

    /// How many of `wanted` letters may go at `now`.
    pub fn take(&mut self, now: Duration, wanted: usize) -> usize {
        let Some(rate) = self.rate else { return wanted };
        let room = (rate * BURST.as_secs_f64()).max(1.0);
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.filled = (self.filled + passed * rate).min(room);
        self.at = now;
        let granted = wanted.min(self.filled as usize);
        self.filled -= granted as f64;
        granted
    }

    /// Letters that were granted and did not go after all.
    pub fn give_back(&mut self, unused: usize) {
        self.filled += unused as f64;
    }

    /// How long until the next letter may go.
    pub fn wait(&self) -> Duration {
        match self.rate {
            Some(rate) if self.filled < 1.0 => {
                Duration::from_secs_f64(((1.0 - self.filled) / rate).min(3600.0))
            }
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goes on from grant to grant as a job does, on a clock of its own, and says when each letter went.
    fn times(rate: f64, letters: usize) -> Vec<Duration> {
        let mut now = Duration::from_secs(7);
        let (begun, mut pace) = (now, Pace::new(Some(rate), now));
        let mut went = Vec::new();
        while went.len() < letters {
            let granted = pace.take(now, letters - went.len());
            went.extend(std::iter::repeat_n(now.saturating_sub(begun), granted));
            now += pace.wait().max(Duration::from_micros(10));
        }
        went
    }

    #[test]
    fn twenty_a_second_is_one_every_fifty_milliseconds() {
        let went = times(20.0, 41);
        assert_eq!(went[0], Duration::ZERO);
        for (number, at) in went.iter().enumerate() {
            let ideal = number as f64 / 20.0;
            assert!((at.as_secs_f64() - ideal).abs() < 0.002, "letter {number} went at {at:?}");
        }
    }

    #[test]
    fn less_than_one_a_second_is_a_pace_too() {
        let went = times(0.5, 3);
        assert!((went[2].as_secs_f64() - 4.0).abs() < 0.002, "{went:?}");
    }

    #[test]
    fn a_standstill_is_not_made_up_for() {
        let mut pace = Pace::new(Some(100.0), Duration::ZERO);
        assert_eq!(pace.take(Duration::from_hours(1), 1_000_000), 10);
        assert_eq!(pace.take(Duration::from_hours(1), 1_000_000), 0);
    }

    #[test]
    fn what_did_not_go_may_go_later() {
        let mut pace = Pace::new(Some(1.0), Duration::ZERO);
        assert_eq!(pace.take(Duration::ZERO, 5), 1);
        pace.give_back(1);
        assert_eq!(pace.take(Duration::ZERO, 5), 1);
        assert_eq!(pace.take(Duration::ZERO, 5), 0);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None, Duration::ZERO);
        assert_eq!(pace.take(Duration::ZERO, 4096), 4096);
        assert_eq!(pace.wait(), Duration::ZERO);
    }

    proptest! {
        /// However a caller asks: never more than the rate allows, and a caller that keeps asking is not slowed down.
        #[test]
        fn the_rate_is_kept(rate in 0.1f64..5_000.0, steps in prop::collection::vec((0u64..300, 0usize..2_000), 1..200)) {
            let (mut now, mut pace) = (Duration::ZERO, Pace::new(Some(rate), Duration::ZERO));
            let mut went = 0;
            for (ms, wanted) in steps {
                now += Duration::from_millis(ms);
                let granted = pace.take(now, wanted);
                prop_assert!(granted <= wanted);
                went += granted;
                let most = 1.0 + (rate * 0.1).max(1.0) + rate * now.as_secs_f64();
                prop_assert!(went as f64 <= most + 1e-6, "{went} at {now:?}, at most {most}");
            }
        }
    }
}
