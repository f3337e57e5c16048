//! What happens to a message next.

use crate::{Reason, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Delivered: the message is finished.
    Complete,
    /// Try again, not before `due`.
    RetryAt(Retry),
    /// Parked for people to look at.
    DeadLetter(Reason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub due: Time,
    /// Whether the failed attempt counts; `false` makes this a deferral.
    pub counts: bool,
    /// Which delay step was chosen (0-based), where the schedule has tiers.
    pub tier: Option<u8>,
    /// What this retry takes from the retry budget: 1 for a counted retry, 0 for a deferral.
    pub spends: u32,
}
