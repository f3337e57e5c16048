//! The index of all results and docs/findings.md, made from what `summary.json` files say. The first part of the findings,
//! requirement by requirement, is in `walk`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::committed::{Committed, ScenarioRuns, anchor, below, why_title};
use super::files::{self, ResultFault};
use super::page::{self, ScenarioWords, forecasts, markdown_table, table};
use super::requirements;
use super::summary::Summary;
use super::walk::Walk;

const MADE: &str = "<!-- Made by `redrive lab report` from lab/results. Do not edit. -->";

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub results: usize,
    pub files: Vec<PathBuf>,
}

/// Reads `lab/results` below `root`, and writes its index, docs/findings.md and the page of every result. Scenarios come in the
/// order of `known`.
pub fn write(root: &Path, known: &[ScenarioRuns]) -> Result<Report, ResultFault> {
    let pages = pages(root, known)?;
    let docs = root.join("docs");
    std::fs::create_dir_all(&docs).map_err(|error| ResultFault::Io { path: docs.clone(), error })?;
    let (index, findings) = (root.join("lab/results/README.md"), docs.join("findings.md"));
    files::put(&index, &pages.index)?;
    files::put(&findings, &pages.findings)?;
    for (path, page) in &pages.results {
        files::put(&root.join(path), page)?;
    }
    Ok(Report { results: pages.found, files: vec![index, findings] })
}

/// The texts that [`write()`] writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportPages {
    /// Results that were found.
    pub found: usize,
    /// The pages of each, with their paths.
    pub results: Vec<(String, String)>,
    pub index: String,
    pub findings: String,
}

pub fn pages(root: &Path, known: &[ScenarioRuns]) -> Result<ReportPages, ResultFault> {
    let results = root.join("lab/results");
    let mut found = files::read_all(&results)?;
    let place = |name: &str| known.iter().position(|known| known.name == name).unwrap_or(known.len());
    found.sort_by_key(|(dir, summary)| (place(&summary.scenario), summary.seed, dir.clone()));
    let requirements = requirements::all().map_err(|fault| ResultFault::Requirements(fault.to_string()))?;
    let walk = Walk { committed: &found, known, root }.text(&requirements);
    let pages_of = |(dir, summary): &Committed| {
        let (dir, words) = (below(dir, root), words(known, &summary.scenario));
        let markdown = (format!("{dir}/index.md"), page::markdown(summary, words));
        [markdown, (format!("{dir}/index.html"), page::html(summary, words))]
    };
    Ok(ReportPages {
        found: found.len(),
        results: found.iter().flat_map(pages_of).collect(),
        index: index_page(&found, &results),
        findings: findings_page(&found, known, root, &walk),
    })
}

fn index_page(found: &[Committed], results: &Path) -> String {
    let mut page = format!("# Results\n\n{MADE}\n\n");
    page.push_str("| scenario | seed | ran on | result | audit by id |\n| --- | --- | --- | --- | --- |\n");
    for (dir, summary) in found {
        let audit = summary.audit().map_or("model".to_owned(), |audit| audit.to_string());
        let _ = writeln!(
            page,
            "| [{}]({}/index.md) | {} | {}{} | {} | {audit} |",
            summary.title,
            below(dir, results),
            summary.seed,
            summary.ran_on,
            if summary.quick { ", quick run" } else { "" },
            summary.standing().text()
        );
    }
    page
}

/// Empty if the scenario is not known.
fn words<'a>(known: &'a [ScenarioRuns], name: &str) -> ScenarioWords<'a> {
    let found = known.iter().find(|known| known.name == name);
    found.map_or_else(ScenarioWords::default, |found| ScenarioWords {
        explains: &found.explains,
        downstream: &found.downstream,
    })
}

fn findings_page(found: &[Committed], known: &[ScenarioRuns], root: &Path, walk: &str) -> String {
    let mut page = format!(
        "# Findings\n\n{MADE}\n\nFirst what was asked for, [one by one](#requirement-by-requirement), with the figures \
         that answer it; then each scenario of [lab/scenarios](../lab/scenarios) with its question, all figures, the plots and \
         the command that repeats it. Runs of the engine ended with an audit by id; where the method is a model there is \
         nothing to audit.\n\n"
    );
    for title in titles(found) {
        let _ = writeln!(page, "- [{title}](#{})", anchor(title));
    }
    let _ = writeln!(page, "\n## Requirement by requirement\n\n{}", walk.trim_end());
    for title in titles(found) {
        let mut of_it = found.iter().filter(|(_, summary)| summary.title == title).peekable();
        if let Some((_, first)) = of_it.peek() {
            let _ = writeln!(page, "\n## {title}\n\n{}\n", first.question);
            if !first.answers.is_empty() {
                let _ = writeln!(page, "Answers: {}.\n", first.answers.join(", "));
            }
            let _ = writeln!(page, "{}\n", first.why);
            let _ = writeln!(page, "### {}\n\n{}", why_title(title), words(known, &first.scenario).explains);
        }
        of_it.for_each(|(dir, summary)| result(&mut page, &below(dir, root), summary));
    }
    page
}

/// Each title once.
fn titles(found: &[Committed]) -> Vec<&str> {
    let mut titles: Vec<&str> = found.iter().map(|(_, summary)| summary.title.as_str()).collect();
    titles.dedup();
    titles
}

/// The content of the scenario it was made with, where the result says so.
fn content(summary: &Summary) -> String {
    let hash = &summary.scenario_hash;
    if hash.is_empty() { String::new() } else { format!("scenario content {hash}, ") }
}

/// One run of a scenario.
fn result(page: &mut String, dir: &str, summary: &Summary) {
    let _ = writeln!(page, "\n**On: {}, seed {}.**\n", summary.ran_on, summary.seed);
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
        let _ = writeln!(page, "\n![{title}](../{dir}/{file})");
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
        "\n{:.0} s, {}commit {}: `{}` · [page with method, machine, verdicts and samples](../{dir}/index.md)",
        summary.took_seconds,
        content(summary),
        summary.machine.get("commit").map_or("unknown", String::as_str),
        summary.command
    );
}
