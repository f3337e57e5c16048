//! What follows from the journal: which messages are ready, which wait and for what, which letters there are.

pub mod book;
mod fold;
pub mod groups;
pub mod letters;
pub mod lines;
pub mod live;
pub mod ready;
