//! The index of all results and docs/findings.md, made from what `summary.json` files say.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::files::{self, ResultFault};
use super::page::{forecasts, markdown_table, table};
use super::summary::Summary;

const MADE: &str = "<!-- Made by `redrive lab report` from lab/results. Do not edit. -->";

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub results: usize,
    pub files: Vec<PathBuf>,
}

/// Reads `lab/results` below `root`, and writes its index and docs/findings.md. Scenarios come in the order of `names`.
pub fn write(root: &Path, names: &[&str]) -> Result<Report, ResultFault> {
    let results = root.join("lab/results");
    let mut found = files::read_all(&results)?;
    let place = |name: &str| names.iter().position(|known| *known == name).unwrap_or(names.len());
    found.sort_by_key(|(_, summary)| (place(&summary.scenario), summary.seed));
    let index = results.join("README.md");
    files::put(&index, &index_page(&found, &results))?;
    let docs = root.join("docs");
    std::fs::create_dir_all(&docs).map_err(|error| ResultFault::Io { path: docs.clone(), error })?;
    let findings = docs.join("findings.md");
    files::put(&findings, &findings_page(&found, root))?;
    Ok(Report { results: found.len(), files: vec![index, findings] })
}

fn below(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

fn index_page(found: &[(PathBuf, Summary)], results: &Path) -> String {
    let mut page = format!("# Results\n\n{MADE}\n\n");
    page.push_str("| scenario | seed | ran on | result | audit by id |\n| --- | --- | --- | --- | --- |\n");
    for (dir, summary) in found {
        let audit = summary.audit().map_or("model".to_owned(), |audit| audit.to_string());
        let _ = writeln!(
            page,
            "| [{}]({}/index.md) | {} | {} | {} | {audit} |",
            summary.title,
            below(dir, results),
            summary.seed,
            summary.ran_on,
            summary.standing().text()
        );
    }
    page
}

fn findings_page(found: &[(PathBuf, Summary)], root: &Path) -> String {
    let mut page = format!(
        "# Findings\n\n{MADE}\n\nEach section is one scenario of [lab/scenarios](../lab/scenarios): the question, the \
         figures, the plot, and the command that repeats it. Runs of the engine ended with an audit by id; where the method is a model there is nothing to audit.\n\n"
    );
    for (_, summary) in found {
        let _ = writeln!(page, "- [{}](#{})", summary.title, anchor(&summary.title));
    }
    for (dir, summary) in found {
        let result = below(dir, root);
        let _ = writeln!(page, "\n## {}\n\n{}\n", summary.title, summary.question);
        if !summary.answers.is_empty() {
            let _ = writeln!(page, "Answers: {}.\n", summary.answers.join(", "));
        }
        let _ = writeln!(page, "{}\n", summary.why);
        let _ = writeln!(page, "{}", markdown_table(&table(summary)));
        let compared = forecasts(summary);
        if !compared.is_empty() {
            let _ = writeln!(page, "{}", markdown_table(&compared));
        }
        for note in &summary.notes {
            let _ = writeln!(page, "- {note}");
        }
        for (file, title) in &summary.plots {
            let _ = writeln!(page, "\n![{title}](../{result}/{file})");
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
            "\n{}, {:.0} s: `{}` · [page with method, machine, verdicts and raw data](../{result}/index.md)",
            summary.ran_on, summary.took_seconds, summary.command
        );
    }
    page
}

/// As GitHub makes it.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    kept.chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_the_headings() {
        assert_eq!(
            anchor("Blocking against non-blocking: one, two"),
            "blocking-against-non-blocking-one-two"
        );
    }
}
