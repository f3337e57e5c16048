//! Answers of receivers, and their meaning.
//!
//! - `answer`, `retry_after`, `text`: an answer, bounded and sanitized
//! - `trouble`: why there was none
//! - [`classes`]: the class table; [`judge`]: the resulting failure

pub(crate) mod answer;
pub(crate) mod retry_after;
pub(crate) mod text;
pub(crate) mod trouble;

pub mod classes;
pub mod judge;
