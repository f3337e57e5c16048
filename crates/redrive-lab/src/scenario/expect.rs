//! Expected ranges with their reasons, and whether a figure lies in its range.

use serde::{Deserialize, Serialize};

use super::size::{RangesOf, Size};
use crate::results::VariantResult;

/// What a figure is expected to be.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    pub figure: String,
    /// Of this variant; without it, of every variant that has the figure.
    pub variant: Option<String>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// The range for `--quick`, where it is another one.
    pub quick: Option<Range>,
    /// The range on an engine by the real clock, where it is another one than by the virtual clock.
    pub real: Option<Range>,
    /// The range on the Kafka engine, where it is another one.
    pub kafka: Option<Range>,
    /// The range for `--quick` on an engine by the real clock, where it is another one than for `--quick` alone. It depends on
    /// the speed of the machine.
    pub quick_real: Option<Range>,
    pub reason: String,
    /// Whether a slow or busy machine alone can miss it. Such a verdict is no matter for a test.
    #[serde(default)]
    pub depends_on_speed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub min: Option<f64>,
    pub max: Option<f64>,
}

/// Whether one figure of one variant is as expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureVerdict {
    pub variant: String,
    pub figure: String,
    /// `None` if it was not measured, which is not as expected.
    pub measured: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub reason: String,
    pub depends_on_speed: bool,
    pub met: bool,
}

impl Expectation {
    /// The range that holds for this size of run.
    pub fn range(&self, size: Size) -> Range {
        let full = Range { min: self.min, max: self.max };
        let quick_real = self.quick_real.filter(|_| size.quick && size.real);
        let quick = quick_real.or(self.quick.filter(|_| size.quick));
        let kafka = self.kafka.filter(|_| size.engine == RangesOf::Kafka);
        quick.or(kafka).or(self.real.filter(|_| size.real)).unwrap_or(full)
    }

    pub fn judge(&self, variants: &[VariantResult], size: Size) -> Vec<FigureVerdict> {
        let Range { min, max } = self.range(size);
        // Minutes in seconds: what a busy machine delays is no longer small against them.
        let is_compressed = size.quick && size.real && self.quick_real.is_some();
        let verdict = |variant: &str, measured: Option<f64>| {
            let is_in = |value: f64| min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max);
            FigureVerdict {
                variant: variant.to_owned(),
                figure: self.figure.clone(),
                measured,
                min,
                max,
                reason: self.reason.clone(),
                depends_on_speed: self.depends_on_speed || is_compressed,
                met: measured.is_some_and(is_in),
            }
        };
        let figure = |variant: &VariantResult| variant.figures.get(&self.figure).copied();
        if let Some(name) = &self.variant {
            let measured = variants.iter().find(|variant| variant.name == *name).and_then(figure);
            return vec![verdict(name, measured)];
        }
        let measured = variants.iter().filter_map(|variant| Some((variant, figure(variant)?)));
        let all: Vec<FigureVerdict> =
            measured.map(|(variant, value)| verdict(&variant.name, Some(value))).collect();
        if all.is_empty() { vec![verdict("any", None)] } else { all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expectation(variant: Option<&str>, min: Option<f64>, max: Option<f64>) -> Expectation {
        Expectation {
            figure: "lag".to_owned(),
            variant: variant.map(str::to_owned),
            min,
            max,
            quick: Some(Range { min: Some(5.0), max: None }),
            real: Some(Range { min: None, max: Some(3.0) }),
            quick_real: None,
            kafka: None,
            reason: String::new(),
            depends_on_speed: false,
        }
    }

    fn variant(name: &str, lag: f64) -> VariantResult {
        let figures = [("lag".to_owned(), lag)].into();
        VariantResult { name: name.to_owned(), figures, audit: None }
    }

    #[test]
    fn a_figure_outside_of_its_range_or_not_measured_is_not_as_expected() {
        let variants = [variant("a", 1.0), variant("b", 3.0)];
        let met = |expectation: Expectation, size: Size| {
            expectation.judge(&variants, size).iter().map(|verdict| verdict.met).collect::<Vec<_>>()
        };
        let full = Size::default();
        assert_eq!(met(expectation(Some("a"), Some(1.0), Some(2.0)), full), [true]);
        assert_eq!(met(expectation(Some("b"), None, Some(2.0)), full), [false]);
        assert_eq!(met(expectation(None, None, Some(2.0)), full), [true, false]);
        assert_eq!(met(expectation(Some("c"), None, None), full), [false]);
        let beyond = || expectation(Some("b"), None, Some(2.0));
        let real = Size { real: true, ..full };
        assert_eq!(met(beyond(), real), [true], "the real clock has a range of its own");
        let quick = Size { quick: true, ..real };
        assert_eq!(met(beyond(), quick), [false], "and so has a quick run, by whatever clock");
        let both = Range { min: None, max: Some(4.0) };
        assert_eq!(met(Expectation { quick_real: Some(both), ..beyond() }, quick), [true]);
    }
}
