//! How late requests were sent: fixed buckets for Prometheus, fine ones for the report.

use std::time::Duration;

use crate::metrics::{Text, producer as names};

/// Upper bounds in seconds.
const BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
/// Buckets per power of two of microseconds, so that a quantile is off by less than 7 %.
const STEPS: u64 = 16;
const FINE: usize = (64 * STEPS) as usize;

/// A histogram of lateness, of fixed size.
#[derive(Clone, Debug)]
pub struct Lateness {
    within: [u64; BOUNDS.len()],
    fine: Box<[u64; FINE]>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            within: [0; BOUNDS.len()],
            fine: Box::new([0; FINE]),
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

impl Lateness {
    pub fn record(&mut self, late: Duration) {
        if let Some(bucket) = BOUNDS.iter().position(|bound| late.as_secs_f64() <= *bound) {
            self.within[bucket] += 1;
        }
        self.fine[step(late)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(late);
        self.max = self.max.max(late);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> Duration {
        self.max
    }

    /// The lateness that `share` of the requests did not exceed; zero before the first request.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = self.fine.iter().position(|within| {
            seen += within;
            seen >= wanted
        });
        if self.count == 0 { Duration::ZERO } else { reached.map_or(self.max, top_of).min(self.max) }
    }

    pub fn write(&self, text: &mut Text) {
        let buckets: Vec<(f64, u64)> = BOUNDS.into_iter().zip(self.within).collect();
        text.histogram(names::LATENESS, &buckets, self.count, self.sum.as_secs_f64());
    }
}

/// The fine bucket of a lateness.
fn step(late: Duration) -> usize {
    let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
    if us < STEPS {
        return us as usize;
    }
    let power = us.ilog2();
    let within = (us >> (power - STEPS.ilog2())) - STEPS;
    let from = u64::from(power - STEPS.ilog2() + 1) * STEPS;
    (from + within) as usize
}

/// The largest lateness in a bucket.
fn top_of(step: usize) -> Duration {
    let step = step as u64;
    let us = match step / STEPS {
        0 => step,
        block => {
            let shift = block - 1;
            // In 128 bits, because the upper end of the last bucket does not fit into 64.
            let above = u128::from(STEPS + step % STEPS + 1) << shift;
            u64::try_from(above - 1).unwrap_or(u64::MAX)
        }
    };
    Duration::from_micros(us)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_quantile_is_at_most_seven_percent_too_high_and_never_too_low(
            mut late_us in prop::collection::vec(0_u64..10_000_000_000, 1..200), share in 0.01_f64..1.0
        ) {
            let mut lateness = Lateness::default();
            late_us.iter().for_each(|us| lateness.record(Duration::from_micros(*us)));
            late_us.sort_unstable();
            let exact = late_us[(late_us.len() as f64 * share).ceil() as usize - 1];
            let found = lateness.quantile(share).as_micros() as u64;
            prop_assert!(found >= exact && found as f64 <= exact as f64 * 1.07, "{found} for {exact}");
        }
    }

    #[test]
    fn the_longest_lateness_has_a_place() {
        let mut lateness = Lateness::default();
        lateness.record(Duration::MAX);
        lateness.record(Duration::ZERO);
        assert_eq!(lateness.max(), Duration::MAX);
        assert_eq!(lateness.quantile(0.5), Duration::ZERO);
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }
}
