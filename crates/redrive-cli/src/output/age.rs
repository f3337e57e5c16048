//! Formats ages for people: `14s`, `53m`, `3h 02m`, `26h`, `9d`.

use std::time::Duration;

use redrive::Time;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A span with the precision an operator needs: minutes up to a day, hours up to three, then days.
pub fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m", seconds / MINUTE),
        HOUR..DAY => format!("{}h {:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
        DAY.. if seconds < 3 * DAY => format!("{}h", seconds / HOUR),
        _ => format!("{}d", seconds / DAY),
    }
}

/// The age of something that happened at `then`; a time in the future counts as now.
pub fn since(now: Time, then: Time) -> String {
    age(now.since(then))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_gets_coarser_as_it_grows() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_599, "59m"),
            (3_600, "1h 00m"),
            (10_920, "3h 02m"),
            (86_399, "23h 59m"),
            (93_600, "26h"),
            (259_199, "71h"),
            (259_200, "3d"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_moment_ahead_of_our_clock_is_now() {
        assert_eq!(since(Time::from_millis(1_000), Time::from_millis(5_000)), "0s");
    }
}
