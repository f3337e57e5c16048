//! The scenario file.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::content::{hash, written};
use super::expect::{Expectation, FigureVerdict};
use super::size::Size;
use crate::results::VariantResult;

/// The parameters of one variant by name, formatted for readers.
pub type Settings = BTreeMap<String, String>;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line for `lab list`.
    pub title: String,
    pub question: String,
    /// Why it matters, and what would make the answer worthless.
    pub why: String,
    /// How it is measured.
    pub method: String,
    /// Why the curves look as they do, what is surprising, and what they do not show. Pages take it from here, so
    /// that it can be corrected without another run.
    pub explains: String,
    /// The requirements of the project that it answers.
    #[serde(default)]
    pub answers: Vec<String>,
    pub clock: Clock,
    pub downstream: DownstreamKind,
    /// Approximate duration of the full run.
    pub takes: String,
    /// Whether the variants mostly wait and can run concurrently.
    #[serde(default)]
    pub side_by_side: bool,
    #[serde(default)]
    parameters: Table,
    /// Overrides parameters in a quick run.
    #[serde(default)]
    quick: Table,
    /// Overrides parameters in a run on an engine, on the real clock. Only for scenarios on the virtual clock, which
    /// can run on an engine only if this is present.
    real: Option<Table>,
    /// Overrides parameters in a quick run on an engine on the real clock, for a scenario on the virtual clock.
    #[serde(default)]
    quick_real: Table,
    #[serde(rename = "variant")]
    variants: Vec<VariantTable>,
    #[serde(rename = "expect", default)]
    pub expectations: Vec<Expectation>,
    /// At least one.
    pub broken: Vec<Broken>,
    /// Hash of the file in hexadecimal, excluding what can change without another run.
    #[serde(skip)]
    pub hash: String,
}

/// What takes the place of the downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DownstreamKind {
    /// A handler in the engine's process, which answers as the load says.
    InProcess,
    /// Part of the model; nothing is called.
    Model,
}

/// The clock of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Real time.
    Real,
    /// The dispatch machine, on a clock that skips waits.
    Virtual,
    /// A model; no pipeline runs.
    Model,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantTable {
    name: String,
    #[serde(default)]
    set: Table,
}

/// The value of [`Broken::fails`] if the audit by id must fail instead of a figure.
pub const AUDIT: &str = "audit";

/// A change that breaks a claim, and the figure that must notice. Only tests run it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broken {
    pub variant: String,
    set: Table,
    /// The figure that must miss its expectation, or [`AUDIT`].
    pub fails: String,
}

/// One variant with its parameters.
#[derive(Clone, Debug)]
pub struct Variant<P> {
    pub name: String,
    pub parameters: P,
}

/// An error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioFault(String);

impl Scenario {
    pub fn parse(text: &str) -> Result<Self, ScenarioFault> {
        let fault = |error: toml::de::Error| ScenarioFault(error.to_string());
        let scenario: Self = toml::from_str(text).map_err(fault)?;
        let content: Table = toml::from_str(text).map_err(fault)?;
        let scenario = Self { hash: hash(&content), ..scenario };
        let names: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
        let named = scenario.expectations.iter().filter_map(|expected| expected.variant.as_deref());
        let broken = scenario.broken.iter().map(|broken| broken.variant.as_str());
        let of_ranges = scenario.expectations.iter().flat_map(Expectation::controls);
        for name in named.chain(broken).chain(of_ranges) {
            if !names.contains(&name) {
                let known = names.join(", ");
                return Err(ScenarioFault(format!("there is no variant `{name}`; there are {known}")));
            }
        }
        Ok(scenario)
    }

    /// The variants with their effective parameters, parsed for the experiment.
    pub fn variants<P: DeserializeOwned>(&self, size: Size) -> Result<Vec<Variant<P>>, ScenarioFault> {
        let of = |variant: &VariantTable| {
            let parameters = self.merged(variant, size).try_into();
            let fault = |error: toml::de::Error| {
                ScenarioFault(format!("variant `{}`: {}", variant.name, error.message()))
            };
            Ok(Variant { name: variant.name.clone(), parameters: parameters.map_err(fault)? })
        };
        self.variants.iter().map(of).collect()
    }

    fn merged(&self, variant: &VariantTable, size: Size) -> Table {
        let mut merged = self.parameters.clone();
        let mut put = |table: &Table| merged.extend(table.clone());
        if size.quick {
            put(&self.quick);
        }
        if let Some(real) = self.real.as_ref().filter(|_| size.real) {
            put(real);
            if size.quick {
                put(&self.quick_real);
            }
        }
        put(&variant.set);
        let broken = size.broken.and_then(|which| self.broken.get(which));
        if let Some(broken) = broken.filter(|broken| broken.variant == variant.name) {
            put(&broken.set);
        }
        merged
    }

    /// The effective parameters of every variant, formatted for readers.
    pub fn settings(&self, size: Size) -> BTreeMap<String, Settings> {
        let of = |variant: &VariantTable| {
            let merged = self.merged(variant, size);
            let settings = merged.iter().map(|(name, value)| (name.clone(), written(value))).collect();
            (variant.name.clone(), settings)
        };
        self.variants.iter().map(of).collect()
    }

    /// The names of the variants, in order.
    pub fn variant_names(&self) -> Vec<&str> {
        self.variants.iter().map(|variant| variant.name.as_str()).collect()
    }

    /// The same scenario on an engine, on the real clock; `None` if it has no such form. Its variants wait for
    /// minutes, so they run concurrently.
    pub fn by_the_real_clock(&self) -> Option<Self> {
        self.real.is_some().then(|| Self { clock: Clock::Real, side_by_side: true, ..self.clone() })
    }

    /// Checks every expected range against the measured figures.
    pub fn judge(&self, variants: &[VariantResult], size: Size) -> Vec<FigureVerdict> {
        self.expectations.iter().flat_map(|expected| expected.judge(variants, size)).collect()
    }
}

impl fmt::Display for DownstreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProcess => {
                "in the process of the engine, a handler that answers as the load says; no HTTP"
            }
            Self::Model => "part of the model; nothing is called",
        })
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Real => "real clock",
            Self::Virtual => "virtual clock",
            Self::Model => "model",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::values::{Share, Span};
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Parameters {
        rate: f64,
        span: Span,
        poison: Share,
    }

    const HEAD: &str = "title = 't'\nquestion = 'q'\nwhy = 'w'\nmethod = 'm'\nexplains = 'e'\nclock = 'real'\ntakes = '1m'\ndownstream = 'in-process'\n";
    const REST: &str = "[parameters]\nrate = 100\nspan = '5s'\npoison = '1%'\n[quick]\nspan = '1s'\n[real]\nrate = 10\n[quick_real]\nrate = 20\n\
                        [[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\nset = { poison = '5%' }\n";
    const BROKEN: &str = "[[broken]]\nvariant = 'b'\nset = {}\nfails = 'f'\n[[broken]]\nvariant = 'a'\nset = { rate = 1 }\nfails = 'f'\n";

    fn scenario(more: &str) -> Result<Scenario, ScenarioFault> {
        Scenario::parse(&format!("{HEAD}{REST}{more}"))
    }

    #[test]
    fn variants_and_quick_replace_parameters() {
        let scenario = scenario(BROKEN).unwrap();
        let size = Size { quick: true, broken: Some(1), ..Size::default() };
        let variants = scenario.variants::<Parameters>(size).unwrap();
        let rates: Vec<f64> = variants.iter().map(|variant| variant.parameters.rate).collect();
        assert_eq!(rates, [1.0, 100.0]);
        assert_eq!(variants[1].parameters.span.0.as_secs(), 1);
        assert_eq!(variants[1].parameters.poison.0.to_string(), "5%");
        let full = scenario.variants::<Parameters>(Size::default()).unwrap();
        assert_eq!(full[0].parameters.span.0.as_secs(), 5);
        let real = scenario.variants::<Parameters>(Size { real: true, ..Size::default() }).unwrap();
        assert_eq!((real[0].parameters.rate, real[0].parameters.span.0.as_secs()), (10.0, 5));
        let both = Size { quick: true, real: true, ..Size::default() };
        let quick = scenario.variants::<Parameters>(both).unwrap();
        assert_eq!((quick[0].parameters.rate, quick[0].parameters.span.0.as_secs()), (20.0, 1));
        assert_eq!(scenario.settings(both)["b"]["poison"], "5%");
    }

    #[test]
    fn the_hash_changes_with_what_is_run_and_not_with_words_about_it() {
        let text = format!("{HEAD}{REST}{BROKEN}");
        let hash = |from: &str, to: &str| Scenario::parse(&text.replace(from, to)).unwrap().hash;
        let as_is = hash("", "");
        assert_eq!(as_is.len(), 16);
        for same in
            [hash("explains = 'e'", "explains = 'better'"), hash("[quick]\nspan = '1s'", "[quick]"), {
                hash("rate = 100\nspan = '5s'", "# faster\nspan = '5s'\nrate = 100")
            }]
        {
            assert_eq!(same, as_is);
        }
        for other in [hash("rate = 100", "rate = 101"), hash("poison = '5%'", "poison = '6%'"), {
            hash("method = 'm'", "method = 'n'")
        }] {
            assert_ne!(other, as_is);
        }
    }

    #[test]
    fn a_parameter_that_nobody_reads_or_a_variant_that_is_not_there_is_a_fault() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Less {
            #[serde(rename = "rate")]
            _rate: f64,
        }
        let fault = scenario(BROKEN).unwrap().variants::<Less>(Size::default()).unwrap_err();
        assert!(fault.to_string().contains("span") || fault.to_string().contains("poison"), "{fault}");
        let fault = scenario(&format!("{BROKEN}[[expect]]\nvariant = 'c'\nfigure = 'f'\nreason = 'r'\n"));
        assert!(fault.unwrap_err().to_string().contains("`c`; there are a, b"));
        let fault = scenario(&format!(
            "{BROKEN}[[expect]]\nvariant = 'a'\nfigure = 'f'\nreason = 'r'\nquick = {{ max = 2, of = 'd' }}\n"
        ));
        assert!(fault.unwrap_err().to_string().contains("`d`; there are a, b"));
    }
}
