//! Writes a result: `summary.json`, `samples.csv`, one SVG per plot, `index.md` and `index.html`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::committed::is_full;
use super::outcome::Outcome;
use super::page::{self, ScenarioWords};
use super::redraw;
use super::summary::Summary;

/// File extensions of a result.
const WRITTEN: [&str; 5] = ["svg", "csv", "json", "md", "html"];

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

/// Writes a result, replacing that of an earlier run in the directory.
pub fn write(
    dir: &Path,
    summary: &Summary,
    words: ScenarioWords<'_>,
    outcome: &Outcome,
) -> Result<(), ResultFault> {
    clear(dir).map_err(|error| ResultFault::Io { path: dir.to_owned(), error })?;
    for map in &outcome.heat_maps {
        let svg = map.svg().map_err(ResultFault::Plot)?;
        put(&dir.join(format!("{}.svg", map.name)), &svg)?;
    }
    let samples = samples(outcome);
    put(&dir.join("samples.csv"), &samples)?;
    // Drawn from the samples, as `lab report` redraws them.
    for (file, svg) in redraw::drawn(summary, &samples)? {
        put(&dir.join(file), &svg)?;
    }
    let json = serde_json::to_string_pretty(summary).unwrap_or_default();
    put(&dir.join("summary.json"), &format!("{json}\n"))?;
    put(&dir.join("index.md"), &page::markdown(summary, words))?;
    put(&dir.join("index.html"), &page::html(summary, words))
}

/// Creates the directory or removes the files of an earlier result, so that plots that are no longer drawn disappear.
fn clear(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_file() && ending.is_some_and(|ending| WRITTEN.contains(&ending)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

pub fn put(path: &Path, text: &str) -> Result<(), ResultFault> {
    fs::write(path, text).map_err(|error| ResultFault::Io { path: path.to_owned(), error })
}

/// The points of every curve, and the cells of every map.
fn samples(outcome: &Outcome) -> String {
    let mut csv = String::from("plot,curve,x,y\n");
    for map in &outcome.heat_maps {
        for (curve, x, y) in map.samples() {
            let _ = writeln!(csv, "{},{},{x},{y:.4}", field(&map.name), field(&curve));
        }
    }
    for plot in &outcome.plots {
        for curve in &plot.curves {
            for (x, y) in &curve.points {
                let _ = writeln!(csv, "{},{},{x:.3},{y:.4}", field(&plot.name), field(&curve.name));
            }
        }
    }
    csv
}

/// A CSV field, quoted if necessary.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// Reads every result of a full run below a directory, ordered by scenario and seed.
pub fn read_all(results: &Path) -> Result<Vec<(PathBuf, Summary)>, ResultFault> {
    let mut found = Vec::new();
    for scenario in folders(results)? {
        for run in folders(&scenario)?.into_iter().filter(|run| is_full(run)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Curve, Plot};

    #[test]
    fn names_with_commas_and_quotes_are_quoted_and_not_altered() {
        let curves = vec![Curve::new("5s, 30s, \"none\"", vec![(1.0, 2.0)])];
        let plots = vec![Plot::new("lag", "Lag", "x", "y", curves)];
        let csv = samples(&Outcome { plots, ..Outcome::default() });
        assert_eq!(csv, "plot,curve,x,y\nlag,\"5s, 30s, \"\"none\"\"\",1.000,2.0000\n");
    }

    #[test]
    fn files_of_an_earlier_result_go_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["old.svg", "samples.csv", "notes.txt"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        clear(dir.path()).unwrap();
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }
}
