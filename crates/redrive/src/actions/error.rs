//! Errors of actions.

use redrive_core::GroupId;

use crate::handle::HandleError;

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActionError {
    /// The log of actions cannot be written.
    #[error("the action could not be recorded, so nothing was done: {0}")]
    Storage(#[from] std::io::Error),
    /// No discard has this name.
    #[error("there is no discard `{0}`")]
    NotFound(String),
    /// Another process made the discard.
    #[error(
        "discard `{id}` is not of this process, whose discards are called `{ours}…`, and the records of the group do not have \
         it, or not with its letters; ask the process that made it"
    )]
    Elsewhere {
        /// Name of the discard.
        id: String,
        /// The prefix of this process's discard names.
        ours: String,
    },
    /// The discard or edit belongs to another pipeline.
    #[error("`{id}` is of pipeline `{pipeline}`")]
    OtherPipeline {
        /// Name of the discard or edit.
        id: String,
        /// The pipeline it belongs to.
        pipeline: String,
    },
    /// No letter is in this group.
    #[error("pipeline `{pipeline}` has no group `{group}`")]
    NoGroup {
        /// The group.
        group: GroupId,
        /// The pipeline.
        pipeline: String,
    },
    /// No letter has this edit.
    #[error("pipeline `{pipeline}` has no edit `{id}`")]
    NoEdit {
        /// Name of the edit.
        id: String,
        /// The pipeline.
        pipeline: String,
    },
    /// The request does not say whether the edited messages keep their ids.
    #[error(
        "{ambiguous} of {letters} letters have an attempt whose end is unknown: the receiver may have applied the message, \
         and one that remembers ids will then ignore the edited one"
    )]
    Ambiguous {
        /// Letters with an attempt whose end is unknown.
        ambiguous: u64,
        /// Letters that would be edited.
        letters: u64,
    },
    /// The stored action cannot be read.
    #[error("the record of `{0}` is damaged")]
    Damaged(String),
    /// The pipeline did not answer.
    #[error(transparent)]
    Handle(#[from] HandleError),
}
