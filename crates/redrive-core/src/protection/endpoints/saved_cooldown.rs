//! The part of an endpoint's breaker that survives a restart.

use super::waits::Unit;
use crate::Time;

/// The maximum number of cooldowns handed to the next process; the latest are kept.
pub const KEPT_MAX: usize = 1_000;

/// An endpoint or origin whose breaker is open, or that has sent a Retry-After.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooldown {
    /// Endpoint or origin.
    pub unit: Unit,
    /// Its number.
    pub number: u64,
    /// When the breaker's cooldown ends; a probe may go from then on.
    pub open_until: Option<Time>,
    /// Failed probes so far.
    pub rounds: u32,
    /// The end of a Retry-After; zero if there is none.
    pub not_before: Time,
}
