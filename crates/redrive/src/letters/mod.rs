//! Dead letters for users: a language to select them, and selections made with it.

pub(crate) mod correlation;
pub(crate) mod decimal;
pub mod edit;
pub(crate) mod filter;

pub(crate) mod groups;
#[doc(hidden)]
pub mod redact;

pub(crate) mod select;

pub use filter::{Filter, FilterError};
pub use redact::Redaction;
pub use select::{Page, SelectError, Selection, letter_id};

pub use crate::engine::{
    Attempt, GroupFigures, GroupMark, GroupMarks, GroupState, GroupSummary, Handling, History, SourcePosition,
};
