//! A histogram of durations that any thread may add to.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Buckets of microseconds, each at most 3 % wide.
#[derive(Debug)]
pub struct Histogram {
    buckets: Vec<AtomicU32>,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..64 * 32).map(|_| AtomicU32::new(0)).collect(), max: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub fn record(&self, micros: u64) {
        self.buckets[Self::bucket(micros)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(micros, Ordering::Relaxed);
    }

    fn bucket(micros: u64) -> usize {
        let shift = (64 - micros.leading_zeros()).saturating_sub(6);
        shift as usize * 32 + (micros >> shift) as usize
    }

    fn lowest_of(bucket: usize) -> u64 {
        if bucket < 64 { bucket as u64 } else { ((bucket % 32 + 32) as u64) << (bucket / 32 - 1) }
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| u64::from(bucket.load(Ordering::Relaxed))).sum()
    }

    /// The quantile `share`, in milliseconds.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += u64::from(bucket.load(Ordering::Relaxed));
            if seen >= wanted && seen > 0 {
                return Self::lowest_of(index + 1).min(self.max.load(Ordering::Relaxed)) as f64 / 1000.0;
            }
        }
        0.0
    }

    pub fn max_ms(&self) -> f64 {
        self.max.load(Ordering::Relaxed) as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_bucket() {
        let histogram = Histogram::default();
        (1..=10_000).for_each(|micros| histogram.record(micros));
        let p50 = histogram.quantile_ms(0.5);
        assert!((5.0..5.3).contains(&p50), "{p50}");
        let p99 = histogram.quantile_ms(0.99);
        assert!((9.9..=10.0).contains(&p99), "{p99}");
        assert_eq!(histogram.max_ms().to_bits(), 10.0_f64.to_bits());
    }

    #[test]
    fn buckets_are_in_order_and_begin_where_they_say() {
        for micros in (0..1 << 20).step_by(37) {
            let bucket = Histogram::bucket(micros);
            assert!(Histogram::lowest_of(bucket) <= micros && micros < Histogram::lowest_of(bucket + 1));
        }
    }
}
