//! How many letters of a group died within the last minute, in two counters.

use redrive_core::Time;

const MINUTE_MS: u64 = 60_000;

/// Arrivals in the latest minute that had any, and in the minute before it. The part of the earlier minute within the
/// last sixty seconds is estimated in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ArrivalRate {
    minute: u64,
    now: u64,
    before: u64,
}

impl ArrivalRate {
    /// Counts a letter that died at `at`.
    pub fn add(&mut self, at: Time) {
        let minute = at.as_millis() / MINUTE_MS;
        if minute > self.minute {
            self.before = if minute == self.minute + 1 { self.now } else { 0 };
            (self.minute, self.now) = (minute, 0);
        }
        match self.minute - minute {
            0 => self.now += 1,
            1 => self.before += 1,
            _ => {}
        }
    }

    /// Letters that died within the last minute.
    pub fn per_minute(&self, now: Time) -> u64 {
        let (minute, into) = (now.as_millis() / MINUTE_MS, now.as_millis() % MINUTE_MS);
        let left = |count: u64| count * (MINUTE_MS - into) / MINUTE_MS;
        match minute.saturating_sub(self.minute) {
            0 => self.now + left(self.before),
            1 => left(self.now),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_leave_the_rate_within_two_minutes() {
        let at = |seconds: u64| Time::from_millis(seconds * 1_000);
        let mut rate = ArrivalRate::default();
        for second in 600..660 {
            rate.add(at(second));
        }
        assert_eq!(rate.per_minute(at(659)), 60);
        assert_eq!(rate.per_minute(at(660)), 60);
        assert_eq!(rate.per_minute(at(690)), 30);
        assert_eq!(rate.per_minute(at(720)), 0);
        rate.add(at(661));
        assert_eq!(rate.per_minute(at(690)), 31);
        // A letter that was stored late counts in its own minute, an old one not at all.
        rate.add(at(659));
        rate.add(at(1));
        assert_eq!(rate.per_minute(at(660)), 62);
        assert_eq!(rate.per_minute(at(0)), 62, "a clock that was set back");
    }
}
