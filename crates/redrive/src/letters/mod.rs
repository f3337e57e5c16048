//! Dead letters from outside: a language to say which, and selections made with it.

pub(crate) mod correlation;
#[doc(hidden)]
pub mod decimal;
pub mod edit;
mod filter;
pub(crate) mod filter_match;
mod filter_parse;

pub(crate) mod groups;
pub mod redact;

#[doc(hidden)]
pub mod select;

#[doc(hidden)]
pub use correlation::correlation_id;
pub use filter::{Filter, FilterError};
#[doc(hidden)]
pub use filter_match::status_of;
pub use redact::Redaction;
pub use select::{Page, SelectError, Selection, letter_id};

pub use crate::engine::{
    Attempt, GroupFigures, GroupMark, GroupMarks, GroupState, GroupSummary, Handling, History, SourcePlace,
};
