//! A share written in percent: `10%`, `12.5%`.

use std::fmt;
use std::str::FromStr;

/// A share in steps of a hundredth of a percent. An integer, so that two equal settings are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ratio {
    basis_points: u32,
}

/// The text is not a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a share; write it like 10% or 12.5%")]
pub struct RatioError {
    /// The text as written.
    pub text: String,
}

impl Ratio {
    /// Zero.
    pub const ZERO: Self = Self::percent(0);
    /// 100 %.
    pub const WHOLE: Self = Self::percent(100);

    /// This many percent.
    pub const fn percent(percent: u16) -> Self {
        Self { basis_points: percent as u32 * 100 }
    }

    /// A fraction such as `0.5`, rounded to a hundredth of a percent; `None` unless it lies in `0..=1`.
    pub fn of_one(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then(|| Self { basis_points: (fraction * 10_000.0).round() as u32 })
    }

    /// This share of a span, in whole milliseconds rounded down.
    pub fn of_ms(self, span_ms: u64) -> u64 {
        let share = u128::from(span_ms) * u128::from(self.basis_points) / 10_000;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Hundredths of a percent.
    pub const fn basis_points(self) -> u64 {
        self.basis_points as u64
    }

    /// The share as a number between 0 and 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.basis_points) / 10_000.0
    }
}

impl FromStr for Ratio {
    type Err = RatioError;

    fn from_str(text: &str) -> Result<Self, RatioError> {
        let wrong = || RatioError { text: text.to_owned() };
        let number = text.strip_suffix('%').ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 2 || whole.len() > 5 {
            return Err(wrong());
        }
        let hundredths: u32 = format!("{part:0<2}").parse().map_err(|_| wrong())?;
        let whole: u32 = whole.parse().map_err(|_| wrong())?;
        Ok(Self { basis_points: whole * 100 + hundredths })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.basis_points / 100, self.basis_points % 100);
        match part {
            0 => write!(f, "{whole}%"),
            _ if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            _ => write!(f, "{whole}.{part:02}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_written_back() {
        for text in ["0%", "10%", "50%", "100%", "150%", "12.5%", "0.05%", "33.33%", "99999%"] {
            assert_eq!(text.parse::<Ratio>().unwrap().to_string(), text);
        }
        assert_eq!("10.50%".parse::<Ratio>().unwrap().to_string(), "10.5%");
    }

    #[test]
    fn what_is_not_a_share_is_named() {
        for text in ["", "%", "10", "ten%", "-1%", "1.%", ".5%", "1.234%", "100000%", "+1%"] {
            let error = text.parse::<Ratio>().unwrap_err();
            assert_eq!(error.to_string(), format!("`{text}` is not a share; write it like 10% or 12.5%"));
        }
    }

    #[test]
    fn a_share_of_a_span_rounds_down_and_never_wraps() {
        assert_eq!(Ratio::percent(50).of_ms(1_001), 500);
        assert_eq!(Ratio::WHOLE.of_ms(u64::MAX), u64::MAX);
        assert_eq!(Ratio::percent(200).of_ms(u64::MAX), u64::MAX);
        assert!((Ratio::percent(25).as_f64() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_fraction_of_one_lies_between_zero_and_one() {
        assert_eq!(Ratio::of_one(0.5), Some(Ratio::percent(50)));
        assert_eq!(Ratio::of_one(0.0), Some(Ratio::ZERO));
        assert_eq!(Ratio::of_one(1.0), Some(Ratio::WHOLE));
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::of_one(bad), None);
        }
    }
}
