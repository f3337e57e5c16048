//! A point in time: milliseconds since the Unix epoch, by the clock of the host that delivers.

use std::fmt;
use std::time::{Duration, SystemTime};

/// A wall-clock time in whole milliseconds. All arithmetic saturates: no input can make a delay wrap.
///
/// ```
/// use redrive_core::Time;
/// use std::time::{Duration, SystemTime};
///
/// let due = Time::from_millis(1_000).plus(Duration::from_secs(5));
/// assert_eq!(due.as_millis(), 6_000);
/// assert_eq!(due.since(Time::from_millis(1_000)), Duration::from_secs(5));
/// assert_eq!(Time::from(SystemTime::from(due)), due);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The Unix epoch.
    pub const ZERO: Self = Self(0);
    /// The latest possible time.
    pub const MAX: Self = Self(u64::MAX);

    /// A time in milliseconds since the Unix epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This time plus `span`; saturates instead of wrapping.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// The time that passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Whole milliseconds; a time before 1970 becomes [`Time::ZERO`].
impl From<SystemTime> for Time {
    fn from(at: SystemTime) -> Self {
        at.duration_since(SystemTime::UNIX_EPOCH)
            .map_or(Self::ZERO, |since| Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> Self {
        Self::UNIX_EPOCH + Duration::from_millis(time.0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Whole milliseconds of a span, rounded up so that a delay is never shortened, saturating.
pub fn millis(span: Duration) -> u64 {
    let whole = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    whole.saturating_add(u64::from(!span.subsec_nanos().is_multiple_of(1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stays_inside_time() {
        assert_eq!(Time::MAX.plus(Duration::from_secs(1)), Time::MAX);
        assert_eq!(Time::ZERO.plus(Duration::MAX), Time::MAX);
        assert_eq!(Time::ZERO.since(Time::from_millis(5)), Duration::ZERO);
    }

    #[test]
    fn a_part_of_a_millisecond_counts_as_a_whole_one() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(1)), 1);
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
    }

    #[test]
    fn an_instant_is_one_of_the_system_and_back() {
        for ms in [0, 1, 1_700_000_000_123, u64::MAX] {
            let time = Time::from_millis(ms);
            assert_eq!(Time::from(SystemTime::from(time)), time);
        }
        let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Time::from(before_1970), Time::ZERO);
        let fraction = SystemTime::UNIX_EPOCH + Duration::from_micros(1_999);
        assert_eq!(Time::from(fraction), Time::from_millis(1), "a part of a millisecond has not passed yet");
    }

    #[test]
    fn an_instant_shows_its_milliseconds() {
        assert_eq!(format!("{:?}", Time::from_millis(5)), "5ms");
    }
}
