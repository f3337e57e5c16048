//! A pipeline's last minutes, in the API: latency, time held, and failures.

use redrive::Histogram;
use redrive::internal::figures::recent::{RecentFigures, WINDOW};
use redrive_api::{FailedKind, Recent};

pub fn recent(recent: &RecentFigures) -> Recent {
    let failed = recent.failures.kinds.iter();
    Recent {
        window_s: WINDOW.as_secs(),
        end_to_end_p99_ms: p99_ms(&recent.end_to_end),
        late_p99_ms: p99_ms(&recent.lateness),
        held: recent.held.count(),
        held_p99_ms: p99_ms(&recent.held),
        failed: failed
            .map(|(kind, attempts)| FailedKind { kind: kind.to_string(), attempts: *attempts })
            .collect(),
        failed_total: recent.failures.total(),
        failed_replayed: recent.failures.replayed,
    }
}

/// In milliseconds, to the microsecond.
pub fn p99_ms(histogram: &Histogram) -> Option<f64> {
    histogram.quantile(0.99).map(|seconds| (seconds * 1e6).round() / 1e3)
}
