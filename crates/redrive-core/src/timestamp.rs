//! Times as people and programs exchange them: RFC 3339, `2026-11-15T21:40:05.120Z`.

use crate::Time;

const DAY_MS: u64 = 86_400_000;
/// The end of the year 9999; RFC 3339 has no later year.
const LATEST_MS: u64 = 253_402_300_799_999;

/// Formats in UTC with milliseconds. Times after the year 9999 are shown as its end.
pub fn print(time: Time) -> String {
    let ms = time.as_millis().min(LATEST_MS);
    let (year, month, day) = date_of(ms / DAY_MS);
    let of_day = ms % DAY_MS;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Reads a time with `Z` or an offset; parts of a millisecond are cut off. `None` if it is malformed, or before 1970.
pub fn parse(text: &str) -> Option<Time> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse::<i64>().ok() } else { None }
    };
    let is = |at: usize, wanted: &[u8]| text.as_bytes().get(at).is_some_and(|byte| wanted.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut milli = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        let digits = fraction.get(..end).filter(|digits| !digits.is_empty())?;
        milli = format!("{digits:0<3}").get(..3)?.parse().ok()?;
        rest = &fraction[end..];
    }
    let offset_minutes = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let at = text.len() - 5;
            let (hours, minutes) = (number(at..at + 2)?, number(at + 3..at + 5)?);
            let minutes = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    let minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute - offset_minutes;
    u64::try_from((minutes * 60 + second) * 1000 + milli).ok().map(Time::from_millis)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Years begin in March here, so that a leap day is the last day of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, month) = (year.div_euclid(400), (month + 9) % 12);
    let of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments_are_written_as_everybody_writes_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (LATEST_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(print(Time::from_millis(ms)), text);
            assert_eq!(parse(text), Some(Time::from_millis(ms)));
        }
        assert_eq!(print(Time::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn offsets_and_fractions_are_understood() {
        let utc = parse("2026-11-15T21:40:05.120Z");
        assert_eq!(parse("2026-11-15T22:40:05.12+01:00"), utc);
        assert_eq!(parse("2026-11-15t16:10:05.1209-05:30"), utc);
        assert_eq!(parse("2026-11-15 21:40:05z"), parse("2026-11-15T21:40:05.000Z"));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026",
            "2026-11-15",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T21:40:05",
            "2026-11-15T21:40:05.Z",
            "2026-11-15T21:40:05+1:00",
            "2026-11-15T21:40:05+25:00",
            "1969-12-31T23:59:59Z",
            "+026-11-15T21:40:05Z",
            "2026-11-15T21:40:05é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_comes_back(ms in 0..=LATEST_MS) {
            prop_assert_eq!(parse(&print(Time::from_millis(ms))), Some(Time::from_millis(ms)));
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
