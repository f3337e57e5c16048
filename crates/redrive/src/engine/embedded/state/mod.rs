//! The state that follows from the journal: ready messages, waiting messages, letters.

pub mod book;
mod fold;
pub mod groups;
pub mod letters;
pub mod lines;
pub mod live;
pub mod ready;
