//! The rate of arriving messages over the last minute, from totals that are sampled every second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);
const OVER: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    looks: VecDeque<(Instant, u64)>,
}

impl Arrivals {
    /// Messages per second, given the total so far; zero until a second has passed.
    pub(crate) fn per_second(&mut self, came: u64, now: Instant) -> f64 {
        if self.looks.back().is_none_or(|(at, _)| now.duration_since(*at) >= EVERY) {
            if self.looks.len() > OVER {
                self.looks.pop_front();
            }
            self.looks.push_back((now, came));
        }
        let Some(((first, before), (last, after))) = self.looks.front().zip(self.looks.back()) else {
            return 0.0;
        };
        let span = last.duration_since(*first).as_secs_f64();
        // A message that moves may be counted twice for a moment, so the total can shrink. That is not a negative
        // arrival.
        if span == 0.0 { 0.0 } else { after.saturating_sub(*before) as f64 / span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_rate_of_the_last_minute() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        assert_eq!(arrivals.per_second(1_000_000, start) as u64, 0, "what was there has not come now");
        for second in 1..=300 {
            let came = 1_000_000 + second * if second <= 100 { 10 } else { 50 };
            arrivals.per_second(came, start + Duration::from_secs(second));
        }
        let rate = arrivals.per_second(0, start + Duration::from_millis(300_500));
        assert!((rate - 50.0).abs() < 0.01, "{rate}");
        assert!(arrivals.looks.len() <= OVER + 1);
    }
}
