//! What of an endpoint's breaker survives a restart.

use super::waits::Unit;
use crate::Time;

/// Cooldowns that are handed to the next process; of more, the latest.
pub const KEPT_MAX: usize = 1_000;

/// An endpoint or origin whose breaker is open, or that has sent a Retry-After.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooldown {
    /// Endpoint or origin.
    pub unit: Unit,
    /// Which one.
    pub number: u64,
    /// Until when the breaker is open; a probe may go from then on.
    pub open_until: Option<Time>,
    /// Failed probes so far.
    pub rounds: u32,
    /// The end of a Retry-After; zero if there is none.
    pub not_before: Time,
}
