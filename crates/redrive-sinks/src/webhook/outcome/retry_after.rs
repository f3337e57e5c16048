//! Parses `Retry-After`: seconds or a date, whatever the receiver sends.

use std::time::{Duration, SystemTime};

/// The longest wait that is accepted. The policy has its own, smaller limit (`retry_after_max`).
pub(crate) const WAIT_MAX: Duration = Duration::from_hours(365 * 24);

/// The wait that the header asks for. `None` if it cannot be parsed; a time in the past means no wait.
pub(crate) fn wait(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number that overflows still means seconds.
        let secs = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(secs).min(WAIT_MAX));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or_default().min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: u64 = 784_111_777;

    fn waits(value: &str) -> Option<u64> {
        wait(value, SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_and_all_three_forms_of_a_date_are_understood() {
        assert_eq!(waits("120"), Some(120));
        assert_eq!(waits(" 0 "), Some(0));
        assert_eq!(waits("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(waits("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(waits("Sun Nov  6 08:50:37 1994"), Some(60));
    }

    #[test]
    fn a_date_that_has_passed_is_no_wait() {
        assert_eq!(waits("Sun, 06 Nov 1994 08:49:36 GMT"), Some(0));
    }

    #[test]
    fn hostile_values_are_bounded_or_ignored() {
        let max = WAIT_MAX.as_secs();
        assert_eq!(waits("99999999999999999999999999999999"), Some(max));
        assert_eq!(waits(&u64::MAX.to_string()), Some(max));
        assert_eq!(waits("Fri, 31 Dec 9999 23:59:59 GMT"), Some(max));
        for value in ["", " ", "-1", "+5", "1.5", "1e3", "soon", "0x10", "٣", "Sun, 99 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(waits(value), None, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn no_value_panics_or_exceeds_the_bound(value in "\\PC{0,40}", secs in 0_u64..u64::MAX / 2) {
            let now = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(secs));
            let wait = wait(&value, now.unwrap_or(SystemTime::UNIX_EPOCH));
            prop_assert!(wait.is_none_or(|wait| wait <= WAIT_MAX));
        }
    }
}
