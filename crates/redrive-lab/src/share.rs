//! A share of messages in human-readable form: `15%`, `0.15`.

use redrive_core::Ratio;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a share of messages; write it like 15% or 0.15, at most 100%")]
pub struct ShareError {
    pub text: String,
}

/// Parses `15%` or `0.15`; at most 100 %.
pub fn parse(text: &str) -> Result<Ratio, ShareError> {
    let percent = || text.parse::<Ratio>().ok().filter(|share| *share <= Ratio::WHOLE);
    let fraction = || text.parse::<f64>().ok().and_then(Ratio::of_one);
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    percent().or_else(|| plain.then(fraction)?).ok_or_else(|| ShareError { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_share_are_read() {
        for (text, percent) in
            [("0", "0%"), ("0%", "0%"), ("15%", "15%"), ("0.15", "15%"), ("0.001", "0.1%"), ("1", "100%")]
        {
            assert_eq!(parse(text).unwrap().to_string(), percent, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_share_is_named_with_what_is() {
        for text in ["", "15", "101%", "-1%", "-0.1", "1.01", "ten%", "1e-1", "NaN", "inf"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("0.15"), "{error}");
        }
    }
}
