//! The sentence that answers a requirement, filled in with figures of the committed results.
//!
//! `{scenario | variant | figure}` is a figure of a variant. In place of the variant, `check` is the forecast of
//! `redrive check`, `beside check` the measurement it is compared with, and `audit` a count of the audit by id
//! (`produced`, `succeeded`, `dead`, `pending`). A fourth part selects the environment by its first word: `{… |
//! Kafka}`; the default is the first of the scenario's engines. `{… | figure: number}` is the figure without its
//! unit.

use super::summary::Summary;
use super::unit::Unit;
use super::walk::Walk;

/// An answer, as far as results are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Complete(String),
    /// Incomplete: lists what is missing.
    Open(String),
}

/// Fills in a template. A variant or figure that the scenario does not have is an error.
pub(super) fn fill(template: &str, walk: &Walk<'_>) -> Result<Answer, String> {
    let mut text = String::new();
    let mut missing = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| format!("the answer `{template}` has a `{{` without a `}}`"))?;
        text.push_str(before);
        match figure(name, walk).map_err(|fault| format!("the answer names `{{{name}}}`: {fault}"))? {
            Answer::Complete(figure) => text.push_str(&figure),
            Answer::Open(what) if missing.contains(&what) => {}
            Answer::Open(what) => missing.push(what),
        }
        rest = after;
    }
    text.push_str(rest);
    Ok(if missing.is_empty() { Answer::Complete(text) } else { Answer::Open(missing.join("; ")) })
}

fn figure(name: &str, walk: &Walk<'_>) -> Result<Answer, String> {
    let parts: Vec<&str> = name.split('|').map(str::trim).collect();
    let (scenario, of, figure, on) = match parts.as_slice() {
        [scenario, of, figure] => (*scenario, *of, *figure, None),
        [scenario, of, figure, on] => (*scenario, *of, *figure, Some(*on)),
        _ => return Err("it is not `scenario | variant | figure`".to_owned()),
    };
    let Some(known) = walk.known.iter().find(|known| known.name == scenario) else {
        return Err(format!("there is no scenario `{scenario}`"));
    };
    let runs = walk.runs(scenario);
    let wanted = |ran_on: &str| on.is_none_or(|on| ran_on.starts_with(on));
    let Some(at) = runs.iter().position(|run| wanted(run.ran_on)) else {
        return Err(format!("`{scenario}` does not run on `{}`", on.unwrap_or("anything")));
    };
    let Some((_, summary)) = runs[at].found else {
        return Ok(Answer::Open(format!("no committed result of `{}`", known.runs[at].1)));
    };
    value(summary, of, figure).map(Answer::Complete)
}

fn value(summary: &Summary, of: &str, figure: &str) -> Result<String, String> {
    let scenario = &summary.scenario;
    match of {
        "check" | "beside check" => {
            let Some(line) = summary.forecasts.iter().find(|line| line.what == figure) else {
                let known = summary.forecasts.iter().map(|line| line.what.as_str());
                return Err(format!("`{scenario}` has no forecast `{figure}`; it has {}", listed(known)));
            };
            Ok(if of == "check" { line.forecast_text() } else { line.measured_text() })
        }
        "audit" => {
            let audit = summary.audit().ok_or_else(|| format!("`{scenario}` has no audit"))?;
            let count = match figure {
                "produced" => audit.produced,
                "succeeded" => audit.succeeded,
                "dead" => audit.dead,
                "pending" => audit.pending,
                _ => return Err(format!("an audit has no `{figure}`")),
            };
            Ok(Unit::Count.text(count as f64))
        }
        variant => {
            let Some(found) = summary.variants.iter().find(|found| found.name == variant) else {
                let known = summary.variants.iter().map(|variant| variant.name.as_str());
                return Err(format!("`{scenario}` has no variant `{variant}`; it has {}", listed(known)));
            };
            let (figure, is_number) =
                figure.strip_suffix(": number").map_or((figure, false), |name| (name, true));
            let Some(value) = found.figures.get(figure) else {
                let known = found.figures.keys().map(String::as_str);
                let known = listed(known);
                return Err(format!("`{variant}` of `{scenario}` has no figure `{figure}`; it has {known}"));
            };
            let unit = if is_number { Unit::Count } else { summary.unit(figure) };
            Ok(unit.text(*value))
        }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
