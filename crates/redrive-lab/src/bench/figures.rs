//! Named figures: the output of a measurement, and the input of the table.

use std::collections::BTreeMap;
use std::fmt::Display;

/// The figures of one measurement, by name.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    pub fn print(&self) {
        for (name, value) in &self.0 {
            println!("{name}={value}");
        }
    }

    /// Parses the output of [`Figures::print`].
    pub fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }
}

/// The figures of repeated runs of one measurement.
#[derive(Clone, Debug, Default)]
pub struct Repeats(pub Vec<Figures>);

impl Repeats {
    /// The spread of one figure over all repeats.
    pub fn of(&self, value: impl Fn(&Figures) -> f64) -> Spread {
        Spread::of(self.0.iter().map(value))
    }

    pub fn figure(&self, name: &str) -> Spread {
        self.of(|figures| figures.get(name))
    }
}

#[derive(Clone, Debug)]
pub struct Spread(Vec<f64>);

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut all: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        all.sort_by(f64::total_cmp);
        Self(all)
    }

    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }
}

/// A table in Markdown.
#[derive(Debug)]
pub struct FigureTable(Vec<[String; 5]>);

impl Default for FigureTable {
    /// A table with its header and no rows.
    fn default() -> Self {
        let head = ["measurement", "unit", "min", "median", "max"].map(str::to_owned);
        Self(vec![head])
    }
}

impl FigureTable {
    pub fn row(&mut self, what: &str, unit: &str, spread: &Spread) {
        if spread.median().is_nan() {
            return;
        }
        let [min, median, max] = [spread.min(), spread.median(), spread.max()].map(readable);
        self.0.push([what.into(), unit.into(), min, median, max]);
    }
}

impl Display for FigureTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |column: usize| self.0.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        for (index, row) in self.0.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                if column < 2 { write!(f, "| {cell:width$} ")? } else { write!(f, "| {cell:>width$} ")? }
            }
            writeln!(f, "|")?;
            if index == 0 {
                for (column, width) in widths.into_iter().enumerate() {
                    let end = if column < 2 { "-" } else { ":" };
                    write!(f, "| {}{end} ", "-".repeat(width - 1))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// Formats a number with two decimals below 100, otherwise without decimals and with thousands separators.
fn readable(value: f64) -> String {
    if value.abs() < 100.0 {
        let text = format!("{value:.2}");
        return text.strip_suffix(".00").map_or(text.clone(), str::to_owned);
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digits.as_bytes()[index - 1] != b'-' {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_being_printed() {
        let figures = Figures::parse("a=1.5\nnoise\nb=2\n");
        assert_eq!(
            (figures.get("a").to_bits(), figures.get("b").to_bits()),
            (1.5_f64.to_bits(), 2.0_f64.to_bits())
        );
        assert!(figures.get("c").is_nan());
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0.1234, 5.0, 123.4, 1_234_567.0].map(readable), ["0.12", "5", "123", "1,234,567"]);
    }
}
