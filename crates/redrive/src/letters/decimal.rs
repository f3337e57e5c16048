//! Decimal numbers of any length, compared by their digits, since a binary float would make different ids equal.

use std::cmp::Ordering;
use std::fmt;

/// Longer exponents are rejected; no sensible number has one.
const EXPONENT_DIGITS_MAX: usize = 18;
/// Numbers with more zeros than this between digits and point are printed with an exponent.
const ZEROS_PRINTED_MAX: i64 = 20;

/// The value of a number, whatever its spelling: `42`, `42.0` and `4.2e1` are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// Without zeros at either end; empty for zero. The number is `0.DIGITS` × 10^`scale`.
    digits: String,
    scale: i64,
}

impl Decimal {
    /// Parses a number as in JSON, and also `+1`, `.5` and `5.`; `None` if it is not a number.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = all.trim_start_matches('0');
        let leading = i64::try_from(all.len() - digits.len()).ok()?;
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits: String::new(), scale: 0 });
        }
        let scale = i64::try_from(whole.len()).ok()? - leading + exponent;
        Some(Self { is_negative, digits: digits.to_owned(), scale })
    }

    /// Compares without the sign. Digits have no leading zeros, so a greater scale means a greater number.
    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (false, false) => self.scale.cmp(&other.scale).then_with(|| self.digits.cmp(&other.digits)),
            (self_is_zero, other_is_zero) => other_is_zero.cmp(&self_is_zero),
        }
    }
}

fn read_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let short = digits.trim_start_matches('0');
    if digits.is_empty()
        || short.len() > EXPONENT_DIGITS_MAX
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let exponent: i64 = if short.is_empty() { 0 } else { short.parse().ok()? };
    Some(if text.starts_with('-') { -exponent } else { exponent })
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.cmp_magnitude(other),
            (true, true) => other.cmp_magnitude(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_negative, digits, scale } = self;
        if digits.is_empty() {
            return f.write_str("0");
        }
        if *is_negative {
            f.write_str("-")?;
        }
        let exponent = scale - i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
        if (0..=ZEROS_PRINTED_MAX).contains(&exponent) {
            write!(f, "{digits}{}", zeros(exponent))
        } else if *scale > 0 && exponent < 0 {
            let (whole, fraction) = digits.split_at(usize::try_from(*scale).unwrap_or_default());
            write!(f, "{whole}.{fraction}")
        } else if (-ZEROS_PRINTED_MAX..=0).contains(scale) {
            write!(f, "0.{}{digits}", zeros(-scale))
        } else {
            write!(f, "{digits}e{exponent}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn spelling_does_not_matter() {
        for same in [
            &["42", "42.0", "4.2e1", "0.42E+2", "420e-1", "+42", "0042", "42."][..],
            &["0", "-0", "0.000", "0e999", "-0e-5"],
            &["0.5", ".5", "5e-1", "0.50"],
            &["-1e400", "-10e399", "-0.1e401"],
        ] {
            for one in same {
                assert_eq!(decimal(one), decimal(same[0]), "{one}");
            }
        }
    }

    #[test]
    fn numbers_are_ordered_by_all_their_digits() {
        let ascending = [
            "-1e400",
            "-12345678901234567890124",
            "-12345678901234567890123",
            "-2",
            "-1.5",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000000000000001",
            "9",
            "10",
            "1234567890123456781",
            "1234567890123456782",
            "12345678901234567890123",
            "12345678901234567890124",
            "1e308",
            "1e400",
        ];
        for pair in ascending.windows(2) {
            assert!(decimal(pair[0]) < decimal(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_not_read() {
        for text in [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "1.2.3",
            "0x1",
            "inf",
            "NaN",
            "1 ",
            "--1",
            "1e1234567890123456789",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn it_is_printed_the_way_people_write_it() {
        for (text, printed) in [
            ("100", "100"),
            ("19.50", "19.5"),
            ("-0.004", "-0.004"),
            ("1e400", "1e400"),
            ("25e-41", "25e-41"),
        ] {
            assert_eq!(decimal(text).to_string(), printed);
        }
    }

    proptest! {
        #[test]
        fn integers_compare_as_integers(a: i128, near in -3_i128..=3, other: i128) {
            for b in [a.saturating_add(near), other] {
                prop_assert_eq!(decimal(&a.to_string()).cmp(&decimal(&b.to_string())), a.cmp(&b));
            }
        }

        #[test]
        fn fractions_compare_as_integers_of_their_smallest_unit(a: i64, b: i64, places in 0_u32..30) {
            let at = |n: i64| decimal(&format!("{n}e-{places}"));
            prop_assert_eq!(at(a).cmp(&at(b)), a.cmp(&b));
        }

        #[test]
        fn printed_it_reads_back(text in "-?[0-9]{1,40}(\\.[0-9]{1,40})?(e[+-]?[0-9]{1,4})?") {
            let read = decimal(&text);
            prop_assert_eq!(decimal(&read.to_string()), read);
        }
    }
}
