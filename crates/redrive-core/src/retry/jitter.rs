//! Spreads delays, so that messages that failed together do not come back together.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::time::millis;
use crate::{Random, Ratio, duration};

/// Six ways to spread a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Jitter {
    /// Exactly the delay.
    None,
    /// Anywhere from zero to the delay: the widest spread, and no minimum spacing.
    Full,
    /// Half fixed, half random: a guaranteed minimum spacing.
    Equal,
    /// Anywhere from the base to three times the previous delay. Only for exponential schedules.
    Decorrelated,
    /// The delay plus up to this spread.
    Plus(Spread),
    /// The delay plus or minus up to this spread.
    Around(Spread),
}

/// How far delays are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spread {
    /// A share of the delay.
    Ratio(Ratio),
    /// A fixed span.
    Time(Duration),
}

/// The input of jitter, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unspread {
    /// The delay of the schedule.
    pub delay_ms: u64,
    /// The longest delay.
    pub cap_ms: u64,
    /// The smallest delay of the schedule; the floor of decorrelated jitter.
    pub base_ms: u64,
    /// The previous delay of the same message; zero before the first.
    pub previous_ms: u64,
}

impl Jitter {
    /// The delay to wait, never above the cap.
    ///
    /// Full and equal cap before they spread, so that delays do not pile up at the cap; plus and around cap afterwards,
    /// like the formulas they come from.
    pub fn apply(self, unspread: Unspread, random: Random) -> u64 {
        let (min_ms, max_ms) = self.range(unspread);
        random.between_ms(min_ms, max_ms).min(unspread.cap_ms)
    }

    /// The shortest and the longest delay that [`Self::apply`] can give, the latter before the final cap.
    pub fn range(self, unspread: Unspread) -> (u64, u64) {
        let Unspread { delay_ms, cap_ms, base_ms, previous_ms } = unspread;
        let capped_ms = delay_ms.min(cap_ms);
        match self {
            Self::None => (capped_ms, capped_ms),
            Self::Full => (0, capped_ms),
            Self::Equal => (capped_ms - capped_ms / 2, capped_ms),
            Self::Decorrelated => {
                let from_ms = base_ms.min(cap_ms);
                (from_ms, previous_ms.max(base_ms).saturating_mul(3).clamp(from_ms, cap_ms))
            }
            Self::Plus(spread) => (delay_ms, delay_ms.saturating_add(spread.of_ms(delay_ms))),
            Self::Around(spread) => {
                let spread_ms = spread.of_ms(delay_ms);
                (delay_ms.saturating_sub(spread_ms), delay_ms.saturating_add(spread_ms))
            }
        }
    }
}

impl Spread {
    /// The width of the spread for this delay.
    pub fn of_ms(self, delay_ms: u64) -> u64 {
        match self {
            Self::Ratio(ratio) => ratio.of_ms(delay_ms),
            Self::Time(span) => millis(span),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a jitter; write none, full, equal, decorrelated, plus(50%), plus(1s) or around(10%)"
)]
/// The text is not a jitter.
pub struct JitterError {
    /// The text as written.
    pub text: String,
}

impl FromStr for Jitter {
    type Err = JitterError;

    fn from_str(text: &str) -> Result<Self, JitterError> {
        let wrong = || JitterError { text: text.to_owned() };
        let spread = |inner: &str| -> Result<Spread, JitterError> {
            match inner.parse() {
                Ok(ratio) => Ok(Spread::Ratio(ratio)),
                Err(_) => duration::parse(inner).map(Spread::Time).map_err(|_| wrong()),
            }
        };
        match text {
            "none" => Ok(Self::None),
            "full" => Ok(Self::Full),
            "equal" => Ok(Self::Equal),
            "decorrelated" => Ok(Self::Decorrelated),
            _ => match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
                Some(("plus", inner)) => Ok(Self::Plus(spread(inner)?)),
                Some(("around", inner)) => Ok(Self::Around(spread(inner)?)),
                _ => Err(wrong()),
            },
        }
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Full => f.write_str("full"),
            Self::Equal => f.write_str("equal"),
            Self::Decorrelated => f.write_str("decorrelated"),
            Self::Plus(spread) => write!(f, "plus({spread})"),
            Self::Around(spread) => write!(f, "around({spread})"),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio(ratio) => write!(f, "{ratio}"),
            Self::Time(span) => f.write_str(&duration::print(*span)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Random = Random(0);
    const HIGH: Random = Random(u64::MAX);

    fn ends(jitter: &str, delay_ms: u64, cap_ms: u64) -> (u64, u64) {
        let jitter: Jitter = jitter.parse().unwrap();
        let unspread = Unspread { delay_ms, cap_ms, base_ms: 1_000, previous_ms: 0 };
        (jitter.apply(unspread, LOW), jitter.apply(unspread, HIGH))
    }

    #[test]
    fn every_jitter_spreads_over_its_own_range() {
        assert_eq!(ends("none", 4_000, 60_000), (4_000, 4_000));
        assert_eq!(ends("full", 4_000, 60_000), (0, 4_000)); // S1-9 S2-35 S4-3
        assert_eq!(ends("equal", 4_000, 60_000), (2_000, 4_000)); // S1-10
        assert_eq!(ends("equal", 5, 60_000), (3, 5));
        assert_eq!(ends("plus(50%)", 4_000, 60_000), (4_000, 6_000)); // S0-6
        assert_eq!(ends("plus(1s)", 4_000, 60_000), (4_000, 5_000)); // S1-11 S3-4
        assert_eq!(ends("around(10%)", 4_000, 60_000), (3_600, 4_400)); // S3-5
        assert_eq!(ends("around(10s)", 4_000, 60_000), (0, 14_000));
    }

    #[test]
    fn the_cap_comes_before_full_and_equal_and_after_plus_and_around() {
        // C-1: capped first, full and equal still spread below the cap; capped last, plus and around end at the cap.
        assert_eq!(ends("none", 9_000, 6_000), (6_000, 6_000));
        assert_eq!(ends("full", 9_000, 6_000), (0, 6_000));
        assert_eq!(ends("equal", 9_000, 6_000), (3_000, 6_000));
        assert_eq!(ends("plus(50%)", 5_000, 6_000), (5_000, 6_000));
        assert_eq!(ends("around(50%)", 5_000, 6_000), (2_500, 6_000));
    }

    #[test]
    fn decorrelated_grows_from_the_previous_delay_up_to_the_cap() {
        let at = |previous_ms, random| {
            let unspread = Unspread { delay_ms: 77, cap_ms: 20_000, base_ms: 1_000, previous_ms };
            Jitter::Decorrelated.apply(unspread, random)
        };
        assert_eq!((at(0, LOW), at(0, HIGH)), (1_000, 3_000));
        assert_eq!((at(3_000, LOW), at(3_000, HIGH)), (1_000, 9_000));
        assert_eq!((at(u64::MAX, LOW), at(u64::MAX, HIGH)), (1_000, 20_000));
    }

    #[test]
    fn the_words_are_read_and_written_back() {
        for text in
            ["none", "full", "equal", "decorrelated", "plus(50%)", "plus(1s)", "around(10%)", "around(250ms)"]
        {
            assert_eq!(text.parse::<Jitter>().unwrap().to_string(), text);
        }
        for text in ["", "Full", "plus", "plus()", "plus(1)", "plus(50%", "minus(1s)", "around 10%"] {
            let error = text.parse::<Jitter>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a jitter; write none, full,")), "{error}");
        }
    }
}
