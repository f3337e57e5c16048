//! Groups of a pipeline's letters, read through its engine.

use redrive_core::GroupId;

use crate::engine::groups::list as groups;
use crate::engine::{GroupMark, GroupMarks, GroupSummary, LetterScan};
use crate::handle::{HandleError, PipelineHandle};

/// All groups with an open letter or a decision. `kept` are the decisions if the engine does not store them.
pub(crate) async fn list(
    handle: &PipelineHandle,
    kept: GroupMarks,
    samples: bool,
) -> Result<Vec<GroupSummary>, HandleError> {
    handle.ask_about_letters(move |asked| groups::list(asked.engine, &kept, samples, asked.now)).await
}

/// Up to `limit` open letters of a group, after the letter `after`.
pub(crate) async fn letters(
    handle: &PipelineHandle,
    group: GroupId,
    after: Option<u64>,
    limit: usize,
) -> Result<LetterScan, HandleError> {
    handle.ask_about_letters(move |asked| groups::letters(asked.engine, group, after, limit)).await
}

/// Stores a decision about a group, if the engine stores them.
pub(crate) async fn mark(handle: &PipelineHandle, mark: GroupMark) -> Result<(), HandleError> {
    handle.ask_about_letters(move |asked| asked.engine.mark_group(&mark)).await
}
