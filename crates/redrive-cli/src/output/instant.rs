//! Instants in RFC 3339, as the API writes them: `2026-11-15T21:40:05.120Z`.

use redrive::Time;

const DAY_MS: u64 = 86_400_000;

/// The last instant RFC 3339 can write: the end of the year 9999.
const LAST: Time = Time::from_millis(253_402_300_799_999);

/// Writes an instant with milliseconds, in UTC.
pub fn print(at: Time) -> String {
    let at = at.min(LAST);
    let (year, month, day) = civil(at.as_millis() / DAY_MS);
    let ms = at.as_millis() % DAY_MS;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1_000 % 60,
        ms % 1_000
    )
}

/// The date alone: `2026-12-15`.
pub fn date(at: Time) -> String {
    let (year, month, day) = civil(at.min(LAST).as_millis() / DAY_MS);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The time of day in UTC: `04:10:10`.
pub fn clock(at: Time) -> String {
    let seconds = at.as_millis() / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Reads RFC 3339: any offset, any fraction (cut to milliseconds), `T` or a space between date and time; a date
/// alone is its first moment in UTC. `None` if it is no instant after 1970.
pub fn parse(text: &str) -> Option<Time> {
    let text = text.trim();
    let date = text.get(..10)?;
    let mut parts = date.split('-');
    let year: i64 = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let days = days(year, month, day)?;
    if parts.next().is_some() {
        return None;
    }
    let rest = &text[10..];
    let ms = if rest.is_empty() { 0 } else { time_of_day(rest.strip_prefix(['T', 't', ' '])?)? };
    u64::try_from(days.checked_mul(DAY_MS.cast_signed())?.checked_add(ms)?).ok().map(Time::from_millis)
}

/// Milliseconds since midnight UTC of `21:40:05.120+01:00`; negative if the offset takes it to the day before.
fn time_of_day(text: &str) -> Option<i64> {
    let zone = text.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = text.split_at(zone);
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = whole.split(':');
    let hour = digits(parts.next()?, 2).filter(|hour| *hour < 24)?;
    let minute = digits(parts.next()?, 2).filter(|minute| *minute < 60)?;
    // 60 is a leap second; it falls together with the next second, as in Unix time.
    let second = digits(parts.next()?, 2).filter(|second| *second <= 60)?;
    if parts.next().is_some() || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
            let hours = digits(hours, 2).filter(|hours| *hours < 24)?;
            let minutes = digits(minutes, 2).filter(|minutes| *minutes < 60)?;
            let span = (hours * 60 + minutes) * 60_000;
            if zone.starts_with('-') { -span } else { span }
        }
    };
    Some((hour * 3_600 + minute * 60 + second) * 1_000 + ms - offset)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Days since 1970-01-01 of a date of the Gregorian calendar, after Howard Hinnant's `days_from_civil`: years start
/// in March, so that the leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// Year, month and day of a number of days since 1970-01-01 (`civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_instants_are_read_and_written() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T12:00:00.000Z", 951_825_600_000),
            ("2026-11-15T21:40:05.120Z", 1_794_778_805_120),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(parse(text), Some(Time::from_millis(ms)), "{text}");
            assert_eq!(print(Time::from_millis(ms)), text);
        }
    }

    #[test]
    fn offsets_fractions_and_dates_alone_are_understood() {
        let noon = parse("2026-11-15T12:00:00Z");
        assert!(noon.is_some());
        assert_eq!(parse("2026-11-15T13:00:00+01:00"), noon);
        assert_eq!(parse("2026-11-15 06:30:00.000999-05:30"), noon);
        assert_eq!(parse("2026-11-15"), parse("2026-11-15T00:00:00Z"));
        assert_eq!(parse("2026-11-15T12:00:00.5Z"), noon.map(|t| Time::from_millis(t.as_millis() + 500)));
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "",
            "1h",
            "2026-02-29",
            "2026-13-01",
            "2026-11-15T24:00:00Z",
            "2026-11-15T12:00:00",
            "2026-11-15T12:00Z",
            "2026-11-15T12:00:00.Z",
            "2026-11-15T12:00:00+1:00",
            "2026-11-15T12:00:00Z01:00",
            "1969-12-31T23:59:59Z",
            "äää-11-15T12:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_instant_comes_back(ms in 0_u64..=253_402_300_799_999) {
            prop_assert_eq!(parse(&print(Time::from_millis(ms))), Some(Time::from_millis(ms)));
        }

        #[test]
        fn no_text_is_a_panic(text in "\\PC{0,30}") {
            let _ = parse(&text);
        }
    }
}
