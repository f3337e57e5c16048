//! What is done, and how that becomes durable.
//!
//! - `done`: what is done of a partition, and how much of that is durable
//! - `tickets`: batches until they are durable; `commits`: when an offset is committed, and the note beside it
//! - `progress`: that note, and bitmaps for what does not fit into it; `committer`: the thread that waits for answers

pub(crate) mod commits;
pub(crate) mod committer;
pub(crate) mod done;
pub(crate) mod progress;
pub(crate) mod tickets;
