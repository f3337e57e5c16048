//! The findings requirement by requirement: the figure, its expected range, its verdict, plot and command.

use std::fmt::Write as _;
use std::path::Path;

use super::committed::{Committed, ScenarioRuns, anchor, below, why_title};
use super::outcome::VariantResult;
use super::page::{Rows, markdown_table, sign};
use super::requirements::{FigureOf, ForecastOf, Requirement};
use super::summary::Summary;

/// How far a requirement is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProofState {
    /// By committed results that are as expected, or by a test.
    Yes,
    /// A result is missing.
    Open,
    /// A figure is outside of its range, or an audit does not balance.
    No,
}

impl ProofState {
    const fn text(self) -> &'static str {
        match self {
            Self::Yes => "shown",
            Self::Open => "open",
            Self::No => "not as expected",
        }
    }
}

/// One line of a requirement's table, and what it says about the requirement.
struct WalkRow {
    cells: [String; 6],
    shown: ProofState,
}

/// What the walk reads.
pub(super) struct Walk<'a> {
    pub committed: &'a [Committed],
    pub known: &'a [ScenarioRuns],
    pub root: &'a Path,
}

/// A run that a scenario should have, with its result if one is committed.
struct ExpectedResult<'a> {
    ran_on: &'a str,
    found: Option<&'a Committed>,
}

impl Walk<'_> {
    /// An overview, then a section for each requirement.
    pub(super) fn text(&self, requirements: &[Requirement]) -> String {
        let walked: Vec<(&Requirement, Vec<WalkRow>)> =
            requirements.iter().map(|requirement| (requirement, self.rows(requirement))).collect();
        let mut page = String::new();
        let mut overview: Rows = vec![["", "asked for", ""].map(str::to_owned).to_vec()];
        for (requirement, rows) in &walked {
            let shown = rows.iter().map(|row| row.shown).max().unwrap_or(ProofState::Yes);
            let link = format!("[{}](#{})", requirement.id, anchor(&requirement.id));
            overview.push(vec![link, requirement.asks.clone(), shown.text().to_owned()]);
        }
        let _ = writeln!(page, "{}", markdown_table(&overview));
        for (requirement, rows) in walked {
            let _ = writeln!(page, "### {}\n\n{}\n", requirement.id, requirement.asks);
            if !rows.is_empty() {
                let head = ["figure", "variant", "ran on", "measured", "expected", ""].map(str::to_owned);
                let rows = rows.into_iter().map(|row| row.cells.to_vec());
                let table: Rows = std::iter::once(head.to_vec()).chain(rows).collect();
                let _ = writeln!(page, "{}", markdown_table(&table));
            }
            if let Some(note) = &requirement.note {
                let _ = writeln!(page, "{note}\n");
            }
            for name in requirement.scenarios() {
                let _ = writeln!(page, "- {}", self.sources(name));
            }
            for proof in &requirement.elsewhere {
                let file = link_to_file(&proof.file);
                let _ = writeln!(page, "- {}: `{}` ({file})", sentence(&proof.shows), proof.command);
                if let Some(picture) = &proof.picture {
                    let _ = writeln!(page, "\n![{picture}]({})\n", from_docs(&proof.file));
                }
            }
            page.push('\n');
        }
        page
    }

    fn rows(&self, requirement: &Requirement) -> Vec<WalkRow> {
        let figures = requirement.figures.iter().flat_map(|figure| self.figure_rows(figure));
        let forecasts = requirement.forecasts.iter().flat_map(|forecast| self.forecast_rows(forecast));
        let audits = requirement.audits.iter().flat_map(|name| self.audit_rows(name));
        figures.chain(forecasts).chain(audits).collect()
    }

    fn runs(&self, name: &str) -> Vec<ExpectedResult<'_>> {
        let known = self.known.iter().find(|known| known.name == name);
        let runs = known.map_or(&[][..], |known| known.runs.as_slice());
        let of = |ran_on: &str| {
            let is_it = |summary: &Summary| {
                summary.scenario == name && summary.ran_on == ran_on && !summary.quick && !summary.is_partial
            };
            self.committed.iter().find(|(_, summary)| is_it(summary))
        };
        runs.iter().map(|(ran_on, _)| ExpectedResult { ran_on, found: of(ran_on) }).collect()
    }

    fn figure_rows(&self, wanted: &FigureOf) -> Vec<WalkRow> {
        let mut rows = Vec::new();
        for run in self.runs(&wanted.scenario) {
            let Some((_, summary)) = run.found else {
                rows.push(open(&wanted.figure, run.ran_on));
                continue;
            };
            let is_wanted = |variant: &&VariantResult| {
                let named = wanted.variants.is_empty() || wanted.variants.contains(&variant.name);
                named && variant.figures.contains_key(&wanted.figure)
            };
            let found: Vec<&VariantResult> = summary.variants.iter().filter(is_wanted).collect();
            if found.is_empty() {
                rows.push(open(&wanted.figure, run.ran_on));
            }
            rows.extend(found.into_iter().map(|variant| figure_row(summary, variant, &wanted.figure)));
        }
        rows
    }

    fn forecast_rows(&self, wanted: &ForecastOf) -> Vec<WalkRow> {
        let row = |run: ExpectedResult<'_>| {
            let line = run
                .found
                .and_then(|(_, summary)| summary.forecasts.iter().find(|line| line.what == wanted.what));
            let Some(line) = line else { return open(&wanted.what, run.ran_on) };
            WalkRow {
                cells: [
                    line.what.clone(),
                    String::new(),
                    run.ran_on.to_owned(),
                    line.measured_text(),
                    format!("{} (`redrive check`)", line.forecast_text()),
                    sign(line.met).to_owned(),
                ],
                shown: if line.met { ProofState::Yes } else { ProofState::No },
            }
        };
        self.runs(&wanted.scenario).into_iter().map(row).collect()
    }

    fn audit_rows(&self, name: &str) -> Vec<WalkRow> {
        let what = format!("audit by id, {name}");
        let row = |run: ExpectedResult<'_>| {
            let audit = run.found.and_then(|(_, summary)| summary.audit());
            let Some(audit) = audit else { return open(&what, run.ran_on) };
            let ran_on = run.ran_on.to_owned();
            let balances = "balances".to_owned();
            let (text, sign) = (audit.to_string(), sign(audit.balances()).to_owned());
            let shown = if audit.balances() { ProofState::Yes } else { ProofState::No };
            WalkRow { cells: [what.clone(), String::new(), ran_on, text, balances, sign], shown }
        };
        self.runs(name).into_iter().map(row).collect()
    }

    /// The scenario with its plots, and the command of each run.
    fn sources(&self, name: &str) -> String {
        let Some(known) = self.known.iter().find(|known| known.name == name) else {
            return format!("{name}: there is no such scenario");
        };
        let runs = self.runs(name);
        let is_committed = runs.iter().any(|run| run.found.is_some());
        let title = &known.title;
        let mut text = if is_committed {
            let why = anchor(&why_title(title));
            format!("[{title}](#{}) · [why it looks like this](#{why})", anchor(title))
        } else {
            title.clone()
        };
        for (run, (_, command)) in runs.iter().zip(&known.runs) {
            let Some((dir, summary)) = run.found else {
                let _ = write!(text, " · open: `{command}`");
                continue;
            };
            let _ = write!(text, " · `{}`", summary.command);
            for (file, plot) in &summary.plots {
                let _ = write!(text, " · [{plot}](../{}/{file})", below(dir, self.root));
            }
        }
        text
    }
}

fn figure_row(summary: &Summary, variant: &VariantResult, figure: &str) -> WalkRow {
    let column = summary.columns.iter().find(|column| column.figure == figure);
    let value = variant.get(figure);
    let measured = column.map_or_else(|| format!("{value:.4}"), |column| column.unit.text(value));
    let verdict =
        summary.verdicts.iter().find(|verdict| verdict.variant == variant.name && verdict.figure == figure);
    let expected = verdict
        .map_or("reported".to_owned(), |verdict| format!("{}: {}", verdict.range_text(), verdict.reason));
    let met = verdict.is_none_or(|verdict| verdict.met);
    let balances = variant.audit.is_none_or(|audit| audit.balances());
    WalkRow {
        cells: [
            // Titles of columns lean on those before them, so the name of the figure stands beside it.
            column.map_or_else(|| format!("`{figure}`"), |column| format!("{} (`{figure}`)", column.title)),
            variant.name.clone(),
            summary.ran_on.clone(),
            measured,
            expected,
            verdict.map_or("", |verdict| sign(verdict.met)).to_owned(),
        ],
        shown: if met && balances { ProofState::Yes } else { ProofState::No },
    }
}

fn open(figure: &str, ran_on: &str) -> WalkRow {
    let cells = [
        format!("`{figure}`"),
        String::new(),
        ran_on.to_owned(),
        "open: no committed result".to_owned(),
        String::new(),
        String::new(),
    ];
    WalkRow { cells, shown: ProofState::Open }
}

/// The findings are in `docs`; GitHub resolves the link from there.
fn link_to_file(path: &str) -> String {
    format!("[{path}]({})", from_docs(path))
}

fn from_docs(path: &str) -> String {
    path.strip_prefix("docs/").map_or_else(|| format!("../{path}"), str::to_owned)
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::requirements;
    use super::*;

    #[test]
    fn a_requirement_without_a_committed_result_is_listed_as_open_with_its_command() {
        let runs = vec![("embedded engine, real clock".to_owned(), "redrive lab run ordering".to_owned())];
        let (name, title) = ("ordering".to_owned(), "Order by key".to_owned());
        let known = [ScenarioRuns { name, title, explains: String::new(), downstream: String::new(), runs }];
        let walk = Walk { committed: &[], known: &known, root: Path::new(".") };
        let all = requirements::all().unwrap();
        let text = walk.text(&all);
        for n in 71..=94 {
            assert!(text.contains(&format!("### S2-{n}\n")), "S2-{n}");
        }
        assert!(
            text.contains("| `out_of_order` |  | embedded engine, real clock | open: no committed result |"),
            "{text}"
        );
        assert!(text.contains("open: `redrive lab run ordering`"), "{text}");
    }
}
