//! Changes to letters and groups, each recorded before it is made.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use redrive_core::{GroupId, Time};

use super::action::Action;
use super::discards::{self, Discarded, Restored};
use super::edit_undo::{self, EditUndone};
use super::edits::{self, EditPlan, EditWish};
use super::erasures::{self, Erased};
use super::error::ActionError;
use super::finish;
use super::groups;
use super::imports::{self, Imported};
use super::log::ActionLog;
use super::retention;
use crate::engine::{ForeignLetter, GroupMarks, GroupSummary, Handling, WipeProgress};
use crate::handle::PipelineHandle;
use crate::naming::Naming;
use crate::replay::Replays;

/// The action log, and the changes that are recorded in it before they are made. Clones are handles to the same log.
///
/// ```
/// # use redrive::PipelineHandle;
/// # async fn example(orders: &PipelineHandle) -> Result<(), redrive::actions::ActionError> {
/// use redrive::actions::Actions;
///
/// let actions = Actions::open(None)?; // in memory; with a directory, they survive a restart
/// let discarded = actions.discard(orders, &[17, 18], "alice", "test data").await?;
/// if let Some(id) = discarded.id {
///     actions.undo(orders, &id, "alice").await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Actions {
    log: ActionLog,
}

impl Actions {
    /// Opens or makes the file in `dir`; without a directory the actions are kept in memory.
    pub fn open(dir: Option<&Path>) -> Result<Self, ActionError> {
        Self::open_named(dir, Naming::default())
    }

    /// Like [`Self::open`], for a process that shares its letters with others: the names of its discards are unique
    /// among them.
    pub fn open_named(dir: Option<&Path>, naming: Naming) -> Result<Self, ActionError> {
        Ok(Self { log: ActionLog::open(dir, naming)? })
    }

    /// From now on the actions on a pipeline are those of all processes that share its letters, if several do. What
    /// another one does not finish is finished here, as long as there is a tokio runtime; and so are actions that this
    /// process had begun when it ended.
    pub fn attach(&self, handle: &PipelineHandle) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            if let Some(records) = handle.shared_records() {
                self.log.group().attach(handle.name(), records);
            }
            return;
        };
        match handle.shared_records() {
            Some(records) => {
                if self.log.group().attach(handle.name(), records) {
                    runtime.spawn(finish::for_others(self.log.clone(), handle.clone()));
                }
            }
            None => drop(runtime.spawn(finish::own(self.log.clone(), handle.clone()))),
        }
    }

    /// What was wrong with the file when it was opened: a torn end, lines that cannot be read.
    pub fn faults(&self) -> &[String] {
        self.log.faults()
    }

    /// Whether the last recorded pause or resume of a pipeline was a pause. Pause it again after starting it.
    pub fn is_paused(&self, pipeline: &str) -> bool {
        self.log.is_paused(pipeline)
    }

    /// The decisions about the groups of a pipeline.
    pub fn marks(&self, pipeline: &str) -> GroupMarks {
        self.log.marks(pipeline)
    }

    /// Records an action; it is on disk when this returns. Make the change only after that.
    pub async fn record(&self, action: Action) -> Result<(), ActionError> {
        self.log.record(action).await
    }

    /// Like [`Self::record`], but blocking, for callers without a runtime. Writes to disk only.
    pub fn record_now(&self, action: &Action) -> Result<(), ActionError> {
        self.log.record_now(action)
    }

    /// The latest `limit` actions since a time, oldest first, without the ids of their letters.
    pub async fn list(&self, since: Option<Time>, limit: usize) -> Result<Vec<Action>, ActionError> {
        self.log.list(None, since, limit).await
    }

    /// The same, of one pipeline.
    pub async fn list_of(
        &self,
        pipeline: &str,
        since: Option<Time>,
        limit: usize,
    ) -> Result<Vec<Action>, ActionError> {
        self.log.list(Some(pipeline), since, limit).await
    }

    /// The replay jobs of a pipeline whose start this process has recorded.
    pub(crate) async fn recorded_replays(&self, pipeline: &str) -> Result<BTreeSet<String>, ActionError> {
        self.log.recorded_replays(pipeline).await
    }

    /// Discards those of `ids` that are open.
    pub async fn discard(
        &self,
        handle: &PipelineHandle,
        ids: &[u64],
        actor: &str,
        reason: &str,
    ) -> Result<Discarded, ActionError> {
        discards::discard(&self.log, handle, ids, actor, reason).await
    }

    /// Erases payload, headers, key, tenant and error texts of letters, in every copy that the engine owns. It cannot be
    /// undone.
    pub async fn erase(
        &self,
        handle: &PipelineHandle,
        ids: &[u64],
        actor: &str,
        reason: &str,
    ) -> Result<Erased, ActionError> {
        erasures::erase(&self.log, handle, ids, actor, reason).await
    }

    /// Deletes finished data now: records of letters that need not be kept, and copies of erased ones. The action log
    /// gets the number of deleted records.
    pub async fn compact(&self, handle: &PipelineHandle, actor: &str) -> Result<WipeProgress, ActionError> {
        erasures::compact(&self.log, handle, actor).await
    }

    /// The name of this process among those that share its letters.
    pub(super) fn process_name(&self) -> String {
        self.log.process_name()
    }

    /// Discards open letters that died at least `keep` ago and wait in no replay job, with one line in the action log for
    /// all of them.
    pub async fn expire(
        &self,
        handle: &PipelineHandle,
        keep: Duration,
        replays: &Replays,
    ) -> Result<Discarded, ActionError> {
        retention::expire(&self.log, handle, keep, replays).await
    }

    /// Undoes a discard: reopens those of its letters that no later discard has taken over.
    pub async fn undo(
        &self,
        handle: &PipelineHandle,
        id: &str,
        actor: &str,
    ) -> Result<Restored, ActionError> {
        discards::undo(&self.log, handle, id, actor).await
    }

    /// The pipeline of a discard.
    pub async fn pipeline_of(&self, id: &str) -> Result<String, ActionError> {
        discards::pipeline_of(&self.log, id).await
    }

    /// What an edit of these letters would do now. Changes nothing.
    pub async fn plan_edit(
        &self,
        handle: &PipelineHandle,
        ids: &[u64],
        wish: &EditWish,
    ) -> Result<EditPlan, ActionError> {
        edits::plan_edit(&self.log, handle, ids, wish).await
    }

    /// Edits those of `ids` that are open and match the wish.
    pub async fn edit(
        &self,
        handle: &PipelineHandle,
        ids: &[u64],
        wish: &EditWish,
        actor: &str,
    ) -> Result<EditPlan, ActionError> {
        edits::edit(&self.log, handle, ids, wish, actor).await
    }

    /// Undoes an edit: restores the previous message of the letters whose last edit it is and that were not replayed
    /// since. Any process that shares the letters can do it.
    pub async fn undo_edit(
        &self,
        handle: &PipelineHandle,
        id: &str,
        actor: &str,
    ) -> Result<EditUndone, ActionError> {
        edit_undo::undo_edit(&self.log, handle, id, actor).await
    }

    /// Imports letters; `from` describes their origin in words.
    #[doc(hidden)]
    pub async fn import(
        &self,
        handle: &PipelineHandle,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        actor: &str,
        from: &str,
    ) -> Result<Imported, ActionError> {
        imports::import(&self.log, handle, letters, dry_run, actor, from).await
    }

    /// The groups of a pipeline with their states, those with the most open letters first.
    pub async fn groups(&self, handle: &PipelineHandle) -> Result<Vec<GroupSummary>, ActionError> {
        groups::list(&self.log, handle).await
    }

    /// Like [`Self::groups`] without sample letters: cheaper, and enough for metrics.
    pub async fn group_states(&self, handle: &PipelineHandle) -> Result<Vec<GroupSummary>, ActionError> {
        groups::states(&self.log, handle).await
    }

    /// Records and applies a decision about a group; without `note`, the previous note stays. Returns the updated
    /// group.
    pub async fn mark_group(
        &self,
        handle: &PipelineHandle,
        group: GroupId,
        handling: Handling,
        note: Option<&str>,
        actor: &str,
    ) -> Result<GroupSummary, ActionError> {
        groups::mark(&self.log, handle, group, handling, note, actor).await
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actions").field("faults", &self.log.faults()).finish_non_exhaustive()
    }
}
