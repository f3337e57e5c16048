//! Decisions about groups of letters: recorded like every other action, and remembered from the record where the engine
//! does not keep them for all processes that share a pipeline.

use redrive_core::GroupId;

use super::action::{Action, ActionKind};
use super::log::{ActionError, Actions};
use crate::engine::{GroupMark, GroupSummary, Handling};
use crate::handle::PipelineHandle;
use crate::letters::groups;

impl Actions {
    /// The groups of a pipeline with their states, those with the most open letters first.
    pub async fn groups(&self, handle: &PipelineHandle) -> Result<Vec<GroupSummary>, ActionError> {
        Ok(groups::list(handle, self.marks(handle.name()), true).await?)
    }

    /// The same without a letter of each: cheaper, and all that figures need.
    pub async fn group_states(&self, handle: &PipelineHandle) -> Result<Vec<GroupSummary>, ActionError> {
        Ok(groups::list(handle, self.marks(handle.name()), false).await?)
    }

    /// Decides about a group; a note that is not given stays as it was. Returns the group as it is from now on.
    pub async fn mark_group(
        &self,
        handle: &PipelineHandle,
        group: GroupId,
        handling: Handling,
        note: Option<&str>,
        actor: &str,
    ) -> Result<GroupSummary, ActionError> {
        let unknown = || ActionError::NoGroup { group, pipeline: handle.name().to_owned() };
        let all = self.groups(handle).await?;
        let before = all.into_iter().find(|summary| summary.group() == group).ok_or_else(unknown)?;
        let note = match note {
            Some(note) => Some(note.trim().to_owned()).filter(|note| !note.is_empty()),
            None => before.mark.as_ref().and_then(|mark| mark.note.clone()),
        };
        let mark = GroupMark {
            group,
            handling,
            at: handle.now(),
            by: actor.to_owned(),
            note: note.clone(),
            title: before.title().to_owned(),
        };
        let action = Action::new(mark.at, actor, kind(handling), handle.name());
        let action = action.of(group.to_string(), before.figures.open);
        self.record(Action { note, mark: Some(mark.clone()), ..action }).await?;
        groups::mark(handle, mark.clone()).await?;
        // What it was decided about had not died after the decision.
        let state = mark.state(0, mark.at);
        Ok(GroupSummary { state, mark: Some(mark), ..before })
    }
}

const fn kind(handling: Handling) -> ActionKind {
    match handling {
        Handling::Open => ActionKind::GroupReopen,
        Handling::Acknowledged => ActionKind::GroupAcknowledge,
        Handling::Resolved => ActionKind::GroupResolve,
        Handling::Snoozed { .. } => ActionKind::GroupSnooze,
    }
}
