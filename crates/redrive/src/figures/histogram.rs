//! Histograms with fixed buckets: enough for quantiles, in constant space.

use std::time::Duration;

/// Buckets of the largest shape, including the unbounded one.
const BUCKETS_MAX: usize = 24;

/// The upper bounds of the buckets, and the factor from the counted unit to the displayed one.
#[derive(Debug, PartialEq)]
struct Shape {
    bounds: &'static [u64],
    unit: f64,
}

const MS: u64 = 1_000;
const S: u64 = 1_000 * MS;

/// Spans are measured with the message clock, so nothing below a millisecond is resolved.
static SPANS: Shape = Shape {
    bounds: &[
        MS,
        2 * MS,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        5 * S / 2,
        5 * S,
        10 * S,
        30 * S,
        60 * S,
        300 * S,
        900 * S,
        3_600 * S,
        4 * 3_600 * S,
        24 * 3_600 * S,
    ],
    unit: 1e-6,
};

/// Typical times of disk writes.
static WRITES: Shape = Shape {
    bounds: &[
        50,
        100,
        250,
        500,
        MS,
        5 * MS / 2,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        5 * S / 2,
        5 * S,
        10 * S,
    ],
    unit: 1e-6,
};

static NUMBERS: Shape = Shape { bounds: &[1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100, 1_000], unit: 1.0 };

/// Counts values by bucket.
///
/// ```
/// use std::time::Duration;
///
/// let mut took = redrive::Histogram::of_spans();
/// took.observe(Duration::from_millis(20));
/// took.observe(Duration::from_secs(2));
/// assert_eq!(took.count(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Histogram {
    shape: &'static Shape,
    counts: [u64; BUCKETS_MAX],
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// For spans of the message clock, in seconds: 1 ms to a day.
    pub fn of_spans() -> Self {
        Self::of(&SPANS)
    }

    /// For writes, in seconds: 50 µs to 10 s.
    pub fn of_writes() -> Self {
        Self::of(&WRITES)
    }

    /// For small whole numbers such as attempts.
    pub fn of_numbers() -> Self {
        Self::of(&NUMBERS)
    }

    fn of(shape: &'static Shape) -> Self {
        Self { shape, counts: [0; BUCKETS_MAX], count: 0, sum: 0, max: 0 }
    }

    /// Counts a span.
    pub fn observe(&mut self, span: Duration) {
        self.observe_times(span, 1);
    }

    /// Counts a span of the message clock. Called once per message, so it avoids a division.
    pub fn observe_ms(&mut self, ms: u64) {
        self.add(ms.saturating_mul(MS), 1);
    }

    /// Counts one value `times` times, for writes that were made together.
    pub fn observe_times(&mut self, span: Duration, times: u64) {
        self.add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX), times);
    }

    /// Counts a number.
    pub fn observe_number(&mut self, number: u64) {
        self.add(number, 1);
    }

    fn add(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bucket = self.shape.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += times;
        self.count += times;
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
        self.max = self.max.max(value);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all values: seconds, or a plain number.
    pub fn sum(&self) -> f64 {
        self.sum as f64 * self.shape.unit
    }

    /// The largest counted value.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max as f64 * self.shape.unit)
    }

    /// The upper bounds, with how many values lie at or below each. The last bound is infinite and counts all, as
    /// Prometheus requires.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.shape.bounds.iter().map(|bound| *bound as f64 * self.shape.unit);
        let mut below = 0;
        bounds.chain([f64::INFINITY]).zip(self.counts).map(move |(bound, count)| {
            below += count;
            (bound, below)
        })
    }

    /// The `q` quantile, interpolated within its bucket and never above the largest value; `None` if there are no
    /// values. `q` is clamped to 0 to 1.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let q = if q.is_nan() { 1.0 } else { q.clamp(0.0, 1.0) };
        let wanted = q * self.count as f64;
        let mut below = 0.0;
        let mut low = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let high = self.shape.bounds.get(bucket).map_or(self.max as f64, |bound| *bound as f64);
            let high = high.min(self.max as f64);
            if *count > 0 && below + *count as f64 >= wanted {
                let within = (wanted - below) / *count as f64;
                return Some((low + (high - low).max(0.0) * within).min(self.max as f64) * self.shape.unit);
            }
            below += *count as f64;
            low = high;
        }
        self.max()
    }

    /// A histogram of the values of both.
    #[must_use]
    pub fn merged(mut self, other: &Self) -> Self {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_fits_and_grows() {
        for shape in [&SPANS, &WRITES, &NUMBERS] {
            assert!(shape.bounds.len() < BUCKETS_MAX);
            assert!(shape.bounds.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn buckets_are_cumulative_and_the_last_holds_all() {
        let mut spans = Histogram::of_spans();
        for ms in [0, 1, 2, 40, 90_000, 200_000_000] {
            spans.observe(Duration::from_millis(ms));
        }
        let buckets: Vec<_> = spans.buckets().collect();
        assert_eq!(buckets[0], (0.001, 2));
        assert_eq!(buckets[1], (0.002, 3));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 6)));
        assert_eq!(buckets.len(), SPANS.bounds.len() + 1);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert!((spans.sum() - 200_090.043).abs() < 1e-6);
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_value() {
        let mut spans = Histogram::of_spans();
        assert_eq!(spans.quantile(0.5), None);
        for _ in 0..990 {
            spans.observe(Duration::from_millis(3));
        }
        spans.observe_times(Duration::from_millis(700), 10);
        let (median, most) = (spans.quantile(0.5).unwrap(), spans.quantile(0.999).unwrap());
        assert!((0.002..=0.005).contains(&median), "{median}");
        assert!((0.5..=0.7).contains(&most), "{most}");
        assert_eq!(spans.quantile(1.0), Some(0.7), "never beyond the largest value");
        assert_eq!(spans.quantile(f64::NAN), Some(0.7));
    }

    #[test]
    fn a_value_beyond_all_bounds_is_its_own_quantile() {
        let mut numbers = Histogram::of_numbers();
        numbers.observe_number(5_000);
        assert_eq!(numbers.quantile(1.0), Some(5_000.0));
        assert_eq!((numbers.count(), numbers.max()), (1, Some(5_000.0)));
    }

    #[test]
    fn two_merge_into_the_values_of_both() {
        let (mut one, mut other) = (Histogram::of_numbers(), Histogram::of_numbers());
        one.observe_number(1);
        other.observe_number(4);
        let both = one.merged(&other);
        assert_eq!((both.count(), both.max()), (2, Some(4.0)));
        assert!((both.sum() - 5.0).abs() < f64::EPSILON);
    }
}
