//! A run with everything needed to judge and repeat it, as stored in `summary.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::axis::Axes;
use super::outcome::{Column, ForecastLine, Outcome, VariantResult};
use super::unit::Unit;
use crate::scenario::{FigureVerdict, Scenario, Settings, Size};
use crate::testbed::Audit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub scenario: String,
    pub title: String,
    pub question: String,
    pub why: String,
    pub method: String,
    pub answers: Vec<String>,
    /// Engine and clock.
    pub ran_on: String,
    pub seed: u64,
    pub quick: bool,
    pub command: String,
    pub machine: BTreeMap<String, String>,
    /// Hash of the scenario file, see [`Scenario::hash`]; empty in results of older versions.
    #[serde(default)]
    pub scenario_hash: String,
    /// The parameters of every variant; empty in results of older versions.
    #[serde(default)]
    pub settings: BTreeMap<String, Settings>,
    pub took_seconds: f64,
    pub is_partial: bool,
    pub columns: Vec<Column>,
    pub variants: Vec<VariantResult>,
    pub forecasts: Vec<ForecastLine>,
    pub verdicts: Vec<FigureVerdict>,
    pub notes: Vec<String>,
    /// File name and title of each picture.
    pub plots: Vec<(String, String)>,
    /// Axes of each curve plot by name, to redraw it from `samples.csv`.
    #[serde(default)]
    pub axes: BTreeMap<String, Axes>,
}

/// The outcome of a run, for the exit code and the head of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// The audit balances and every figure is as expected.
    Passed,
    /// A figure is outside its range.
    NotAsExpected,
    /// An id is missing or ended twice.
    AuditFailed,
    Partial,
}

/// The context of an outcome.
#[derive(Clone, Debug)]
pub struct About<'a> {
    pub name: &'a str,
    pub scenario: &'a Scenario,
    pub ran_on: String,
    pub seed: u64,
    pub size: Size,
    pub command: String,
    pub machine: BTreeMap<String, String>,
    pub took_seconds: f64,
}

impl Summary {
    pub fn of(about: About<'_>, outcome: &Outcome) -> Self {
        let About { name, scenario, ran_on, seed, size, command, machine, took_seconds } = about;
        Self {
            scenario: name.to_owned(),
            title: scenario.title.clone(),
            question: scenario.question.clone(),
            why: scenario.why.clone(),
            method: scenario.method.clone(),
            answers: scenario.answers.clone(),
            ran_on,
            seed,
            quick: size.quick,
            command,
            machine,
            scenario_hash: scenario.hash.clone(),
            settings: scenario.settings(size),
            took_seconds,
            is_partial: outcome.is_partial,
            columns: outcome.columns.clone(),
            variants: outcome.variants.clone(),
            forecasts: outcome.forecasts.clone(),
            verdicts: scenario.judge(&outcome.variants, size),
            notes: outcome.notes.clone(),
            plots: outcome.pictures(),
            axes: outcome.plots.iter().map(|plot| (plot.name.clone(), plot.axes.clone())).collect(),
        }
    }

    /// The parameters that all variants share.
    pub fn common_settings(&self) -> Settings {
        let Some(first) = self.settings.values().next() else { return Settings::new() };
        let is_common = |name: &str, value: &str| {
            self.settings.values().all(|of| of.get(name).is_some_and(|found| found == value))
        };
        let common = first.iter().filter(|(name, value)| is_common(name, value));
        common.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The parameters in which a variant differs.
    pub fn own_settings(&self, variant: &str) -> Settings {
        let common = self.common_settings();
        let all = self.settings.get(variant).cloned().unwrap_or_default();
        all.into_iter().filter(|(name, _)| !common.contains_key(name)).collect()
    }

    /// The sum over all variants; `None` for a model, which delivers no messages.
    pub fn audit(&self) -> Option<Audit> {
        let audits = self.variants.iter().filter_map(|variant| variant.audit.as_ref());
        audits.fold(None, |sum: Option<Audit>, audit| Some(sum.unwrap_or_default().plus(audit)))
    }

    pub fn audit_balances(&self) -> bool {
        self.variants.iter().filter_map(|variant| variant.audit.as_ref()).all(Audit::balances)
    }

    /// The unit of a figure.
    pub fn unit(&self, figure: &str) -> Unit {
        let column = self.columns.iter().find(|column| column.figure == figure);
        column.map_or_else(|| Unit::by_name(figure), |column| column.unit)
    }

    /// The measured and the expected value, in the unit of the figure.
    pub fn judged(&self, verdict: &FigureVerdict) -> (String, String) {
        let unit = self.unit(&verdict.figure);
        let measured = verdict.measured.map_or("not measured".to_owned(), |value| unit.text(value));
        (measured, unit.range(verdict.min, verdict.max))
    }

    /// Figures outside their ranges, and forecasts that the measurement contradicts.
    pub fn misses(&self) -> Vec<String> {
        let verdicts = self.verdicts.iter().filter(|verdict| !verdict.met).map(|verdict| {
            let (measured, range) = self.judged(verdict);
            format!("{} of {}: {measured}, expected {range}", verdict.figure, verdict.variant)
        });
        let forecasts = self.forecasts.iter().filter(|line| !line.met).map(|line| {
            let measured = line.measured_text();
            format!("{}: measured {measured}, `check` says {}", line.what, line.forecast_text())
        });
        verdicts.chain(forecasts).collect()
    }

    pub fn standing(&self) -> RunStatus {
        if !self.audit_balances() {
            RunStatus::AuditFailed
        } else if self.is_partial {
            RunStatus::Partial
        } else if self.misses().is_empty() {
            RunStatus::Passed
        } else {
            RunStatus::NotAsExpected
        }
    }
}

impl RunStatus {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Passed => "as expected",
            Self::NotAsExpected => "not as expected",
            Self::AuditFailed => "FAILED: the audit by id does not balance",
            Self::Partial => "partial: interrupted before it was complete",
        }
    }
}
