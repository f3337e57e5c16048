//! A grid of coloured cells, one panel per variant.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Pixels: width of a panel, its height without rows, and the height of a row.
const PANEL_WIDTH: i32 = 430;
const PANEL_HEAD: i32 = 78;
const ROW_HEIGHT: i32 = 26;
const TITLE_HEIGHT: i32 = 40;
const LABELS_WIDTH: i32 = 70;
/// Panels per line.
const COLUMNS: usize = 2;

/// Values from 0 (red) to 1 (green), by row and column.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// The file name without extension.
    pub name: String,
    pub title: String,
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    pub panels: Vec<HeatPanel>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HeatPanel {
    pub name: String,
    /// The values, row by row.
    pub values: Vec<Vec<f64>>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Fault = Box<dyn std::error::Error>;

impl HeatMap {
    /// The SVG. A map that cannot be drawn is a drawing error, not an error of the run.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| format!("{}: {error}", self.name))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Fault> {
        let panel_height = PANEL_HEAD + times(self.rows.len(), ROW_HEIGHT);
        let lines = self.panels.len().div_ceil(COLUMNS).max(1);
        let size = (times(COLUMNS, PANEL_WIDTH), TITLE_HEIGHT + times(lines, panel_height));
        let size = (size.0.cast_unsigned(), size.1.cast_unsigned());
        let root = SVGBackend::with_string(text, size).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw(&Text::new(self.title.clone(), (12, 12), ("sans-serif", 18)))?;
        for (i, panel) in self.panels.iter().enumerate() {
            let at = (times(i % COLUMNS, PANEL_WIDTH), TITLE_HEIGHT + times(i / COLUMNS, panel_height));
            self.draw_panel(&root, panel, at)?;
        }
        root.present()?;
        Ok(())
    }

    fn draw_panel(&self, area: &Area<'_>, panel: &HeatPanel, (left, top): (i32, i32)) -> Result<(), Fault> {
        area.draw(&Text::new(panel.name.clone(), (left + 12, top), ("sans-serif", 14)))?;
        let width = (PANEL_WIDTH - LABELS_WIDTH - 20) / times(self.columns.len().max(1), 1);
        let (x0, y0) = (left + LABELS_WIDTH, top + 44);
        for (c, label) in self.columns.iter().enumerate() {
            let x = x0 + times(c, width) + 6;
            area.draw(&Text::new(label.clone(), (x, y0 - 18), ("sans-serif", 12)))?;
        }
        for (r, (label, values)) in self.rows.iter().zip(&panel.values).enumerate() {
            let y = y0 + times(r, ROW_HEIGHT);
            area.draw(&Text::new(label.clone(), (left + 12, y + 6), ("sans-serif", 12)))?;
            for (c, value) in values.iter().enumerate() {
                let x = x0 + times(c, width);
                let corners = [(x, y), (x + width - 2, y + ROW_HEIGHT - 2)];
                area.draw(&Rectangle::new(corners, colour(*value).filled()))?;
                let text = format!("{:.0} %", value * 100.0);
                area.draw(&Text::new(text, (x + 6, y + 6), ("sans-serif", 12)))?;
            }
        }
        Ok(())
    }

    /// Lines for the samples file: panel and row form the curve, the column index is x.
    pub(super) fn samples(&self) -> impl Iterator<Item = (String, usize, f64)> + '_ {
        self.panels.iter().flat_map(move |panel| {
            self.rows.iter().zip(&panel.values).flat_map(move |(row, values)| {
                let curve = format!("{}: {row}", panel.name);
                values.iter().enumerate().map(move |(c, value)| (curve.clone(), c, *value))
            })
        })
    }
}

/// Multiplies, saturating at `i32::MAX`.
fn times(count: usize, pixels: i32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX).saturating_mul(pixels)
}

/// Red at 0, yellow in the middle, green at 1; pale, so that the figure in the cell is legible.
fn colour(value: f64) -> RGBColor {
    let share = if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 };
    let part = |from: f64, to: f64, share: f64| (from + (to - from) * share) as u8;
    if share < 0.5 {
        let share = share * 2.0;
        RGBColor(part(235.0, 250.0, share), part(110.0, 225.0, share), part(100.0, 130.0, share))
    } else {
        let share = share * 2.0 - 1.0;
        RGBColor(part(250.0, 120.0, share), part(225.0, 200.0, share), part(130.0, 120.0, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_row_column_and_cell_is_drawn() {
        let panels = ["naive", "redrive"].map(|name| HeatPanel {
            name: name.to_owned(),
            values: vec![vec![0.0, 1.0], vec![0.25, f64::NAN]],
        });
        let map = HeatMap {
            name: "map".to_owned(),
            title: "Goodput".to_owned(),
            rows: vec!["−78 %".to_owned(), "−80 %".to_owned()],
            columns: vec!["2 s".to_owned(), "10 s".to_owned()],
            panels: panels.to_vec(),
        };
        let svg = map.svg().unwrap();
        for text in ["Goodput", "naive", "redrive", "−80 %", "10 s", "25 %"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(map.samples().count(), 8);
        assert_ne!(colour(0.0), colour(1.0));
    }
}
