//! Durations as people write them: `100ms 5s 5m 1h30m 1d`.

use std::time::Duration;

use crate::time::millis;

/// The units in the order they are written, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Days are read but never written: topic names and stored settings use hours.
const WRITTEN: &[(&str, u64)] = UNITS.split_at(1).1;

/// Examples, to complete "write it like …".
pub const EXAMPLES: &str = "100ms, 5s, 5m, 1h30m or 1d";

/// The text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration; write it like {EXAMPLES}")]
pub struct DurationError {
    /// The text as written.
    pub text: String,
}

/// Reads a duration such as `1h30m`. Every number has a unit, and units go from long to short.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError { text: text.to_owned() };
    let mut rest = text;
    let mut total_ms = 0_u64;
    let mut units = UNITS.as_slice();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_len);
        let position = units.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part_ms = number.checked_mul(units[position].1).ok_or_else(wrong)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(wrong)?;
        units = &units[position + 1..];
        rest = next;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Duration::from_millis(total_ms)) }
}

/// Formats a duration so that [`parse`] reads it back; parts of a millisecond are rounded up.
pub fn print(span: Duration) -> String {
    let mut rest_ms = millis(span);
    if rest_ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for &(unit, unit_ms) in WRITTEN {
        if rest_ms >= unit_ms {
            text.push_str(&(rest_ms / unit_ms).to_string());
            text.push_str(unit);
            rest_ms %= unit_ms;
        }
    }
    text
}

/// Formats a duration for people: from ten seconds on in whole seconds, rounded down (`2m47s`, not `2m47s500ms`).
pub fn rough(span: Duration) -> String {
    if span.as_secs() < 10 { print(span) } else { print(Duration::from_secs(span.as_secs())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_configuration_are_read_and_written_back() {
        for (text, ms) in [
            ("100ms", 100),
            ("5s", 5_000),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("1h5s", 3_605_000),
            ("1m30s250ms", 90_250),
            ("0s", 0),
        ] {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(ms), "{text}");
            assert_eq!(print(Duration::from_millis(ms)), text);
        }
        assert_eq!(print(parse("90s").unwrap()), "1m30s");
    }

    #[test]
    fn days_are_read_and_written_as_hours() {
        for (text, printed) in [("1d", "24h"), ("7d", "168h"), ("1d12h", "36h"), ("2d1ms", "48h1ms")] {
            assert_eq!(print(parse(text).unwrap()), printed);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_can() {
        for text in [
            "",
            "5",
            "s",
            "5 s",
            " 5s",
            "5S",
            "1.5s",
            "-1s",
            "1D",
            "1w",
            "1h1d",
            "5s5s",
            "30m1h",
            "1s1m",
            "5sm",
            "99999999999999999999s",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.text, text);
            assert_eq!(
                error.to_string(),
                format!("`{text}` is not a duration; write it like 100ms, 5s, 5m, 1h30m or 1d")
            );
        }
    }

    #[test]
    fn a_span_too_long_to_count_is_refused_and_not_wrapped() {
        assert!(parse("18446744073709551615ms").is_ok());
        assert!(parse("18446744073709551615h").is_err());
        assert!(parse("1s18446744073709551615ms").is_err());
    }

    #[test]
    fn people_see_whole_seconds_from_ten_seconds_on() {
        assert_eq!(rough(Duration::from_millis(167_500)), "2m47s");
        assert_eq!(rough(Duration::from_millis(9_999)), "9s999ms");
        assert_eq!(rough(Duration::from_millis(10_001)), "10s");
        assert_eq!(print(Duration::from_micros(1)), "1ms");
    }
}
