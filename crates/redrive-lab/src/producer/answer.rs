//! The answers of a target to a batch.

use std::time::Duration;

/// The answer to a batch, which is accepted or rejected as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchAnswer {
    /// All messages are accepted; `duplicates` of them were already known.
    Accepted { duplicates: u64 },
    /// Too much is pending. The batch is offered again, not before `retry_after`.
    Refused { retry_after: Option<Duration> },
    /// No response; the batch may have been accepted. It is offered again.
    Unreachable { why: String },
    /// It will never be accepted like this; the run ends.
    Rejected { why: String },
}
