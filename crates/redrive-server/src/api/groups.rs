//! Groups of dead letters: counted, explained and decided about.

use axum::extract::State;
use redrive::internal::engine::groups::mark::{MORE_MAX, NOTE_BYTES_MAX, SNOOZE_MAX};
use redrive::internal::engine::{GroupState, GroupSummary, Handling};
use redrive::internal::letters::select::LetterIds;
use redrive::letters::redact::{Redaction, hidden_error};
use redrive::letters::{Filter, Selection};
use redrive::{GroupId, LetterState, Time, timestamp};
use redrive_api::{GroupDecision, GroupDetail, GroupView, Groups, Instant, RuleView};
use redrive_core::{Fingerprint, duration};

use super::change::{Change, JsonBody};
use super::shown::{ShownLetter, all_before, is_our_title, page_of};
use crate::answer::Json;
use crate::problem::Problem;
use crate::request::Path;
use crate::service::Served;
use crate::state::Shared;

/// How many letters are shown with a group.
const SAMPLES: usize = 5;

/// The common properties of its letters come from the sample; those of `other` have nothing in common.
fn group(served: &Served, summary: &GroupSummary) -> GroupView {
    let GroupSummary { figures, state, mark, sample } = summary;
    let cause = sample.as_ref().filter(|_| !figures.group.is_other());
    let last = cause.and_then(|letter| letter.history.attempts().pop());
    let (until, more) = match mark.as_ref().map(|mark| mark.handling) {
        Some(Handling::Snoozed { until, more }) => (until, more),
        _ => (None, None),
    };
    let name = |name: &'static str| name.to_owned();
    // Whoever removed a decision has decided nothing that still holds.
    let mark = mark.as_ref().filter(|mark| !mark.is_empty());
    GroupView {
        id: figures.group.to_string(),
        state: name(state.name()),
        open: figures.open,
        per_minute: figures.per_minute,
        oldest: figures.oldest.map(|(dead_at, _)| Instant(dead_at)),
        class: last.as_ref().map(|last| name(last.class.name())),
        reason: cause.map(|letter| name(letter.reason.name())),
        status: last.as_ref().and_then(redrive::internal::letters::status_of),
        sink: cause.map(|_| name(served.handle.sink().name)),
        error: shown_title(&served.redaction, summary),
        rule: cause.and_then(|letter| rule(served, &letter.group)),
        version: cause.map(|letter| letter.group.version),
        sample: sample.as_ref().map(|letter| LetterIds::of(&served.handle).text(letter.id)),
        note: mark.and_then(|mark| mark.note.clone()),
        by: mark.map(|mark| mark.by.clone()),
        at: mark.map(|mark| Instant(mark.at)),
        until: until.map(Instant),
        more,
    }
}

/// The title of a group, unless it derives from the text of a receiver or handler and the pipeline redacts.
pub(crate) fn shown_title(redaction: &Redaction, summary: &GroupSummary) -> String {
    let is_ours = summary.group().is_other() || summary.sample.as_ref().is_some_and(is_our_title);
    if !redaction.hides_texts() || is_ours {
        return summary.title().to_owned();
    }
    let last = summary.sample.as_ref().and_then(|letter| letter.history.attempts().pop());
    hidden_error(last.as_ref().and_then(redrive::internal::letters::status_of))
}

/// The configured rule that created the group, if there is one.
fn rule(served: &Served, group: &Fingerprint) -> Option<RuleView> {
    let rule = served.handle.group_rules().rule_of(group);
    let pattern = rule.map(|rule| rule.pattern().to_owned());
    group.is_of_rule().then(|| RuleView { pattern, name: group.title.clone() })
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
) -> Result<Json<Groups>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let groups = shared.service.actions.groups(&served.handle).await?;
    let open = groups.iter().map(|summary| summary.figures.open).sum();
    Ok(Json(Groups { groups: groups.iter().map(|summary| group(served, summary)).collect(), open }))
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, name)): Path<(String, String)>,
) -> Result<Json<GroupDetail<ShownLetter>>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let id = group_id(&name)?;
    let groups = shared.service.actions.groups(&served.handle).await?;
    let summary =
        groups.iter().find(|summary| summary.group() == id).ok_or_else(|| no_group(&pipeline, &name))?;
    let filter = Filter::parse(&format!("group:{id}")).ok();
    let selection = Selection { filter, state: Some(LetterState::Open), ..Selection::default() };
    let page = page_of(served, &selection, None, SAMPLES, false).await?;
    let before = all_before(served, &page.letters).await?;
    let letters = page.letters.iter().zip(&before);
    let letters =
        letters.map(|(letter, before)| ShownLetter::of(served, letter, before, None, false)).collect();
    Ok(Json(GroupDetail { group: group(served, summary), letters }))
}

pub(crate) async fn mark(
    change: Change,
    Path((_, name)): Path<(String, String)>,
    JsonBody { value: wish, .. }: JsonBody<GroupDecision>,
) -> Result<Json<GroupView>, Problem> {
    let Change { shared, served, actor } = change;
    let id = group_id(&name)?;
    if wish.note.as_ref().is_some_and(|note| note.len() > NOTE_BYTES_MAX) {
        let message = format!("`note` has more than {NOTE_BYTES_MAX} bytes");
        return Err(Problem::bad_request(message, "put the long story into a ticket, and its name here"));
    }
    let handling = handling(&wish, served.handle.now())?;
    let note = wish.note.as_deref();
    let summary = shared.service.actions.mark_group(&served.handle, id, handling, note, &actor.0).await?;
    Ok(Json(group(&served, &summary)))
}

fn handling(wish: &GroupDecision, now: Time) -> Result<Handling, Problem> {
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
                let message = "a snooze needs an end";
                return Err(Problem::bad_request(
                    message,
                    "give `until`, a time or a duration, or `more`, a number of letters",
                ));
            }
            if wish.more.is_some_and(|more| !(1..=MORE_MAX).contains(&more)) {
                let message = format!("`more` must be 1 to {MORE_MAX}");
                return Err(Problem::bad_request(message, "snooze until a time instead"));
            }
            Ok(Handling::Snoozed { until, more: wish.more })
        }
        other => {
            let message = format!("`state` is {other:?}, which is not a group state that can be set");
            Err(Problem::bad_request(message, "one of open, acknowledged, resolved, snoozed"))
        }
    }
}

/// Parses a time in the future, or a span from now; at most a year ahead.
fn until(text: &str, now: Time) -> Result<Time, Problem> {
    let time = match duration::parse(text) {
        Ok(span) => Some(now.plus(span)),
        Err(_) => timestamp::parse(text).or_else(|| timestamp::parse(&format!("{text}T00:00:00Z"))),
    };
    let refused = |why: &str| {
        let hint = "write a duration like 2d, or a time like 2026-11-15T09:00:00Z, at most a year ahead";
        Problem::bad_request(format!("`until` is {text:?}, which is {why}"), hint)
    };
    match time.filter(|until| *until > now) {
        None => Err(refused("not a future time")),
        Some(until) if until > now.plus(SNOOZE_MAX) => Err(refused("more than a year ahead")),
        Some(until) => Ok(until),
    }
}

fn group_id(text: &str) -> Result<GroupId, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format!("`{text}`: {error}"), "list the groups first"))
}

fn no_group(pipeline: &str, group: &str) -> Problem {
    let message = format!("pipeline `{pipeline}` has no group `{group}`");
    Problem::not_found(message, format!("list the groups with `redrive dlq groups {pipeline} --all`"))
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
            r#"{"state":"snoozed","until":"99999999999d"}"#,
            r#"{"state":"resolved","more":3}"#,
            r#"{"state":"regressed"}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
