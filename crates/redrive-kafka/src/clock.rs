//! Wall-clock time, for what people read and for comparison with earlier records, and intervals of upkeep. The engine is given
//! its own time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redrive_core::Time;

pub(crate) fn wall_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(0))
}

/// Work that is done once in a while.
#[derive(Debug)]
pub(crate) struct Interval {
    every: Duration,
    last: Instant,
}

impl Interval {
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now }
    }

    /// At least that often.
    pub(crate) fn shorten(&mut self, every: Duration) {
        self.every = self.every.min(every);
    }

    /// Whether it is time; then the next time is counted from now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.last) >= self.every;
        if is_due {
            self.last = now;
        }
        is_due
    }
}
