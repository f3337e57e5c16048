//! How much of the project's quota this process uses: an even pace, with a tenth of a second's worth at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const AT_ONCE: Duration = Duration::from_millis(100);

/// Gives each request its moment.
#[derive(Debug)]
pub struct Pace {
    gap: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub fn new(per_second: f64) -> Self {
        Self { gap: Duration::from_secs_f64(1.0 / per_second), next: Mutex::default() }
    }

    /// When a request that is asked for now may go.
    pub fn place(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(AT_ONCE).unwrap_or(now);
        let place = next.unwrap_or(earliest).max(earliest);
        *next = Some(place + self.gap);
        place.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_at_the_rate_after_a_short_burst() {
        let (pace, now) = (Pace::new(100.0), Instant::now() + Duration::from_secs(10));
        let places: Vec<_> = (0..31).map(|_| pace.place(now) - now).collect();
        assert_eq!(places.iter().filter(|wait| wait.is_zero()).count(), 11);
        assert_eq!(places[30], Duration::from_millis(200));
        let later = now + Duration::from_mins(1);
        assert_eq!(pace.place(later), later, "what was not used is not saved up");
    }
}
