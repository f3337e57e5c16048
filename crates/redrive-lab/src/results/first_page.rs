//! docs/findings.md: the answers, the best plot of each experiment, and the results they come from. All figures are
//! on the pages below docs/findings.

use std::fmt::Write as _;

use super::committed::{Committed, ScenarioRuns, WHY, anchor, below, page_of};
use super::files::ResultFault;
use super::page::{Rows, markdown_table};
use super::report::MADE;
use super::summary::Summary;
use super::walk::{Walk, Walked, answer_text};

const REQUIREMENTS: &str = "findings/requirements.md";

pub(super) fn page(walk: &Walk<'_>, walked: &[Walked<'_>]) -> Result<String, ResultFault> {
    let mut page = format!(
        "# Findings\n\n{MADE}\n\nEvery figure here is read from a committed result in [lab/results](../lab/results/README.md) \
         when this page is made; each was measured by one command of [the lab](../lab/README.md). What has no committed result, \
         or no proof, is open. Where an answer names no engine, the figure is of the scenario's first run: the embedded engine by \
         the real clock, the virtual clock where hours are needed, or a model; [the table of results](#results) says which.\n\n## \
         The eight experiments\n\n"
    );
    let experiments: Vec<(&Walked<'_>, String)> =
        walked.iter().filter_map(|of| Some((of, heading(walk, of)?))).collect();
    let mut answers: Rows = vec![["", "answer", "first run", ""].map(str::to_owned).to_vec()];
    for (of, heading) in &experiments {
        let id = of.requirement.experiment.clone().unwrap_or_default();
        let link = format!("[{id}](#{})", anchor(heading));
        let plot = of.requirement.plot.as_ref();
        let runs = plot.map_or(Vec::new(), |plot| walk.runs(&plot.scenario));
        let ran_on = runs.first().map_or(String::new(), |run| run.ran_on.to_owned());
        answers.push(vec![link, answer_text(&of.answer, of.state), ran_on, of.state.text().to_owned()]);
    }
    let _ = writeln!(page, "{}", markdown_table(&answers));
    for (of, heading) in &experiments {
        let _ = writeln!(page, "### {heading}\n");
        if let Some((file, title)) = walk.picture(of.requirement)? {
            let _ = writeln!(page, "![{title}](../{file})\n");
        }
        let _ = writeln!(page, "{}\n", links(walk, of));
    }
    let _ = writeln!(page, "## Requirement by requirement\n\n{}", markdown_table(&requirements(walked)));
    let _ = writeln!(page, "## Results\n\n{}", results(walk));
    Ok(format!("{}\n", page.trim_end()))
}

/// `E1: Blocking against non-blocking retries`; `None` if the requirement asks for no experiment.
fn heading(walk: &Walk<'_>, of: &Walked<'_>) -> Option<String> {
    let (id, plot) = (of.requirement.experiment.as_ref()?, of.requirement.plot.as_ref());
    let known = walk.known.iter().find(|known| plot.is_some_and(|plot| plot.scenario == known.name));
    Some(known.map_or_else(|| id.clone(), |known| format!("{id}: {}", known.title)))
}

/// Links to the figures and the explanation, and the command of each run.
fn links(walk: &Walk<'_>, of: &Walked<'_>) -> String {
    let id = &of.requirement.id;
    let mut text = format!("[All figures of {id}]({REQUIREMENTS}#{})", anchor(id));
    let Some(plot) = &of.requirement.plot else { return text };
    let runs = walk.runs(&plot.scenario);
    if runs.iter().any(|run| run.found.is_some()) {
        let page = page_of(&plot.scenario);
        let _ = write!(text, " · [all plots](findings/{page}) · [{WHY}](findings/{page}#{})", anchor(WHY));
    }
    let known = walk.known.iter().find(|known| known.name == plot.scenario);
    for (run, (_, command)) in runs.iter().zip(known.map_or(&[][..], |known| &known.runs)) {
        match run.found {
            Some((_, summary)) => {
                let _ = write!(text, " · `{}`", summary.command);
            }
            None => {
                let _ = write!(text, " · open: `{command}`");
            }
        }
    }
    text
}

fn requirements(walked: &[Walked<'_>]) -> Rows {
    let mut rows: Rows = vec![["", "asked for", "answer", ""].map(str::to_owned).to_vec()];
    for of in walked {
        let id = &of.requirement.id;
        let link = format!("[{id}]({REQUIREMENTS}#{})", anchor(id));
        let answer = match &of.requirement.experiment {
            Some(experiment) => format!("see {experiment} above"),
            None => answer_text(&of.answer, of.state),
        };
        rows.push(vec![link, of.requirement.asks.clone(), answer, of.state.text().to_owned()]);
    }
    rows
}

fn results(walk: &Walk<'_>) -> String {
    let head = ["scenario", "ran on", "result", "scenario file", "page"].map(str::to_owned).to_vec();
    let row = |(dir, summary): &Committed| {
        let title = format!("[{}](findings/{})", summary.title, page_of(&summary.scenario));
        let page = format!("[page](../{}/index.md)", below(dir, walk.root));
        let standing = summary.standing().text().to_owned();
        vec![title, summary.ran_on.clone(), standing, version(summary, walk.known), page]
    };
    markdown_table(&std::iter::once(head).chain(walk.committed.iter().map(row)).collect())
}

/// The scenario content and the commit with which a result was made.
pub(super) fn version(summary: &Summary, known: &[ScenarioRuns]) -> String {
    let hash = &summary.scenario_hash;
    let today = known.iter().find(|known| known.name == summary.scenario);
    let content = if hash.is_empty() {
        "made by an earlier version of the scenario, before its content was recorded".to_owned()
    } else if today.is_some_and(|today| today.hash == *hash) {
        format!("scenario content {hash}")
    } else {
        format!("made by an earlier version of the scenario, content {hash}")
    };
    format!("{content}, commit {}", summary.machine.get("commit").map_or("unknown", String::as_str))
}
