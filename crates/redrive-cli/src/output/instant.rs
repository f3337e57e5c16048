//! Times for people: RFC 3339, the date alone, the time of day.

use redrive::{Time, timestamp};

/// `2026-11-15T21:40:05.120Z`
pub fn print(at: Time) -> String {
    timestamp::print(at)
}

/// The date alone, in UTC: `2026-12-15`.
pub fn date(at: Time) -> String {
    print(at)[..10].to_owned()
}

/// The time of day, in UTC: `04:10:10Z`.
pub fn clock(at: Time) -> String {
    format!("{}Z", &print(at)[11..19])
}

/// To the second, in UTC: `2026-11-17 03:12:07Z`.
pub fn date_and_clock(at: Time) -> String {
    format!("{} {}", date(at), clock(at))
}

/// Reads RFC 3339; a date alone means its start in UTC. `None` if it is not a time after 1970.
pub fn parse(text: &str) -> Option<Time> {
    let text = text.trim();
    timestamp::parse(text).or_else(|| timestamp::parse(&format!("{text}T00:00:00Z")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_with_and_without_its_time_of_day() {
        let midnight = Time::from_millis(1_794_700_800_000);
        assert_eq!(parse("2026-11-15"), Some(midnight));
        assert_eq!(parse("2026-11-15T00:00:00Z"), Some(midnight));
        for text in ["", "1h", "2026-02-29", "2026-11-15T12:00", "äää-11-15"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_parts_of_an_instant_are_cut_from_the_whole() {
        let at = Time::from_millis(1_794_778_805_120);
        assert_eq!((date(at), clock(at)), ("2026-11-15".to_owned(), "21:40:05Z".to_owned()));
        assert_eq!(date(Time::MAX), "9999-12-31");
    }
}
