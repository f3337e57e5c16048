//! Expected ranges with their reasons, and the check of figures against them.

use serde::{Deserialize, Serialize};

use super::size::{RangesOf, Size};
use crate::results::VariantResult;

/// The expected range of a figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    pub figure: String,
    /// The variant; without it, every variant that has the figure.
    pub variant: Option<String>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// The range for `--quick`, if different.
    pub quick: Option<Range>,
    /// The range on an engine on the real clock, if different from that on the virtual clock.
    pub real: Option<Range>,
    /// The range on the Kafka engine, if different.
    pub kafka: Option<Range>,
    /// The range for `--quick` on an engine on the real clock, if different from that for `--quick` alone. It depends
    /// on the speed of the machine.
    pub quick_real: Option<Range>,
    pub reason: String,
    /// Whether a slow or busy machine alone can cause a miss. Tests ignore such a miss.
    #[serde(default)]
    pub depends_on_speed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Makes both limits multiples of the same figure of this variant (the control) in the same run. A slow machine
    /// slows the control too, so such a range does not depend on its speed.
    pub of: Option<String>,
    /// Added to the multiple, for a control whose figure may be close to zero.
    #[serde(default)]
    pub plus: f64,
}

/// Whether one figure of one variant is as expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureVerdict {
    pub variant: String,
    pub figure: String,
    /// `None` if it was not measured; then it is not as expected.
    pub measured: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub reason: String,
    pub depends_on_speed: bool,
    pub met: bool,
}

impl Expectation {
    /// The range for this size of run.
    pub fn range(&self, size: Size) -> Range {
        let full = Range { min: self.min, max: self.max, ..Range::default() };
        let quick_real = self.quick_real.as_ref().filter(|_| size.quick && size.real);
        let quick = quick_real.or(self.quick.as_ref().filter(|_| size.quick));
        let kafka = self.kafka.as_ref().filter(|_| size.engine == RangesOf::Kafka);
        quick.or(kafka).or(self.real.as_ref().filter(|_| size.real)).cloned().unwrap_or(full)
    }

    /// The variants that relative ranges refer to.
    pub(super) fn controls(&self) -> impl Iterator<Item = &str> {
        let ranges = [&self.quick, &self.real, &self.kafka, &self.quick_real];
        ranges.into_iter().flatten().filter_map(|range| range.of.as_deref())
    }

    pub fn judge(&self, variants: &[VariantResult], size: Size) -> Vec<FigureVerdict> {
        let Range { min, max, of, plus } = self.range(size);
        let is_relative = of.is_some();
        let control = of.map(|name| {
            let control = variants.iter().find(|variant| variant.name == name);
            // A missing control fails the check, because NaN is in no range.
            control.and_then(|control| control.figures.get(&self.figure).copied()).unwrap_or(f64::NAN)
        });
        let bound = |limit: f64| control.map_or(limit, |control| limit.mul_add(control, plus));
        let (min, max) = (min.map(bound), max.map(bound));
        // Minutes are compressed to seconds, so delays of a busy machine are no longer negligible.
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
                depends_on_speed: !is_relative && (self.depends_on_speed || is_compressed),
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
            quick: Some(Range { min: Some(5.0), ..Range::default() }),
            real: Some(Range { max: Some(3.0), ..Range::default() }),
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
        let both = Range { max: Some(4.0), ..Range::default() };
        assert_eq!(met(Expectation { quick_real: Some(both), ..beyond() }, quick), [true]);
    }

    #[test]
    fn a_range_may_be_a_multiple_of_another_variant_and_then_depends_on_no_speed() {
        let judged = |of: &str, max: f64, plus: f64, variants: &[VariantResult]| {
            let range = Range { max: Some(max), of: Some(of.to_owned()), plus, ..Range::default() };
            let expected = Expectation {
                quick: Some(range),
                depends_on_speed: true,
                ..expectation(Some("b"), None, None)
            };
            let size = Size { quick: true, ..Size::default() };
            let verdict = expected.judge(variants, size).remove(0);
            assert!(!verdict.depends_on_speed);
            verdict.met
        };
        // A busy machine triples both.
        for load in [1.0, 3.0] {
            let variants = [variant("a", load), variant("b", 2.0 * load)];
            assert!(judged("a", 2.0, 0.0, &variants));
            assert!(!judged("a", 1.9, 0.0, &variants));
        }
        assert!(judged("a", 2.0, 1.0, &[variant("a", 0.0), variant("b", 1.0)]));
        assert!(!judged("c", 2.0, 1.0, &[variant("a", 0.0), variant("b", 1.0)]), "there is no control");
    }
}
