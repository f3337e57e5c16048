//! What is done, and how that becomes durable: `tickets` of batches, `progress` beside an offset, the `committer` thread.

pub(crate) mod committer;
pub(crate) mod progress;
pub(crate) mod tickets;
