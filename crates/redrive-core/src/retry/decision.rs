//! The outcome of an attempt, and what happens to the message next.

use std::time::Duration;

use crate::{Class, Reason, Time};

/// The outcome of one attempt, as far as a decision needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It failed.
    Failed {
        /// The class of the failure.
        class: Class,
        /// The Retry-After of the downstream; a minimum for the next delay.
        retry_after: Option<Duration>,
        /// Whether the effect may have happened although the attempt failed (a timeout after sending).
        ambiguous: bool,
        /// The delay that the pipeline's own backoff chose, in place of the schedule's.
        delay: Option<Duration>,
    },
}

impl Outcome {
    /// A failure of this class without further details.
    pub const fn failed(class: Class) -> Self {
        Self::Failed { class, retry_after: None, ambiguous: false, delay: None }
    }

    /// The class of the failure, if it is one.
    pub const fn class(&self) -> Option<Class> {
        match self {
            Self::Done => None,
            Self::Failed { class, .. } => Some(*class),
        }
    }
}

/// What happens to a message next. Exhaustive on purpose: a new decision must be a compile error wherever decisions are
/// carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Delivered: the message is finished.
    Complete,
    /// Try again, not before `due`.
    RetryAt(Retry),
    /// Move to the dead letters.
    DeadLetter(Reason),
}

/// When a message is retried, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Not before this time.
    pub due: Time,
    /// Whether the failed attempt counts; `false` means a deferral.
    pub counts: bool,
    /// The delay step (0-based), if the schedule has tiers.
    pub tier: Option<u8>,
    /// The cost in retry-budget tokens: 1 for a counted retry, 0 for a deferral.
    pub spends: u32,
}
