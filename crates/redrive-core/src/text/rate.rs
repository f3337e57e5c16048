//! Messages per second as people write it: `500`, `500/s`, `50k/s`, `600/m`.

/// Faster than any machine this runs on; keeps the scheduling arithmetic far from its limits.
pub const RATE_MAX: f64 = 100_000_000.0;

/// The text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a rate; write it like 20, 20/s, 50k/s or 600/m")]
pub struct RateError {
    /// The text as written.
    pub text: String,
}

/// Reads a rate in messages per second; always above zero.
pub fn parse(text: &str) -> Result<f64, RateError> {
    let wrong = || RateError { text: text.to_owned() };
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let (digits, factor) = match (number.strip_suffix(['k', 'K']), number.strip_suffix('M')) {
        (Some(digits), _) => (digits, 1e3),
        (_, Some(digits)) => (digits, 1e6),
        _ => (number, 1.0),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(wrong());
    }
    let rate = digits.parse::<f64>().map_err(|_| wrong())? * factor / seconds;
    if is_sound(rate) { Ok(rate) } else { Err(wrong()) }
}

/// Whether a rate can be scheduled.
pub fn is_sound(rate: f64) -> bool {
    rate > 0.0 && rate <= RATE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_and_without_their_unit() {
        for (text, rate) in [
            ("500", 500.0),
            ("500/s", 500.0),
            ("50k/s", 50_000.0),
            ("50K/s", 50_000.0),
            ("1.5k", 1_500.0),
            ("0.5/s", 0.5),
            ("1M/s", 1e6),
            ("600/m", 10.0),
            ("3600/h", 1.0),
        ] {
            assert!((parse(text).unwrap() - rate).abs() < 1e-9, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_rate_is_named_with_what_is() {
        for text in [
            "", "0", "-5", "fast", "1/week", "k/s", "5/d", "1..2/s", "nan", "0/s", "-1/s", "inf/s", "NaN",
            "inf", "1e3", "101M/s", "5k k",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("50k/s"), "{error}");
        }
    }
}
