//! Limits how much of the project's quota this process uses: an even pace, with bursts of a tenth of a second's worth.
//! The members of a Kafka group share the rate like the retry budget: by the number of partitions of each.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const AT_ONCE: Duration = Duration::from_millis(100);

/// Assigns each request its time.
#[derive(Debug)]
pub struct RequestPace {
    /// The time between two requests of all members.
    gap: Duration,
    turns: Mutex<QuotaTurns>,
}

#[derive(Debug)]
struct QuotaTurns {
    /// The time between two requests of this process.
    gap: Duration,
    next: Option<Instant>,
}

impl RequestPace {
    pub fn new(per_second: f64) -> Self {
        let gap = Duration::from_secs_f64(1.0 / per_second);
        Self { gap, turns: Mutex::new(QuotaTurns { gap, next: None }) }
    }

    /// Sets the share of the rate for this process, which owns `owned` of `all` partitions. A process that owns none
    /// gets one part, to send what it took before.
    pub fn own(&self, owned: u32, all: u32) {
        let all = all.max(1);
        let gap = self.gap.saturating_mul(all) / owned.clamp(1, all);
        self.turns().gap = gap;
    }

    /// When a request made now may be sent.
    pub fn place(&self, now: Instant) -> Instant {
        let mut turns = self.turns();
        let earliest = now.checked_sub(AT_ONCE).unwrap_or(now);
        let place = turns.next.unwrap_or(earliest).max(earliest);
        turns.next = Some(place + turns.gap);
        place.max(now)
    }

    fn turns(&self) -> MutexGuard<'_, QuotaTurns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_at_the_rate_after_a_short_burst() {
        let (pace, now) = (RequestPace::new(100.0), Instant::now() + Duration::from_secs(10));
        let places: Vec<_> = (0..31).map(|_| pace.place(now) - now).collect();
        assert_eq!(places.iter().filter(|wait| wait.is_zero()).count(), 11);
        assert_eq!(places[30], Duration::from_millis(200));
        let later = now + Duration::from_mins(1);
        assert_eq!(pace.place(later), later, "what was not used is not saved up");
    }

    #[test]
    fn a_member_of_a_group_has_its_part_of_the_rate_and_all_of_it_when_it_is_alone_again() {
        let now = Instant::now() + Duration::from_secs(10);
        let hundredth = |pace: &RequestPace| (0..101).map(|_| pace.place(now) - now).last().unwrap();
        let whole = RequestPace::new(100.0);
        let half = RequestPace::new(100.0);
        half.own(2, 4);
        assert_eq!(hundredth(&half) + AT_ONCE, 2 * (hundredth(&whole) + AT_ONCE));
        let (mut together, members) =
            (0, [RequestPace::new(100.0), RequestPace::new(100.0), RequestPace::new(100.0)]);
        for (pace, owned) in members.iter().zip([6, 4, 2]) {
            pace.own(owned, 12);
            together += (0..1_000).filter(|_| pace.place(now) < now + Duration::from_secs(1)).count();
        }
        assert!((100..=113).contains(&together), "{together} in a second, of 100 and a tenth more at once");
        half.own(4, 4);
        let later = now + Duration::from_mins(1);
        let alone = (0..101).map(|_| half.place(later) - later).last().unwrap();
        assert_eq!(alone + AT_ONCE, Duration::from_secs(1));
        half.own(0, 0);
    }
}
