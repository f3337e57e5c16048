//! Which orders are due when. Everything follows from the start and the rate.

use std::ops::Range;
use std::time::Duration;

/// Orders `0, 1, 2 …` at a fixed rate, sent in batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Orders per second; above zero.
    pub rate: f64,
    /// Orders per request; at least one.
    pub batch: u32,
    /// The number of orders; `None` means without end.
    pub count: Option<u64>,
}

impl Schedule {
    /// Ends after `count` orders or after `duration`, whichever comes first.
    pub fn new(rate: f64, batch: u32, count: Option<u64>, duration: Option<Duration>) -> Self {
        // An order belongs to the duration if it is due before its end.
        let by_duration = duration.map(|span| (span.as_secs_f64() * rate).ceil() as u64);
        let count = [count, by_duration].into_iter().flatten().min();
        Self { rate, batch: batch.max(1), count }
    }

    /// The due time of order `index`, relative to the start.
    pub fn due(&self, index: u64) -> Duration {
        Duration::try_from_secs_f64(index as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// The orders of request `request`; `None` after the last.
    pub fn indices(&self, request: u64) -> Option<Range<u64>> {
        let from = request.checked_mul(u64::from(self.batch))?;
        let to = from.checked_add(u64::from(self.batch))?.min(self.count.unwrap_or(u64::MAX));
        (from < to).then_some(from..to)
    }

    /// The due time of a request: that of its last order, so that no order is sent early.
    pub fn request_due(&self, indices: &Range<u64>) -> Duration {
        self.due(indices.end.saturating_sub(1))
    }

    /// The number of orders due `elapsed` after the start.
    pub fn due_by(&self, elapsed: Duration) -> u64 {
        let due = (elapsed.as_secs_f64() * self.rate).floor() as u64;
        due.saturating_add(1).min(self.count.unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn count_and_duration_end_the_schedule_whichever_is_first() {
        let of =
            |count, secs: Option<f64>| Schedule::new(10.0, 1, count, secs.map(Duration::from_secs_f64)).count;
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(5), None), Some(5));
        assert_eq!(of(None, Some(2.0)), Some(20));
        assert_eq!(of(Some(5), Some(2.0)), Some(5));
        assert_eq!(of(Some(50), Some(2.0)), Some(20));
        assert_eq!(of(None, Some(0.05)), Some(1), "the first order is due at once");
    }

    proptest! {
        #[test]
        fn every_order_is_in_exactly_one_request_and_none_is_early(rate in 0.1_f64..100_000.0, batch in 1_u32..50, count in 0_u64..500) {
            let schedule = Schedule::new(rate, batch, Some(count), None);
            let requests: Vec<_> = (0..).map_while(|request| schedule.indices(request)).collect();
            let all: Vec<u64> = requests.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
            for request in &requests {
                prop_assert!(request.clone().all(|index| schedule.due(index) <= schedule.request_due(request)));
            }
        }

        #[test]
        fn what_is_due_grows_with_the_rate(rate in 1_f64..10_000.0, index in 0_u64..1_000_000) {
            let schedule = Schedule::new(rate, 1, None, None);
            // Rounding may make the order one nanosecond late.
            let due = schedule.due_by(schedule.due(index) + Duration::from_nanos(1));
            prop_assert!((index..=index + 2).contains(&due), "{due} for {index}");
        }
    }
}
