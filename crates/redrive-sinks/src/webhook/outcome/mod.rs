//! What came back from a receiver, and what it means.
//!
//! - `answer`, `retry_after`, `text`: an answer, bounded and cleaned
//! - `trouble`: why there was none
//! - [`classes`]: the table of what each of them means; [`judge`]: the failure that follows

pub(crate) mod answer;
pub(crate) mod retry_after;
pub(crate) mod text;
pub(crate) mod trouble;

pub mod classes;
pub mod judge;
