//! Wall-clock time, for people and for comparison with earlier records, and intervals of maintenance work. The engine
//! gets its time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redrive_core::Time;

pub(crate) fn wall_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(0))
}

/// When periodic work is due.
#[derive(Debug)]
pub(crate) struct Interval {
    every: Duration,
    last: Instant,
}

impl Interval {
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now }
    }

    /// Makes the work due at least this often.
    pub(crate) fn shorten(&mut self, every: Duration) {
        self.every = self.every.min(every);
    }

    /// Whether the work is due; if so, the next interval starts now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.last) >= self.every;
        if is_due {
            self.last = now;
        }
        is_due
    }
}
