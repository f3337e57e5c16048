//! The index of all results, docs/findings.md with the pages below it, and the plots, generated from `summary.json`
//! and `samples.csv` files. `first_page` generates the page with the answers, `walk` the requirements.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::committed::{Committed, ScenarioRuns, WHY, below, page_of};
use super::files::{self, ResultFault};
use super::first_page::{self, version};
use super::page::{self, ScenarioWords, forecasts, markdown_table, table};
use super::summary::Summary;
use super::walk::Walk;
use super::{redraw, requirements};

pub(super) const MADE: &str = "<!-- Made by `redrive lab report` from lab/results. Do not edit. -->";
/// The directory of the pages with all figures.
const PAGES: &str = "docs/findings";

/// Counts of what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub results: usize,
    pub files: Vec<PathBuf>,
}

/// Reads `lab/results` below `root`, and writes its index, docs/findings.md with the pages below it, and the pages
/// and plots of every result. Scenarios follow the order of `known`.
pub fn write(root: &Path, known: &[ScenarioRuns]) -> Result<Report, ResultFault> {
    let pages = pages(root, known)?;
    let docs = root.join(PAGES);
    std::fs::create_dir_all(&docs).map_err(|error| ResultFault::Io { path: docs.clone(), error })?;
    let (index, findings) = (root.join("lab/results/README.md"), root.join("docs/findings.md"));
    files::put(&index, &pages.index)?;
    files::put(&findings, &pages.findings)?;
    for (path, page) in pages.figures.iter().chain(&pages.results) {
        files::put(&root.join(path), page)?;
    }
    Ok(Report { results: pages.found, files: vec![index, findings] })
}

/// The texts that [`write()`] writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportPages {
    /// The number of results found.
    pub found: usize,
    /// Path and content of each result's pages and plots.
    pub results: Vec<(String, String)>,
    pub index: String,
    /// The page with the answers.
    pub findings: String,
    /// Path and content of the pages with all figures: the requirements, and one page per scenario.
    pub figures: Vec<(String, String)>,
}

pub fn pages(root: &Path, known: &[ScenarioRuns]) -> Result<ReportPages, ResultFault> {
    let results = root.join("lab/results");
    let mut found = files::read_all(&results)?;
    let place = |name: &str| known.iter().position(|known| known.name == name).unwrap_or(known.len());
    found.sort_by_key(|(dir, summary)| (place(&summary.scenario), summary.seed, dir.clone()));
    let requirements = requirements::all().map_err(|fault| ResultFault::Requirements(fault.to_string()))?;
    let walk = Walk { committed: &found, known, root };
    let walked = walk.walked(&requirements)?;
    let mut figures = vec![(format!("{PAGES}/requirements.md"), walk.page(&walked))];
    for name in names(&found) {
        figures.push((format!("{PAGES}/{}", page_of(name)), scenario_page(name, &found, known, root)));
    }
    let mut of_results = Vec::new();
    for (dir, summary) in &found {
        let (path, words) = (below(dir, root), words(known, &summary.scenario));
        of_results.push((format!("{path}/index.md"), page::markdown(summary, words)));
        of_results.push((format!("{path}/index.html"), page::html(summary, words)));
        let plots = redraw::of_result(dir, summary)?.into_iter();
        of_results.extend(plots.map(|(file, svg)| (format!("{path}/{file}"), svg)));
    }
    Ok(ReportPages {
        found: found.len(),
        results: of_results,
        index: index_page(&found, known, &results),
        findings: first_page::page(&walk, &walked)?,
        figures,
    })
}

fn index_page(found: &[Committed], known: &[ScenarioRuns], results: &Path) -> String {
    let mut page = format!("# Results\n\n{MADE}\n\n");
    page.push_str("| scenario | seed | ran on | result | audit by id | scenario file |\n| --- | --- | --- | --- | --- | --- |\n");
    for (dir, summary) in found {
        let audit = summary.audit().map_or("model".to_owned(), |audit| audit.to_string());
        let _ = writeln!(
            page,
            "| [{}]({}/index.md) | {} | {}{} | {} | {audit} | {} |",
            summary.title,
            below(dir, results),
            summary.seed,
            summary.ran_on,
            if summary.quick { ", quick run" } else { "" },
            summary.standing().text(),
            version(summary, known)
        );
    }
    page
}

/// The texts of a scenario; empty if it is unknown.
fn words<'a>(known: &'a [ScenarioRuns], name: &str) -> ScenarioWords<'a> {
    let found = known.iter().find(|known| known.name == name);
    found.map_or_else(ScenarioWords::default, |found| ScenarioWords {
        explains: &found.explains,
        downstream: &found.downstream,
    })
}

/// All figures and plots of a scenario, run by run.
fn scenario_page(name: &str, found: &[Committed], known: &[ScenarioRuns], root: &Path) -> String {
    let of_it: Vec<&Committed> = found.iter().filter(|(_, summary)| summary.scenario == name).collect();
    let mut page = String::new();
    if let Some((_, first)) = of_it.first() {
        let _ = writeln!(page, "# {}\n\n{MADE}\n\n**{}**\n", first.title, first.question);
        if !first.answers.is_empty() {
            let _ = writeln!(page, "Answers [{}](requirements.md).\n", first.answers.join(", "));
        }
        let _ = writeln!(page, "{}\n\n## {WHY}\n\n{}", first.why, words(known, name).explains.trim_end());
    }
    for (dir, summary) in of_it {
        result(&mut page, &below(dir, root), summary, known);
    }
    page
}

/// The scenarios, without duplicates.
fn names(found: &[Committed]) -> Vec<&str> {
    let mut names: Vec<&str> = found.iter().map(|(_, summary)| summary.scenario.as_str()).collect();
    names.dedup();
    names
}

/// Writes one run of a scenario.
fn result(page: &mut String, dir: &str, summary: &Summary, known: &[ScenarioRuns]) {
    let _ = writeln!(page, "\n## On: {}, seed {}\n", summary.ran_on, summary.seed);
    if summary.quick {
        let _ = writeln!(page, "A quick run: its figures are no measurement.\n");
    }
    if summary.is_partial {
        let _ = writeln!(page, "Interrupted before it was complete.\n");
    }
    if !summary.settings.is_empty() {
        let _ = writeln!(page, "Settings: {}.\n", page::common_settings(summary));
    }
    let _ = writeln!(page, "{}", markdown_table(&table(summary)));
    let _ = writeln!(page, "{}", markdown_table(&forecasts(summary)));
    for note in &summary.notes {
        let _ = writeln!(page, "- {note}");
    }
    for (file, title) in &summary.plots {
        let _ = writeln!(page, "\n![{title}](../../{dir}/{file})");
    }
    let misses = summary.misses();
    if misses.is_empty() {
        let _ = writeln!(page, "\nEvery figure is within its expected range.");
    } else {
        let _ = writeln!(page, "\nNot as expected: {}.", misses.join("; "));
    }
    if let Some(audit) = summary.audit() {
        let _ = writeln!(page, "\nAudit by id: {audit}");
    }
    let _ = writeln!(
        page,
        "\n{:.0} s, {}: `{}` · [page with method, machine, verdicts and samples](../../{dir}/index.md)",
        summary.took_seconds,
        version(summary, known),
        summary.command
    );
}
