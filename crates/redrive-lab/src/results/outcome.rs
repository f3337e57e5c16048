//! What an experiment measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::heat_map::HeatMap;
use super::plot::Plot;
use super::unit::Unit;
use crate::testbed::Audit;

/// The figures of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantResult {
    pub name: String,
    pub figures: BTreeMap<String, f64>,
    /// `None` for a model, which delivers no messages.
    pub audit: Option<Audit>,
}

impl VariantResult {
    pub fn new(name: &str, audit: Option<Audit>) -> Self {
        Self { name: name.to_owned(), figures: BTreeMap::new(), audit }
    }

    /// Adds a figure; NaN and infinity mean not measured and are left out.
    #[must_use]
    pub fn with(mut self, figure: &str, value: f64) -> Self {
        if value.is_finite() {
            self.figures.insert(figure.to_owned(), value);
        }
        self
    }

    /// The figure; NaN if it was not measured.
    pub fn get(&self, figure: &str) -> f64 {
        self.figures.get(figure).copied().unwrap_or(f64::NAN)
    }
}

/// A column of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub title: String,
    pub figure: String,
    pub unit: Unit,
}

impl Column {
    pub fn new(title: &str, figure: &str, unit: Unit) -> Self {
        Self { title: title.to_owned(), figure: figure.to_owned(), unit }
    }
}

/// A forecast of `redrive check` next to the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForecastLine {
    pub what: String,
    pub forecast: f64,
    pub measured: f64,
    pub unit: Unit,
    pub bound: Bound,
    /// Number of messages that a share was measured on, where they are few.
    #[serde(default)]
    pub of: Option<u64>,
    /// Whether the measured value is within the bound.
    pub met: bool,
}

/// How the measurement must relate to the forecast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Within this distance, in the figure's unit.
    About(f64),
    AtMost,
    AtLeast,
}

impl ForecastLine {
    pub fn new(what: &str, unit: Unit, forecast: f64, measured: f64, bound: Bound) -> Self {
        let met = match bound {
            Bound::About(by) => (measured - forecast).abs() <= by,
            Bound::AtMost => measured <= forecast,
            Bound::AtLeast => measured >= forecast,
        };
        Self { what: what.to_owned(), forecast, measured, unit, bound, of: None, met }
    }

    /// Sets the number of messages that the share was measured on.
    #[must_use]
    pub fn of(self, messages: u64) -> Self {
        Self { of: Some(messages), ..self }
    }

    /// Says `none of 500` for a share of zero, so that the sample size shows.
    pub fn measured_text(&self) -> String {
        match self.of {
            Some(messages) if self.measured == 0.0 => {
                format!("none of {}", Unit::Count.text(messages as f64))
            }
            _ => self.unit.text(self.measured),
        }
    }

    pub fn forecast_text(&self) -> String {
        let text = self.unit.text(self.forecast);
        match self.bound {
            Bound::About(_) => text,
            Bound::AtMost => format!("≤ {text}"),
            Bound::AtLeast => format!("≥ {text}"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub columns: Vec<Column>,
    pub variants: Vec<VariantResult>,
    pub forecasts: Vec<ForecastLine>,
    pub plots: Vec<Plot>,
    pub heat_maps: Vec<HeatMap>,
    /// Sentences below the table.
    pub notes: Vec<String>,
    /// Whether the run was interrupted; then only complete variants are included.
    pub is_partial: bool,
}

impl Outcome {
    /// File name and title of every picture.
    pub fn pictures(&self) -> Vec<(String, String)> {
        let plots = self.plots.iter().map(|plot| (&plot.name, &plot.title));
        let maps = self.heat_maps.iter().map(|map| (&map.name, &map.title));
        maps.chain(plots).map(|(name, title)| (format!("{name}.svg"), title.clone())).collect()
    }

    pub fn variant(&self, name: &str) -> Option<&VariantResult> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// The figure of a variant; NaN if it was not measured.
    pub fn figure(&self, variant: &str, figure: &str) -> f64 {
        self.variant(variant).map_or(f64::NAN, |variant| variant.get(figure))
    }
}
