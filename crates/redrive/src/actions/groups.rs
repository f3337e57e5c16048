//! Decisions about groups of letters: recorded like every other action, and restored from the log if the engine does
//! not store them for all processes of a pipeline.

use redrive_core::GroupId;

use super::action::{Action, ActionKind};
use super::error::ActionError;
use super::log::ActionLog;
use crate::engine::{GroupFigures, GroupMark, GroupState, GroupSummary, Handling};
use crate::handle::PipelineHandle;
use crate::letters::{Filter, SelectError, Selection, groups};

/// Limit on the letters scanned for one of a group without open letters.
const RESOLVED_LOOKED_AT_MAX: u64 = 200_000;

/// The groups of a pipeline with their states, those with the most open letters first.
pub(super) async fn list(log: &ActionLog, handle: &PipelineHandle) -> Result<Vec<GroupSummary>, ActionError> {
    Ok(groups::list(handle, log.marks(handle.name()), true).await?)
}

/// Like [`list`] without sample letters: cheaper, and enough for metrics.
pub(super) async fn states(
    log: &ActionLog,
    handle: &PipelineHandle,
) -> Result<Vec<GroupSummary>, ActionError> {
    Ok(groups::list(handle, log.marks(handle.name()), false).await?)
}

/// Records and applies a decision about a group; without `note`, the previous note stays, unless the decision is removed.
/// Returns the updated group.
pub(super) async fn mark(
    log: &ActionLog,
    handle: &PipelineHandle,
    group: GroupId,
    handling: Handling,
    note: Option<&str>,
    actor: &str,
) -> Result<GroupSummary, ActionError> {
    let unknown = || ActionError::NoGroup { group, pipeline: handle.name().to_owned() };
    let all = list(log, handle).await?;
    let before = match all.into_iter().find(|summary| summary.group() == group) {
        Some(found) => found,
        None => resolved_group(handle, group).await?.ok_or_else(unknown)?,
    };
    let given = note.map(|note| note.trim().to_owned());
    let before_note = || before.mark.as_ref().and_then(|mark| mark.note.clone());
    let kept = match (&given, handling) {
        (Some(note), _) => Some(note.clone()),
        (None, Handling::Open) => None,
        (None, _) => before_note(),
    };
    let kept = kept.filter(|note| !note.is_empty());
    let given = given.filter(|note| !note.is_empty());
    let mark = GroupMark {
        group,
        handling,
        at: handle.now(),
        by: actor.to_owned(),
        note: kept,
        title: before.title().to_owned(),
    };
    let action = Action::new(mark.at, actor, kind(handling), handle.name());
    let action = action.of(group.to_string(), before.figures.open);
    log.record(Action { note: given, mark: Some(mark.clone()), ..action }).await?;
    groups::mark(handle, mark.clone()).await?;
    // The letters that the decision covers died before it.
    let state = mark.state(0, mark.at);
    Ok(GroupSummary { state, mark: Some(mark), ..before })
}

/// A group whose letters are all resolved and that has no decision yet: described by one of its letters.
async fn resolved_group(
    handle: &PipelineHandle,
    group: GroupId,
) -> Result<Option<GroupSummary>, ActionError> {
    let Ok(filter) = Filter::parse(&format!("group:{group}")) else { return Ok(None) };
    let selection = Selection { filter: Some(filter), ..Selection::default() };
    let (mut after, mut looked_at) = (None, 0);
    while looked_at < RESOLVED_LOOKED_AT_MAX {
        let page = match selection.page_without_payloads(handle, after, 1).await {
            Ok(page) => page,
            Err(SelectError::Handle(error)) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        if let Some(letter) = page.letters.into_iter().next() {
            let figures = GroupFigures { group, open: 0, oldest: None, per_minute: 0 };
            return Ok(Some(GroupSummary {
                figures,
                state: GroupState::Open,
                mark: None,
                sample: Some(letter),
            }));
        }
        looked_at += page.scanned;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(None)
}

const fn kind(handling: Handling) -> ActionKind {
    match handling {
        Handling::Open => ActionKind::GroupReopen,
        Handling::Acknowledged => ActionKind::GroupAcknowledge,
        Handling::Resolved => ActionKind::GroupResolve,
        Handling::Snoozed { .. } => ActionKind::GroupSnooze,
    }
}
