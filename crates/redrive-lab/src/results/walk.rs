//! The requirements one by one: answer, figures, expected ranges and verdicts, plots and commands.

use std::fmt::Write as _;
use std::path::Path;

use super::answer::{self, Answer};
use super::committed::{Committed, ScenarioRuns, WHY, anchor, below, page_of};
use super::files::ResultFault;
use super::outcome::VariantResult;
use super::page::{Rows, markdown_table, sign};
use super::report::MADE;
use super::requirements::{Elsewhere, FigureOf, ForecastOf, Requirement};
use super::summary::Summary;

/// Whether a requirement is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProofState {
    /// Proven by committed results that are as expected, or by a test.
    Yes,
    /// A result is missing.
    Open,
    /// A figure is outside its range, or an audit does not balance.
    No,
}

impl ProofState {
    const fn shown_if(is_shown: bool) -> Self {
        if is_shown { Self::Yes } else { Self::Open }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Yes => "shown",
            Self::Open => "open",
            Self::No => "not as expected",
        }
    }
}

/// One row of a requirement's table, and its effect on the requirement's state.
struct WalkRow {
    cells: [String; 6],
    shown: ProofState,
}

/// The input of the walk.
pub(super) struct Walk<'a> {
    pub committed: &'a [Committed],
    pub known: &'a [ScenarioRuns],
    pub root: &'a Path,
}

/// A run that a scenario should have, with its result if one is committed.
pub(super) struct ExpectedResult<'a> {
    pub ran_on: &'a str,
    pub found: Option<&'a Committed>,
}

/// A requirement with its evidence.
pub(super) struct Walked<'a> {
    pub requirement: &'a Requirement,
    rows: Vec<WalkRow>,
    pub answer: Answer,
    pub state: ProofState,
}

impl Walk<'_> {
    /// Resolves every requirement's figures and answer. Fails if an answer names a variant or figure that no result
    /// can have.
    pub(super) fn walked<'r>(&self, requirements: &'r [Requirement]) -> Result<Vec<Walked<'r>>, ResultFault> {
        requirements.iter().map(|requirement| self.one(requirement)).collect()
    }

    fn one<'r>(&self, requirement: &'r Requirement) -> Result<Walked<'r>, ResultFault> {
        let rows = self.rows(requirement);
        let answer = answer::fill(&requirement.answer, self)
            .map_err(|fault| ResultFault::Requirements(format!("{}: {fault}", requirement.id)))?;
        let of_rows = rows.iter().map(|row| row.shown);
        let is_there = |proof: &Elsewhere| self.root.join(&proof.file).is_file();
        let of_proofs = requirement.elsewhere.iter().map(|proof| ProofState::shown_if(is_there(proof)));
        let proofs = of_rows.chain(of_proofs).max().unwrap_or(ProofState::Open);
        let of_answer = ProofState::shown_if(matches!(answer, Answer::Complete(_)));
        Ok(Walked { requirement, rows, answer, state: proofs.max(of_answer) })
    }

    /// The page with a section per requirement.
    pub(super) fn page(&self, walked: &[Walked<'_>]) -> String {
        let mut page = format!(
            "# Requirement by requirement\n\n{MADE}\n\nThe figures behind [the findings](../findings.md). A range is what was \
             expected before the run, with the reason; *reported* figures have none.\n\n"
        );
        for Walked { requirement, rows, answer, state } in walked {
            let _ = writeln!(page, "## {}\n\n*{}*\n", requirement.id, requirement.asks);
            let _ = writeln!(page, "{}\n", answer_text(answer, *state));
            if !rows.is_empty() {
                let head = ["figure", "variant", "ran on", "measured", "expected", ""].map(str::to_owned);
                let rows = rows.iter().map(|row| row.cells.to_vec());
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
                let _ = writeln!(page, "- {}", self.proof(proof));
                if let Some(picture) = &proof.picture {
                    let _ = writeln!(page, "\n![{picture}]({})\n", from_pages(&proof.file));
                }
            }
            page.push('\n');
        }
        format!("{}\n", page.trim_end())
    }

    fn proof(&self, Elsewhere { shows, command, file, .. }: &Elsewhere) -> String {
        let shows = sentence(shows);
        if !self.root.join(file).is_file() {
            return format!("{shows}: open, there is no `{file}`");
        }
        format!("{shows}: `{command}` ([{file}]({}))", from_pages(file))
    }

    /// Path from the root and title of the picture that shows a requirement best, from the first of the scenario's
    /// runs.
    pub(super) fn picture(&self, requirement: &Requirement) -> Result<Option<(String, String)>, ResultFault> {
        let Some(wanted) = &requirement.plot else { return Ok(None) };
        let found = self.runs(&wanted.scenario).into_iter().find_map(|run| run.found);
        let Some((dir, summary)) = found else { return Ok(None) };
        let title = summary.plots.iter().find(|(file, _)| *file == wanted.file);
        let (_, title) = title.ok_or_else(|| {
            let fault = format!("{}: `{}` has no plot `{}`", requirement.id, wanted.scenario, wanted.file);
            ResultFault::Requirements(fault)
        })?;
        Ok(Some((format!("{}/{}", below(dir, self.root), wanted.file), title.clone())))
    }

    fn rows(&self, requirement: &Requirement) -> Vec<WalkRow> {
        let figures = requirement.figures.iter().flat_map(|figure| self.figure_rows(figure));
        let forecasts = requirement.forecasts.iter().flat_map(|forecast| self.forecast_rows(forecast));
        let audits = requirement.audits.iter().flat_map(|name| self.audit_rows(name));
        figures.chain(forecasts).chain(audits).collect()
    }

    pub(super) fn runs(&self, name: &str) -> Vec<ExpectedResult<'_>> {
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
            let is_found = |name: &&String| found.iter().any(|variant| variant.name == **name);
            for name in wanted.variants.iter().filter(|name| !is_found(name)) {
                let mut row = open(&wanted.figure, run.ran_on);
                row.cells[1].clone_from(name);
                "open: not in the committed result".clone_into(&mut row.cells[3]);
                rows.push(row);
            }
            if found.is_empty() && wanted.variants.is_empty() {
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
            let (page, why) = (page_of(name), anchor(WHY));
            format!("[{title}]({page}) · [why it looks like this]({page}#{why})")
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
                let _ = write!(text, " · [{plot}](../../{}/{file})", below(dir, self.root));
            }
        }
        text
    }
}

fn figure_row(summary: &Summary, variant: &VariantResult, figure: &str) -> WalkRow {
    let column = summary.columns.iter().find(|column| column.figure == figure);
    let value = variant.get(figure);
    let unit = summary.unit(figure);
    let verdict =
        summary.verdicts.iter().find(|verdict| verdict.variant == variant.name && verdict.figure == figure);
    let expected = verdict.map_or("reported".to_owned(), |verdict| {
        format!("{}: {}", unit.range(verdict.min, verdict.max), verdict.reason)
    });
    let met = verdict.is_none_or(|verdict| verdict.met);
    let balances = variant.audit.is_none_or(|audit| audit.balances());
    WalkRow {
        cells: [
            // Column titles may depend on the preceding column, so the name of the figure is added.
            column.map_or_else(|| format!("`{figure}`"), |column| format!("{} (`{figure}`)", column.title)),
            variant.name.clone(),
            summary.ran_on.clone(),
            unit.text(value),
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

/// The answer, or what is missing for it.
pub(super) fn answer_text(answer: &Answer, state: ProofState) -> String {
    match answer {
        Answer::Complete(text) if state == ProofState::Yes => text.clone(),
        Answer::Complete(text) => format!("**{}**: {text}", sentence(state.text())),
        Answer::Open(missing) => format!("**Open**: {missing}"),
    }
}

/// Makes a path in the repository relative to docs/findings.
fn from_pages(path: &str) -> String {
    path.strip_prefix("docs/").map_or_else(|| format!("../../{path}"), |path| format!("../{path}"))
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::requirements;
    use super::*;
    use crate::results::Unit;

    fn known() -> [ScenarioRuns; 1] {
        let run = |ran_on: &str, command: &str| (ran_on.to_owned(), command.to_owned());
        let runs = vec![
            run("embedded engine, real clock", "redrive lab run ordering"),
            run("Kafka engine, real clock", "redrive lab run ordering --engine kafka"),
        ];
        let (name, title) = ("ordering".to_owned(), "Order by key".to_owned());
        let texts = || (String::new(), String::new());
        let ((hash, explains), (downstream, _)) = (texts(), texts());
        [ScenarioRuns { name, title, hash, explains, downstream, runs }]
    }

    fn requirement(answer: &str) -> Requirement {
        let text = format!("id = 'S2-1'\nasks = 'order'\nanswer = '{answer}'\naudits = ['ordering']");
        toml::from_str(&text).unwrap()
    }

    fn committed() -> [Committed; 2] {
        let json = r#"{"scenario": "ordering", "title": "Order", "question": "", "why": "", "method": "", "answers": [],
            "ran_on": "embedded engine, real clock", "seed": 42, "quick": false, "command": "c", "machine": {},
            "took_seconds": 1.0, "is_partial": false, "forecasts": [], "verdicts": [], "notes": [], "plots": [],
            "columns": [{"title": "late", "figure": "late", "unit": "share"}],
            "variants": [{"name": "key", "figures": {"late": 0.04}, "audit": null}]}"#;
        let kafka = json.replace("embedded", "Kafka");
        let result = |dir: &str, json: &str| (dir.into(), serde_json::from_str(json).unwrap());
        [result("lab/results/ordering/42", json), result("lab/results/ordering/42-kafka", &kafka)]
    }

    #[test]
    fn a_requirement_without_a_committed_result_is_listed_as_open_with_its_command() {
        let known = known();
        let walk = Walk { committed: &[], known: &known, root: Path::new(".") };
        let all: Vec<Requirement> = requirements::all().unwrap();
        let all: Vec<Requirement> =
            all.into_iter().filter(|of| of.scenarios() == ["ordering"] && of.elsewhere.is_empty()).collect();
        assert!(!all.is_empty());
        let walked = walk.walked(&all).unwrap();
        assert!(walked.iter().all(|of| of.state == ProofState::Open));
        let text = walk.page(&walked);
        assert!(
            text.contains("| `out_of_order` |  | embedded engine, real clock | open: no committed result |"),
            "{text}"
        );
        assert!(text.contains("open: `redrive lab run ordering`"), "{text}");
        assert!(text.contains("**Open**: no committed result of `redrive lab run ordering`"), "{text}");
    }

    #[test]
    fn an_answer_holds_the_measured_figure_in_its_unit() {
        let (known, committed) = (known(), committed());
        let walk = Walk { committed: &committed, known: &known, root: Path::new(".") };
        let wanted = requirement("{ordering | key | late} come late");
        let walked = walk.one(&wanted).unwrap();
        assert_eq!(walked.answer, Answer::Complete(format!("{} come late", Unit::Share.text(0.04))));
        assert_eq!(walked.state, ProofState::Open, "the audit that it needs is missing");
        let number = walk.one(&requirement("{ordering | key | late: number}")).map(|walked| walked.answer);
        assert_eq!(number.unwrap(), Answer::Complete("0.04".to_owned()));
    }

    #[test]
    fn an_answer_that_names_what_no_result_has_is_a_fault_that_says_what_there_is() {
        let (known, committed) = (known(), committed());
        let walk = Walk { committed: &committed, known: &known, root: Path::new(".") };
        for (answer, part) in [
            ("{ordering | key | lost}", "has no figure `lost`; it has `late`"),
            ("{ordering | lock | late}", "has no variant `lock`; it has `key`"),
            ("{order | key | late}", "there is no scenario `order`"),
            ("{ordering | key | late | Pulsar}", "does not run on `Pulsar`"),
            ("{ordering | check | late}", "has no forecast `late`"),
            ("{ordering | audit | produced}", "`ordering` has no audit"),
            ("{ordering | late}", "is not `scenario | variant | figure`"),
            ("{ordering", "has a `{` without a `}`"),
        ] {
            let wanted = requirement(answer);
            let Err(fault) = walk.one(&wanted) else { panic!("{answer} was filled in") };
            let fault = fault.to_string();
            assert!(
                fault.starts_with("lab/requirements.toml: S2-1: the answer ") && fault.contains(part),
                "{fault}"
            );
        }
    }

    #[test]
    fn a_figure_that_one_of_the_variants_lacks_is_open() {
        let (known, committed) = (known(), committed());
        let walk = Walk { committed: &committed, known: &known, root: Path::new(".") };
        let state = |variants: &str| {
            let figures = format!("{{ scenario = 'ordering', figure = 'late', variants = [{variants}] }}");
            let text = format!("id = 'S2-1'\nasks = 'a'\nanswer = 'b'\nfigures = [{figures}]");
            walk.one(&toml::from_str(&text).unwrap()).unwrap().state
        };
        assert_eq!((state("'key'"), state("'key', 'lock'")), (ProofState::Yes, ProofState::Open));
    }

    #[test]
    fn a_proof_whose_file_does_not_exist_is_open() {
        let known = known();
        let root = tempfile::tempdir().unwrap();
        let wanted: Requirement = toml::from_str(
            "id = 'S2-1'\nasks = 'a'\nanswer = 'b'\nelsewhere = [{ shows = 's', command = 'c', file = 'f.rs' }]",
        )
        .unwrap();
        let walk = Walk { committed: &[], known: &known, root: root.path() };
        let walked = [walk.one(&wanted).unwrap()];
        assert_eq!(walked[0].state, ProofState::Open);
        assert!(walk.page(&walked).contains("S: open, there is no `f.rs`"));
        std::fs::write(root.path().join("f.rs"), "").unwrap();
        assert_eq!(walk.one(&wanted).unwrap().state, ProofState::Yes);
        let nothing = Requirement { elsewhere: Vec::new(), ..wanted };
        assert_eq!(walk.one(&nothing).unwrap().state, ProofState::Open, "nothing shows it");
    }
}
