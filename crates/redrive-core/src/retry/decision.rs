//! What came back from an attempt, and what happens to the message next.

use std::time::Duration;

use crate::{Class, Reason, Time};

/// What came back from one attempt, as far as a decision needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It failed.
    Failed {
        /// The class of the failure.
        class: Class,
        /// What the downstream asked for; a floor for the next delay.
        retry_after: Option<Duration>,
        /// Whether the effect may have happened although the attempt failed (a timeout after sending).
        ambiguous: bool,
        /// What the pipeline's own backoff chose in place of the schedule's delay.
        delay: Option<Duration>,
    },
}

impl Outcome {
    /// A failure of this class of which nothing else is known.
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

/// What happens to a message next. Exhaustive on purpose: a new decision must be a compile error wherever one is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Delivered: the message is finished.
    Complete,
    /// Try again, not before `due`.
    RetryAt(Retry),
    /// Parked for people to look at.
    DeadLetter(Reason),
}

/// When a message is tried again, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Not before this time.
    pub due: Time,
    /// Whether the failed attempt counts; `false` makes this a deferral.
    pub counts: bool,
    /// Which delay step was chosen (0-based), where the schedule has tiers.
    pub tier: Option<u8>,
    /// What this retry takes from the retry budget: 1 for a counted retry, 0 for a deferral.
    pub spends: u32,
}
