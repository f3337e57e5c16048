//! What the API shows of a pipeline's last minutes: how quick it was, how long messages were held, and what failed.

use redrive::Histogram;
use redrive::figures::recent::{RecentFigures, WINDOW};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct RecentView {
    window_s: u64,
    /// Without the time for which messages were held.
    end_to_end_p99_ms: Option<f64>,
    late_p99_ms: Option<f64>,
    /// Messages that succeeded after they had been held, and for how long.
    held: u64,
    held_p99_ms: Option<f64>,
    /// Failed attempts by kind, the most frequent first.
    failed: Vec<FailedView>,
    failed_total: u64,
    /// Of these, attempts of replayed letters.
    failed_replayed: u64,
}

#[derive(Debug, Serialize)]
struct FailedView {
    /// `timeout`, `refused`, `reset`, `other`, or a status.
    kind: String,
    attempts: u64,
}

impl From<&RecentFigures> for RecentView {
    fn from(recent: &RecentFigures) -> Self {
        let failed = recent.failures.kinds.iter();
        Self {
            window_s: WINDOW.as_secs(),
            end_to_end_p99_ms: p99_ms(&recent.end_to_end),
            late_p99_ms: p99_ms(&recent.lateness),
            held: recent.held.count(),
            held_p99_ms: p99_ms(&recent.held),
            failed: failed
                .map(|(kind, attempts)| FailedView { kind: kind.to_string(), attempts: *attempts })
                .collect(),
            failed_total: recent.failures.total(),
            failed_replayed: recent.failures.replayed,
        }
    }
}

/// In milliseconds, to the microsecond.
pub fn p99_ms(histogram: &Histogram) -> Option<f64> {
    histogram.quantile(0.99).map(|seconds| (seconds * 1e6).round() / 1e3)
}
