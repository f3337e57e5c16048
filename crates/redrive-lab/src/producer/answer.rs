//! What a target may say to an offered batch.

use std::time::Duration;

/// What became of an offered batch, which is accepted or not as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchAnswer {
    /// All of them are taken; so many of them were known already.
    Accepted { duplicates: u64 },
    /// Not now: too much is waiting. The batch is offered again, not before `retry_after`.
    Refused { retry_after: Option<Duration> },
    /// No answer; whether it was taken is not known. The batch is offered again.
    Unreachable { why: String },
    /// It will never be taken like this: the run ends.
    Rejected { why: String },
}
