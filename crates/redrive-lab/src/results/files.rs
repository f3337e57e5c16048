//! Writes a result: `summary.json`, `samples.csv`, one SVG per plot, `index.md` and `index.html`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::outcome::Outcome;
use super::page;
use super::summary::Summary;

#[derive(Debug, thiserror::Error)]
pub enum ResultFault {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: {fault}; it was written by another version, or by hand", .path.display())]
    Summary { path: PathBuf, fault: String },
    #[error("the plot could not be drawn: {0}")]
    Plot(String),
    #[error("lab/requirements.toml: {0}")]
    Requirements(String),
}

/// Replaces what an earlier run left in the directory.
pub fn write(dir: &Path, summary: &Summary, outcome: &Outcome) -> Result<(), ResultFault> {
    fs::create_dir_all(dir).map_err(|error| ResultFault::Io { path: dir.to_owned(), error })?;
    for plot in &outcome.plots {
        let svg = plot.svg().map_err(ResultFault::Plot)?;
        put(&dir.join(format!("{}.svg", plot.name)), &svg)?;
    }
    for map in &outcome.heat_maps {
        let svg = map.svg().map_err(ResultFault::Plot)?;
        put(&dir.join(format!("{}.svg", map.name)), &svg)?;
    }
    put(&dir.join("samples.csv"), &samples(outcome))?;
    let json = serde_json::to_string_pretty(summary).unwrap_or_default();
    put(&dir.join("summary.json"), &format!("{json}\n"))?;
    put(&dir.join("index.md"), &page::markdown(summary))?;
    put(&dir.join("index.html"), &page::html(summary))
}

pub fn put(path: &Path, text: &str) -> Result<(), ResultFault> {
    fs::write(path, text).map_err(|error| ResultFault::Io { path: path.to_owned(), error })
}

/// The points of every curve, and the cells of every map.
fn samples(outcome: &Outcome) -> String {
    let mut csv = String::from("plot,curve,x,y\n");
    for map in &outcome.heat_maps {
        for (curve, x, y) in map.samples() {
            let _ = writeln!(csv, "{},{},{x},{y:.4}", map.name, curve.replace(',', ";"));
        }
    }
    for plot in &outcome.plots {
        for curve in &plot.curves {
            for (x, y) in &curve.points {
                let _ = writeln!(csv, "{},{},{x:.3},{y:.4}", plot.name, curve.name.replace(',', ";"));
            }
        }
    }
    csv
}

/// Every result below a directory, by scenario and seed.
pub fn read_all(results: &Path) -> Result<Vec<(PathBuf, Summary)>, ResultFault> {
    let mut found = Vec::new();
    for scenario in folders(results)? {
        for run in folders(&scenario)? {
            let path = run.join("summary.json");
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let summary = serde_json::from_str(&text)
                .map_err(|error| ResultFault::Summary { path: path.clone(), fault: error.to_string() })?;
            found.push((run, summary));
        }
    }
    Ok(found)
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>, ResultFault> {
    let fault = |error| ResultFault::Io { path: dir.to_owned(), error };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
