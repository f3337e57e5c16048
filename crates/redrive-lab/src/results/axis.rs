//! An axis of a plot: its label, scale and ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use serde::{Deserialize, Serialize};

/// Steps between ticks, and ticks within a decade.
const NICE: [f64; 3] = [1.0, 2.0, 5.0];
const TICKS_MAX: usize = 9;
/// Space above the highest value on a logarithmic axis, as a factor.
const HEADROOM: f64 = 1.4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity, with its unit.
    pub text: String,
    #[serde(default)]
    pub scale: Scale,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    #[default]
    Linear,
    /// Shares of one, with ticks in percent.
    Share,
    /// Logarithmic, starting at this value. Lower values, including zero, are drawn at the edge, whose tick says so.
    Log(f64),
}

/// Both axes of a plot, as stored in `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axes {
    pub x: Axis,
    pub y: Axis,
}

impl Axis {
    pub fn linear(text: &str) -> Self {
        Self { text: text.to_owned(), scale: Scale::Linear }
    }

    /// The axis with the range that these values need.
    pub(super) fn ranged(&self, values: impl Iterator<Item = f64>) -> RangedAxis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut is_whole = true;
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
            is_whole &= value.fract() == 0.0;
        }
        let (from, to) = match self.scale {
            Scale::Log(from) => (from, high.max(from * 10.0) * HEADROOM),
            Scale::Linear | Scale::Share => (low.min(0.0), if high > 0.0 { high * 1.05 } else { 1.0 }),
        };
        RangedAxis { scale: self.scale, from, to, has_below: low < from, is_whole }
    }
}

/// An axis with its range, ready to draw.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RangedAxis {
    scale: Scale,
    from: f64,
    to: f64,
    /// Whether values below the range are drawn at its edge.
    has_below: bool,
    /// Whether all values are whole numbers, so that ticks between them would be meaningless.
    is_whole: bool,
}

impl RangedAxis {
    /// The position of a value between the ends, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Log(_) => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            Scale::Linear | Scale::Share => (value - self.from) / (self.to - self.from),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log(_) => self.decades(),
            Scale::Linear | Scale::Share => self.steps(),
        }
    }

    /// Powers of ten times the first value; on a short axis also 2 and 5 times them.
    fn decades(&self) -> Vec<f64> {
        let count = (self.to / self.from).log10();
        let within: &[f64] = if count <= 2.5 { &NICE } else { &NICE[..1] };
        let decades = (0..=count as i32).map(|n| self.from * 10_f64.powi(n));
        let ticks = decades.flat_map(|decade| within.iter().map(move |times| decade * times));
        ticks.filter(|tick| *tick <= self.to).collect()
    }

    fn steps(&self) -> Vec<f64> {
        let rough = (self.to - self.from) / TICKS_MAX as f64;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = NICE.iter().map(|times| times * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(decade * 10.0).max(if self.is_whole { 1.0 } else { 0.0 });
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }

    /// Formats a tick: `25,000`, `0.5`, `20 %`; `≤ 1` at the edge where smaller values are drawn.
    pub(super) fn label(&self, tick: f64) -> String {
        let text = match self.scale {
            Scale::Share => format!("{} %", plain(tick * 100.0)),
            Scale::Linear | Scale::Log(_) => plain(tick),
        };
        if self.has_below && tick <= self.from { format!("≤ {text}") } else { text }
    }
}

/// Formats a value with thousands separators and no superfluous decimals.
pub(super) fn plain(value: f64) -> String {
    let rounded = format!("{value:.6}");
    let rounded = rounded.trim_end_matches('0').trim_end_matches('.');
    let (sign, digits) = rounded.strip_prefix('-').map_or(("", rounded), |digits| ("−", digits));
    let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
    let mut text = String::from(if digits == "0" { "" } else { sign });
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !places.is_empty() {
        text.push('.');
        text.push_str(places);
    }
    text
}

impl Ranged for RangedAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.place(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for RangedAxis {
    fn format(value: &f64) -> String {
        plain(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranged(scale: Scale, values: &[f64]) -> RangedAxis {
        Axis { text: String::new(), scale }.ranged(values.iter().copied())
    }

    fn labels(axis: &RangedAxis) -> Vec<String> {
        axis.ticks().into_iter().map(|tick| axis.label(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_read_as_people_write_them() {
        let thousands = ranged(Scale::Linear, &[0.0, 29_990.0]);
        assert_eq!(labels(&thousands)[..3], ["0", "5,000", "10,000"]);
        assert_eq!(labels(&ranged(Scale::Share, &[0.0, 1.0])).last().unwrap(), "100 %");
        assert_eq!(labels(&ranged(Scale::Linear, &[0.0, 0.7]))[..3], ["0", "0.1", "0.2"]);
        assert_eq!(
            labels(&ranged(Scale::Linear, &[0.0, 3.0])),
            ["0", "1", "2", "3"],
            "none between whole values"
        );
        assert_eq!(plain(-1_234.5), "−1,234.5");
    }

    #[test]
    fn a_logarithmic_axis_gives_each_decade_the_same_space_and_says_what_lies_below_it() {
        let axis = ranged(Scale::Log(1.0), &[0.0, 10.0, 100_000.0]);
        assert_eq!(labels(&axis), ["≤ 1", "10", "100", "1,000", "10,000", "100,000"]);
        let space = |a: f64, b: f64| axis.map(&b, (0, 1_000)) - axis.map(&a, (0, 1_000));
        assert!((space(1.0, 10.0) - space(1_000.0, 10_000.0)).abs() <= 1);
        assert_eq!(axis.map(&0.0, (0, 1_000)), 0, "zero is drawn at the edge");
        assert_eq!(labels(&ranged(Scale::Log(100.0), &[300.0, 900.0])), ["100", "200", "500", "1,000"]);
    }

    #[test]
    fn an_axis_without_values_or_with_one_is_drawn() {
        for values in [&[][..], &[0.0], &[f64::NAN]] {
            for scale in [Scale::Linear, Scale::Share, Scale::Log(1.0)] {
                assert!(ranged(scale, values).ticks().len() > 1, "{scale:?} {values:?}");
            }
        }
    }
}
