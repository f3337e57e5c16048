//! Draws a Grafana board from Prometheus responses: `draw_board BOARD.json ANSWERS OUT.svg`.
//!
//! ANSWERS is a directory with the `query_range` response of each query, as `PANEL-TARGET.json`. scripts/board.sh
//! creates it.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;

type Fault = Box<dyn std::error::Error>;

const TITLE: &str = "Rendered by redrive lab from the board's queries, not a Grafana screenshot";
const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (400, 220);
const HEAD: i32 = 36;
const LEGEND_MAX: usize = 5;
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(127, 127, 127),
];

/// One line of a panel: its legend and its points as (seconds, value).
struct Line {
    legend: String,
    points: Vec<(f64, f64)>,
}

fn main() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [board, answers, out] = arguments.as_slice() else {
        return Err("usage: draw_board BOARD.json ANSWERS OUT.svg".into());
    };
    let board: Value = serde_json::from_str(&std::fs::read_to_string(board)?)?;
    let panels = board["panels"].as_array().ok_or("the board has no panels")?;
    let rows = panels.len().div_ceil(COLUMNS) as u32;
    let size = (PANEL.0 * COLUMNS as u32, HEAD as u32 + PANEL.1 * rows);
    let root = SVGBackend::new(out, size).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(TITLE, (12, 10), ("sans-serif", 16)))?;
    let (_, below) = root.split_vertically(HEAD);
    let areas = below.split_evenly((rows as usize, COLUMNS));
    for (i, (panel, area)) in panels.iter().zip(&areas).enumerate() {
        draw(area, panel["title"].as_str().unwrap_or(""), &lines(panel, i, Path::new(answers))?)?;
    }
    root.present()?;
    println!("{out}: {} panels", panels.len());
    Ok(())
}

/// Reads the Prometheus responses for the queries of a panel.
fn lines(panel: &Value, index: usize, answers: &Path) -> Result<Vec<Line>, Fault> {
    let mut lines = Vec::new();
    for (t, target) in panel["targets"].as_array().into_iter().flatten().enumerate() {
        let path = answers.join(format!("{index}-{t}.json"));
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let answer: Value = serde_json::from_str(&text)?;
        if answer["status"] != "success" {
            return Err(format!("{}: {}", target["expr"], answer["error"]).into());
        }
        let format = target["legendFormat"].as_str().unwrap_or("");
        for series in answer["data"]["result"].as_array().into_iter().flatten() {
            let points = series["values"].as_array().into_iter().flatten().filter_map(point).collect();
            lines.push(Line { legend: legend(format, &series["metric"]), points });
        }
    }
    Ok(lines)
}

/// Parses a sample, a time and a number as text. Skips `NaN`, which a quantile without calls returns.
fn point(sample: &Value) -> Option<(f64, f64)> {
    let value: f64 = sample[1].as_str()?.parse().ok()?;
    value.is_finite().then_some((sample[0].as_f64()?, value))
}

/// Replaces each `{{label}}` by that label of the series.
fn legend(format: &str, labels: &Value) -> String {
    let mut text = format.to_owned();
    for (name, value) in labels.as_object().into_iter().flatten() {
        text = text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or(""));
    }
    text
}

fn draw(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, lines: &[Line]) -> Result<(), Fault> {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let start = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let end = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
    let span = if end > start { end - start } else { 1.0 };
    let most = points().map(|point| point.1).fold(0.0_f64, f64::max);
    let most = if most > 0.0 { most * 1.05 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(22)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..span, 0.0..most)?;
    chart.configure_mesh().x_labels(6).y_labels(4).light_line_style(WHITE).draw()?;
    for (i, line) in lines.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let shifted = line.points.iter().map(|(at, value)| (at - start, *value));
        let drawn = chart.draw_series(LineSeries::new(shifted, colour.stroke_width(2)))?;
        if i < LEGEND_MAX {
            drawn
                .label(&line.legend)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 12, y)], colour.stroke_width(2)));
        }
    }
    if !lines.is_empty() {
        chart
            .configure_series_labels()
            .label_font(("sans-serif", 10))
            .background_style(WHITE.mix(0.8))
            .position(SeriesLabelPosition::UpperLeft)
            .draw()?;
    }
    Ok(())
}
