//! What came back from one attempt, as far as a decision needs to know it.

use std::time::Duration;

use crate::Class;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Failed {
        class: Class,
        /// What the downstream asked for; a floor for the next delay.
        retry_after: Option<Duration>,
        /// Whether the effect may have happened although the attempt failed (a timeout after sending).
        ambiguous: bool,
    },
}

impl Outcome {
    pub const fn failed(class: Class) -> Self {
        Self::Failed { class, retry_after: None, ambiguous: false }
    }

    pub const fn class(&self) -> Option<Class> {
        match self {
            Self::Done => None,
            Self::Failed { class, .. } => Some(*class),
        }
    }
}
