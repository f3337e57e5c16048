//! What a breaker does to the wave of messages after an outage.

use std::time::Duration;

use crate::BreakerSettings;
use crate::reload::{GROWS_BY, GROWS_EVERY, Reload};

/// A rate far above the lowest limit, so that the figures are multiples of it.
const RATE: f64 = 1_000.0;

/// How messages held by a breaker come back, if they arrive evenly and the sink can take any load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryForecast {
    /// Time from the end of the outage until the breaker closes.
    pub closes: Duration,
    /// The highest load after that, as a multiple of the usual one; permits may limit it further.
    pub peak: f64,
    /// Time from the closing until everything that was held is delivered.
    pub gone: Duration,
}

impl BreakerSettings {
    /// Forecasts the wave after a full outage of this length. `None` if the breaker does not open within it, or does
    /// not limit the wave.
    pub fn recovery(&self, outage: Duration) -> Option<RecoveryForecast> {
        let factor = self.reload.as_f64();
        let window_ms = crate::time::millis(self.fast.window);
        let opens = Duration::from_millis(self.fast.failures.of_ms(window_ms));
        if !self.enabled || factor == 0.0 || opens >= outage {
            return None;
        }
        let mut closes = opens;
        for round in 0.. {
            if closes >= outage && round > 0 {
                break;
            }
            closes += self.cooldown_of(round);
        }
        let held = RATE * closes.as_secs_f64();
        let gone = Reload::forecast(RATE, factor, f64::MAX, RATE, held as u64)?;
        // The limit grows only while something is held.
        let steps = gone.saturating_sub(Duration::from_millis(1)).as_secs() / GROWS_EVERY.as_secs();
        Some(RecoveryForecast {
            closes: closes.saturating_sub(outage),
            peak: factor + steps as f64 * GROWS_BY,
            gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ratio;

    #[test]
    fn a_minute_comes_back_at_three_times_the_rate() {
        let forecast = BreakerSettings::default().recovery(Duration::from_mins(1)).unwrap();
        // Opens after 5 s, probes at 35 s and at 95 s: 95 s of arrivals are held, and drain in 30 s, 30 s and 10 s.
        assert_eq!(forecast.closes, Duration::from_secs(35));
        assert_eq!((forecast.peak, forecast.gone.as_millis()), (3.0, 70_000));
    }

    #[test]
    fn without_a_limit_or_an_open_breaker_nothing_is_forecast() {
        let none = BreakerSettings { reload: Ratio::ZERO, ..BreakerSettings::default() };
        assert_eq!(none.recovery(Duration::from_mins(1)), None);
        assert_eq!(BreakerSettings::off().recovery(Duration::from_mins(1)), None);
        assert_eq!(BreakerSettings::default().recovery(Duration::from_secs(5)), None);
    }
}
