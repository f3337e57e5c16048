//! Groups of dead letters: counted, shown with why their letters belong together, and decided about.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use redrive::engine::groups::mark::{MORE_MAX, NOTE_BYTES_MAX};
use redrive::engine::{GroupMark, GroupState, GroupSummary, Handling};
use redrive::letters::select::LetterIds;
use redrive::letters::{Filter, Selection};
use redrive::{GroupId, LetterState, Time, timestamp};
use redrive_core::{Fingerprint, duration};
use serde::{Deserialize, Serialize};

use super::shown::{ShownLetter, page_of};
use super::view;
use crate::answer::Json;
use crate::auth::Actor;
use crate::body;
use crate::problem::Problem;
use crate::request::{Path, read_json};
use crate::service::Served;
use crate::state::Shared;

/// Letters that are shown with a group.
const SAMPLES: usize = 5;

/// One group in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct GroupView {
    id: String,
    state: &'static str,
    open: u64,
    per_minute: u64,
    oldest: Option<String>,
    /// What its letters have in common: class, reason, status and sink of the sample, and the normalised error or the name
    /// that a rule gives. Of `other` they have nothing in common.
    class: Option<&'static str>,
    reason: Option<&'static str>,
    status: Option<u64>,
    sink: Option<&'static str>,
    error: String,
    /// The rule of the configuration that has made the group, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleView>,
    /// The version of the fingerprint.
    version: Option<u8>,
    /// The letter that has been open for longest.
    sample: Option<String>,
    note: Option<String>,
    by: Option<String>,
    at: Option<String>,
    until: Option<String>,
    more: Option<u64>,
}

/// A `[[pipeline.group]]`.
#[derive(Debug, Serialize)]
pub(crate) struct RuleView {
    /// Null if the configuration does not have it any more.
    #[serde(rename = "match")]
    pattern: Option<String>,
    #[serde(rename = "as")]
    name: String,
}

impl RuleView {
    fn of(served: &Served, group: &Fingerprint) -> Option<Self> {
        let rule = served.handle.group_rules().rule_of(group);
        let pattern = rule.map(|rule| rule.pattern().to_owned());
        group.is_of_rule().then(|| Self { pattern, name: group.title.clone() })
    }
}

impl GroupView {
    fn of(served: &Served, summary: &GroupSummary) -> Self {
        let GroupSummary { figures, state, mark, sample } = summary;
        let cause = sample.as_ref().filter(|_| !figures.group.is_other());
        let last = cause.and_then(|letter| letter.history.attempts().pop());
        let (until, more) = match mark.as_ref().map(|mark| mark.handling) {
            Some(Handling::Snoozed { until, more }) => (until, more),
            _ => (None, None),
        };
        let of_mark = |text: fn(&GroupMark) -> String| mark.as_ref().map(text);
        Self {
            id: figures.group.to_string(),
            state: state.name(),
            open: figures.open,
            per_minute: figures.per_minute,
            oldest: view::time(figures.oldest.map(|(dead_at, _)| dead_at)),
            class: last.as_ref().map(|last| last.class.name()),
            reason: cause.map(|letter| letter.reason.name()),
            status: last.as_ref().and_then(redrive::letters::status_of),
            sink: cause.map(|_| served.handle.sink().name),
            error: summary.title().to_owned(),
            rule: cause.and_then(|letter| RuleView::of(served, &letter.group)),
            version: cause.map(|letter| letter.group.version),
            sample: sample.as_ref().map(|letter| LetterIds::of(&served.handle).text(letter.id)),
            note: mark.as_ref().and_then(|mark| mark.note.clone()),
            by: of_mark(|mark| mark.by.clone()),
            at: of_mark(|mark| timestamp::print(mark.at)),
            until: view::time(until),
            more,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct GroupsView {
    groups: Vec<GroupView>,
    /// Open letters of all groups.
    open: u64,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
) -> Result<Json<GroupsView>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let groups = shared.service.actions.groups(&served.handle).await?;
    let open = groups.iter().map(|summary| summary.figures.open).sum();
    Ok(Json(GroupsView {
        groups: groups.iter().map(|summary| GroupView::of(served, summary)).collect(),
        open,
    }))
}

#[derive(Debug, Serialize)]
pub(crate) struct GroupDetail {
    #[serde(flatten)]
    group: GroupView,
    /// A few of its open letters, without their payloads.
    letters: Vec<ShownLetter>,
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, group)): Path<(String, String)>,
) -> Result<Json<GroupDetail>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let id = group_id(&group)?;
    let groups = shared.service.actions.groups(&served.handle).await?;
    let summary =
        groups.iter().find(|summary| summary.group() == id).ok_or_else(|| no_group(&pipeline, &group))?;
    let filter = Filter::parse(&format!("group:{id}")).ok();
    let selection = Selection { filter, state: Some(LetterState::Open), ..Selection::default() };
    let page = page_of(served, &selection, None, SAMPLES, false).await?;
    let letters = page.letters.iter().map(|letter| ShownLetter::of(served, letter, None, false)).collect();
    Ok(Json(GroupDetail { group: GroupView::of(served, summary), letters }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateWish {
    state: String,
    until: Option<String>,
    more: Option<u64>,
    note: Option<String>,
}

pub(crate) async fn mark(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path((pipeline, group)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<GroupView>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let id = group_id(&group)?;
    let held = body::hold(&shared, &headers, body).await?;
    let wish: StateWish = read_json(&held.bytes)?;
    if wish.note.as_ref().is_some_and(|note| note.len() > NOTE_BYTES_MAX) {
        let message = format!("`note` has more than {NOTE_BYTES_MAX} bytes");
        return Err(Problem::bad_request(message, "put the long story into a ticket, and its name here"));
    }
    let handling = handling(&wish, served.handle.now())?;
    let note = wish.note.as_deref();
    let summary = shared.service.actions.mark_group(&served.handle, id, handling, note, &actor.0).await?;
    Ok(Json(GroupView::of(served, &summary)))
}

fn handling(wish: &StateWish, now: Time) -> Result<Handling, Problem> {
    let snoozes = wish.state == GroupState::Snoozed.name();
    if !snoozes && (wish.until.is_some() || wish.more.is_some()) {
        return Err(Problem::bad_request("`until` and `more` are for `snoozed`", "leave them out"));
    }
    match wish.state.as_str() {
        "open" => Ok(Handling::Open),
        "acknowledged" => Ok(Handling::Acknowledged),
        "resolved" => Ok(Handling::Resolved),
        "snoozed" => {
            let until = wish.until.as_deref().map(|text| until(text, now)).transpose()?;
            if until.is_none() && wish.more.is_none() {
                let message = "it is not said how long the group is snoozed";
                return Err(Problem::bad_request(
                    message,
                    "give `until`, a time or a span, or `more`, a number of letters",
                ));
            }
            if wish.more.is_some_and(|more| !(1..=MORE_MAX).contains(&more)) {
                let message = format!("`more` is out of range; 1 to {MORE_MAX} letters can be waited for");
                return Err(Problem::bad_request(message, "snooze until a time instead"));
            }
            Ok(Handling::Snoozed { until, more: wish.more })
        }
        other => {
            let message = format!("`state` is {other:?}, which is no state a group can be put into");
            Err(Problem::bad_request(message, "one of open, acknowledged, resolved, snoozed"))
        }
    }
}

/// A time to come, or how long from now.
fn until(text: &str, now: Time) -> Result<Time, Problem> {
    let time = match duration::parse(text) {
        Ok(span) => Some(now.plus(span)),
        Err(_) => timestamp::parse(text).or_else(|| timestamp::parse(&format!("{text}T00:00:00Z"))),
    };
    time.filter(|until| *until > now).ok_or_else(|| {
        let hint = "write a span like 2d, or a time like 2026-11-15T09:00:00Z that is still to come";
        Problem::bad_request(format!("`until` is {text:?}, which is no time to come"), hint)
    })
}

fn group_id(text: &str) -> Result<GroupId, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format!("`{text}`: {error}"), "list the groups first"))
}

fn no_group(pipeline: &str, group: &str) -> Problem {
    let message = format!("pipeline `{pipeline}` has no group `{group}`");
    Problem::not_found(message, "groups with open letters or a state are there; list them first")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(10_000_000);

    fn read(json: &str) -> Result<Handling, Problem> {
        handling(&serde_json::from_str(json).unwrap(), NOW)
    }

    #[test]
    fn a_snooze_says_until_when_or_until_how_many() {
        let later = Time::from_millis(10_000_000 + 3_600_000);
        let hour = Handling::Snoozed { until: Some(later), more: None };
        assert_eq!(read(r#"{"state":"snoozed","until":"1h"}"#).unwrap(), hour);
        let more = Handling::Snoozed { until: None, more: Some(100) };
        assert_eq!(read(r#"{"state":"snoozed","more":100}"#).unwrap(), more);
        for wrong in [
            r#"{"state":"snoozed"}"#,
            r#"{"state":"snoozed","more":0}"#,
            r#"{"state":"snoozed","until":"1970-01-01T00:00:00Z"}"#,
            r#"{"state":"snoozed","until":"soon"}"#,
            r#"{"state":"resolved","more":3}"#,
            r#"{"state":"regressed"}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
