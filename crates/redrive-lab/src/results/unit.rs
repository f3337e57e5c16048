//! How a figure reads.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Count,
    PerSecond,
    Seconds,
    Milliseconds,
    /// A share of one, shown in percent.
    Share,
    /// So many times something.
    Times,
    Bytes,
}

impl Unit {
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Count => grouped(value),
            Self::PerSecond => format!("{}/s", grouped(value)),
            Self::Seconds if value.abs() >= 100.0 => format!("{} s", grouped(value)),
            Self::Seconds => format!("{value:.2} s"),
            Self::Milliseconds if value.abs() < 10.0 => format!("{value:.1} ms"),
            Self::Milliseconds => format!("{} ms", grouped(value)),
            Self::Share => percent(value),
            Self::Times => format!("{value:.2} ×"),
            Self::Bytes if value >= 1e6 => format!("{:.1} MB", value / 1e6),
            Self::Bytes => format!("{:.1} kB", value / 1e3),
        }
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.095 => format!("{percent:.3} %"),
        small if small < 9.5 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// Whole numbers with commas; small ones with two places.
fn grouped(value: f64) -> String {
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && text != "0" { format!("−{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(Unit::PerSecond.text(60_123.4), "60,123/s");
        assert_eq!(Unit::Count.text(-1_234.0), "−1,234");
        assert_eq!(Unit::Count.text(2.5), "2.50");
        assert_eq!(
            [0.0, 0.000_5, 0.053, 0.5].map(|s| Unit::Share.text(s)),
            ["0", "0.050 %", "5.30 %", "50.0 %"]
        );
        assert_eq!(Unit::Times.text(3.0), "3.00 ×");
        assert_eq!(Unit::Seconds.text(7.0), "7.00 s");
        assert_eq!(Unit::Bytes.text(2_500_000.0), "2.5 MB");
    }
}
