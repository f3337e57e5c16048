//! Formats figures.

use serde::{Deserialize, Serialize};

use super::axis::plain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Count,
    PerSecond,
    Seconds,
    Milliseconds,
    /// A share of one, shown in percent.
    Share,
    /// A multiple.
    Times,
    Bytes,
}

impl Unit {
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Count => grouped(value),
            Self::PerSecond => format!("{}/s", grouped(value)),
            Self::Seconds if value.abs() >= 1_000.0 => format!("{} s", grouped(value)),
            Self::Seconds if value.abs() >= 100.0 => format!("{value:.1} s"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Milliseconds if value.abs() < 10.0 => format!("{value:.1} ms"),
            Self::Milliseconds => format!("{} ms", grouped(value)),
            Self::Share => percent(value),
            Self::Times if value.abs() >= 10.0 => format!("{} ×", grouped(value)),
            Self::Times => format!("{value:.2} ×"),
            Self::Bytes if value >= 1e6 => format!("{:.1} MB", value / 1e6),
            Self::Bytes => format!("{:.1} kB", value / 1e3),
        }
    }

    /// Formats a bound in the same unit without rounding: `0.04` as a share is `4 %`.
    fn bound(self, value: f64) -> String {
        match self {
            Self::Count => plain(value),
            Self::PerSecond => format!("{}/s", plain(value)),
            Self::Seconds => format!("{} s", plain(value)),
            Self::Milliseconds => format!("{} ms", plain(value)),
            Self::Share if value == 0.0 => "0".to_owned(),
            Self::Share => format!("{} %", plain(value * 100.0)),
            Self::Times => format!("{} ×", plain(value)),
            Self::Bytes if value >= 1e6 => format!("{} MB", plain(value / 1e6)),
            Self::Bytes => format!("{} kB", plain(value / 1e3)),
        }
    }

    /// Formats a range: `≥ 90 %`, `0.5 s … 2 s`.
    pub fn range(self, min: Option<f64>, max: Option<f64>) -> String {
        match (min, max) {
            (Some(min), Some(max)) => format!("{} … {}", self.bound(min), self.bound(max)),
            (Some(min), None) => format!("≥ {}", self.bound(min)),
            (None, Some(max)) => format!("≤ {}", self.bound(max)),
            (None, None) => "any".to_owned(),
        }
    }

    /// The unit of a figure without a table column, derived from its name.
    pub(super) fn by_name(figure: &str) -> Self {
        let endings = [
            ("_per_second", Self::PerSecond),
            ("_seconds", Self::Seconds),
            ("_ms", Self::Milliseconds),
            ("_share", Self::Share),
            ("_ratio", Self::Share),
            ("_climbs", Self::Share),
            ("bytes", Self::Bytes),
        ];
        let found = endings.iter().find(|(ending, _)| figure.ends_with(ending));
        let is_share = figure.starts_with("goodput_") || figure.starts_with("dead_");
        found.map_or(if is_share { Self::Share } else { Self::Count }, |(_, unit)| *unit)
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.095 => format!("{percent:.3} %"),
        small if small < 9.5 => format!("{percent:.2} %"),
        100.0 => "100 %".to_owned(),
        // Must not be rounded to 100 %.
        nearly if (99.95..100.0).contains(&nearly) => {
            format!("{:.3} %", (percent * 1e3).floor() / 1e3)
        }
        _ => format!("{percent:.1} %"),
    }
}

/// Formats whole numbers with thousands separators, and small ones with two decimals.
fn grouped(value: f64) -> String {
    if value.abs() < 0.005 {
        return "0".to_owned();
    }
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}").replace('-', "−");
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
        assert_eq!([2.5, -2.5, -0.001].map(|n| Unit::Count.text(n)), ["2.50", "−2.50", "0"]);
        assert_eq!(
            [0.0, 0.000_5, 0.053, 0.5].map(|s| Unit::Share.text(s)),
            ["0", "0.050 %", "5.30 %", "50.0 %"]
        );
        assert_eq!([3.0, 101.94].map(|t| Unit::Times.text(t)), ["3.00 ×", "102 ×"]);
        assert_eq!(Unit::Seconds.text(335.094), "335.1 s");
        assert_eq!(Unit::Seconds.text(7.0), "7.00 s");
        assert_eq!(Unit::Bytes.text(2_500_000.0), "2.5 MB");
        assert_eq!([0.999_96, 1.0].map(|s| Unit::Share.text(s)), ["99.996 %", "100 %"]);
    }

    #[test]
    fn a_range_is_in_the_unit_of_its_figure() {
        assert_eq!(Unit::Share.range(None, Some(0.02)), "≤ 2 %");
        assert_eq!(Unit::Share.range(None, Some(0.0)), "≤ 0");
        assert_eq!(Unit::Times.range(Some(1.42), Some(1.46)), "1.42 × … 1.46 ×");
        assert_eq!(Unit::Milliseconds.range(Some(7_000.0), None), "≥ 7,000 ms");
        assert_eq!(Unit::by_name("park_min_ms").text(7_019.0), "7,019 ms");
        assert_eq!(Unit::by_name("throughput_ratio").text(0.9915), "99.2 %");
        assert_eq!(Unit::by_name("twice").range(None, Some(0.0)), "≤ 0");
    }
}
