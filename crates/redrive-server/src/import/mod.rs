//! Dead letters from elsewhere over HTTP, one per line: valid ones are imported, the others are named.

pub mod line;

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use redrive::internal::adopt::{Dialect, is_own_topic};
use redrive::internal::engine::{ForeignLetter, ImportAnswer};
use redrive::letters::redact::hidden_error;
use redrive::{GroupId, Time};
use redrive_api::{ImportedGroup, ImportedLetters, LineProblem};
use serde::Deserialize;

use crate::answer::Json;
use crate::api::change::Change;
use crate::body;
use crate::ingest::Intake;
use crate::problem::{Code, Problem};
use crate::request::Params;

/// The maximum number of lines in a body.
pub const LINES_MAX: usize = 10_000;
/// How many lines an answer names.
const PROBLEMS_MAX: usize = 1_000;
/// The maximum length of the text about the letters' origin.
const FROM_BYTES_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ImportParams {
    dry_run: bool,
    /// The origin of the letters, for the action log.
    from: Option<String>,
    /// The framework of the lines' headers; detected from the headers of each unless given.
    dialect: Option<String>,
}

pub(crate) async fn import(
    Change { shared, served, actor }: Change,
    Params(params): Params<ImportParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ImportedLetters>, Problem> {
    let from = params.from.unwrap_or_default();
    if from.len() > FROM_BYTES_MAX {
        let message = format!("`from` has more than {FROM_BYTES_MAX} bytes");
        return Err(Problem::bad_request(message, "name the topic or the file"));
    }
    let dialect = params.dialect.as_deref().map(dialect).transpose()?;
    let held = body::hold(&shared, &headers, body).await?;
    let (intake, now) = (served.intake.clone(), served.handle.now());
    let (bytes, pipeline, source) =
        (held.bytes.clone(), served.handle.name().to_owned(), served.source.clone());
    let is_own =
        move |topic: &str| source.as_deref().is_some_and(|source| is_own_topic(&pipeline, source, topic));
    let read = tokio::task::spawn_blocking(move || Lines::read(&bytes, dialect, &intake, &is_own, now)).await;
    let lines = read.map_err(|_| {
        Problem::new(Code::Stopping, "the server is stopping", "nothing was imported; send it again")
    })??;
    let numbers: Vec<usize> = lines.letters.iter().map(|(number, _)| *number).collect();
    let letters = lines.letters.into_iter().map(|(_, letter)| letter).collect();
    let actions = &shared.service.actions;
    let done = actions.import(&served.handle, letters, params.dry_run, &actor.0, &from).await?;
    let mut view =
        ImportedLetters { dry_run: params.dry_run, notes: lines.notes, ..ImportedLetters::default() };
    let mut problems = lines.problems;
    let mut groups: BTreeMap<GroupId, ImportedGroup> = BTreeMap::new();
    for (line, answer) in numbers.into_iter().zip(done.answers) {
        match answer {
            ImportAnswer::Imported { group, .. } => {
                view.imported += 1;
                let is_shown = !served.redaction.hides_texts() || group.is_of_rule();
                let error = if is_shown { group.title } else { hidden_error(None) };
                let none = ImportedGroup { id: group.group.to_string(), error, letters: 0 };
                groups.entry(group.group).or_insert(none).letters += 1;
            }
            ImportAnswer::Already { .. } => view.already_there += 1,
            ImportAnswer::Refused { why } => problems.push(LineProblem { line, problem: why }),
        }
    }
    view.refused = problems.len() as u64;
    problems.sort_by_key(|problem| problem.line);
    problems.truncate(PROBLEMS_MAX);
    view.problems = problems;
    view.groups = groups.into_values().collect();
    view.groups.sort_by_key(|group| std::cmp::Reverse(group.letters));
    Ok(Json(view))
}

fn dialect(name: &str) -> Result<Dialect, Problem> {
    Dialect::from_name(name).ok_or_else(|| {
        let names = Dialect::ALL.map(Dialect::name).join(", ");
        Problem::bad_request(format!("`dialect` is {name:?}"), format!("one of {names}, or leave it out"))
    })
}

/// The topic of a position: `orders-dlt` in `orders-dlt/0/17`.
fn topic_of(place: &str) -> &str {
    place.rsplitn(3, '/').nth(2).unwrap_or_default()
}

fn own_topic(place: &str) -> String {
    format!(
        "its `place` is {place}, a record of this pipeline itself: what is there is not a dead letter of another program; if the \
         message came from there, name it in `origin`"
    )
}

/// The lines of a body: letters with their line numbers, notes on changes, and the faults of the others.
#[derive(Debug, Default)]
struct Lines {
    letters: Vec<(usize, ForeignLetter)>,
    problems: Vec<LineProblem>,
    notes: Vec<LineProblem>,
}

impl Lines {
    /// Parses the body. `is_own` says which topics are the pipeline's own.
    fn read(
        body: &Bytes,
        dialect: Option<Dialect>,
        intake: &Intake,
        is_own: &dyn Fn(&str) -> bool,
        now: Time,
    ) -> Result<Self, Problem> {
        let mut lines = Self::default();
        for (index, text) in body.split(|byte| *byte == b'\n').enumerate() {
            let (line, text) = (index + 1, text.trim_ascii());
            if text.is_empty() {
                continue;
            }
            if lines.letters.len() + lines.problems.len() == LINES_MAX {
                let message = format!("there are more than {LINES_MAX} letters");
                let hint = "nothing was imported; send them in several requests";
                return Err(Problem::new(Code::TooLarge, message, hint).at_line(line));
            }
            let read = line::read(text, dialect, intake, now).and_then(|read| match &read.place {
                Some(place) if is_own(topic_of(place)) => Err(own_topic(place)),
                _ => Ok(read),
            });
            match read {
                Ok(read) => {
                    let room = lines.notes.len() < PROBLEMS_MAX;
                    lines
                        .notes
                        .extend(read.note.filter(|_| room).map(|problem| LineProblem { line, problem }));
                    lines.letters.push((line, read.letter));
                }
                Err(problem) => lines.problems.push(LineProblem { line, problem }),
            }
        }
        if lines.letters.is_empty() && lines.problems.is_empty() {
            let hint = "send one letter per line, as `redrive dlq export` writes them";
            return Err(Problem::bad_request("there is no letter in the body", hint));
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_pipeline_itself_is_refused_by_its_place() {
        let body = [
            r#"{"payload":"1","place":"orders-dlt/0/17"}"#,
            r#"{"payload":"2","place":"orders.DLQ/0/17"}"#,
            r#"{"payload":"3","place":"desk-4"}"#,
            r#"{"payload":"4","origin":"orders/0/17"}"#,
        ];
        let read = |is_own: &dyn Fn(&str) -> bool| {
            let body = Bytes::from(body.join("\n"));
            Lines::read(&body, None, &Intake::default(), is_own, Time::from_millis(1_800_000_000_000))
                .unwrap()
        };
        let lines = read(&|topic| is_own_topic("orders", "orders", topic));
        assert_eq!(lines.letters.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4]);
        let [problem] = &lines.problems[..] else { panic!("{:?}", lines.problems) };
        assert_eq!(problem.line, 2);
        assert!(problem.problem.starts_with("its `place` is orders.DLQ/0/17, a record of this pipeline"));
        assert_eq!(read(&|_| false).letters.len(), 4, "a pipeline that is not in Kafka has no topics");
    }
}
