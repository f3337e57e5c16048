//! The downstream's latency per call: `20ms`, or uniformly from `10ms..50ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redrive_core::{Random, duration};

/// The longest latency; longer than any caller waits.
pub const LATENCY_MAX: Duration = Duration::from_hours(1);

/// An inclusive range; for a fixed latency both ends are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Latency {
    from: Duration,
    to: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a latency; write it like 20ms, or 10ms..50ms, at most 1h")]
pub struct LatencyError {
    pub text: String,
}

impl Latency {
    pub const NONE: Self = Self { from: Duration::ZERO, to: Duration::ZERO };

    pub fn drawn(&self, random: Random) -> Duration {
        let ms = |span: Duration| span.as_millis() as u64;
        Duration::from_millis(random.between_ms(ms(self.from), ms(self.to)))
    }
}

impl FromStr for Latency {
    type Err = LatencyError;

    fn from_str(text: &str) -> Result<Self, LatencyError> {
        let wrong = || LatencyError { text: text.to_owned() };
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let from = duration::parse(from).map_err(|_| wrong())?;
        let to = duration::parse(to).map_err(|_| wrong())?;
        if from <= to && to <= LATENCY_MAX { Ok(Self { from, to }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::print(self.from))?;
        if self.from == self.to { Ok(()) } else { write!(f, "..{}", duration::print(self.to)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn latencies_are_read_and_written_back() {
        for text in ["0s", "20ms", "10ms..50ms", "0s..1s", "1h"] {
            assert_eq!(text.parse::<Latency>().unwrap().to_string(), text);
        }
        assert_eq!(Latency::NONE, "0s".parse().unwrap());
    }

    #[test]
    fn what_is_not_a_latency_is_named_with_what_is() {
        for text in ["", "20", "50ms..10ms", "10ms..", "..10ms", "10ms-50ms", "2h", "1ms..2ms..3ms"] {
            let error = text.parse::<Latency>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("10ms..50ms"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_drawn_latency_lies_between_the_ends(from in 0_u64..1_000, span in 0_u64..1_000, random: u64) {
            let latency: Latency = format!("{from}ms..{}ms", from + span).parse().unwrap();
            let drawn = latency.drawn(Random(random)).as_millis() as u64;
            prop_assert!((from..=from + span).contains(&drawn));
        }
    }
}
