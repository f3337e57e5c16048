//! The state of the pipeline that a decision sees: plain values, read at one moment.
//!
//! The parts that maintain these values (breaker, ramp, token bucket, suspects) are in [`crate::protection`]; a
//! decision sees only these views.

use std::time::Duration;

/// How the sink is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Calls succeed.
    Healthy,
    /// Too many recent failures: attempts may still be made, but no message is dead-lettered for exhaustion.
    Unhealthy {
        /// When another call makes sense.
        retry_in: Duration,
    },
    /// Gated: no messages are taken for the sink.
    Gated {
        /// The cause.
        by: Gate,
        /// When another call makes sense.
        retry_in: Duration,
    },
}

/// What gates a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The breaker is open.
    Breaker,
    /// Our own credential was refused; only a person can repair that.
    Credential,
}

impl Health {
    /// Whether calls succeed.
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::Healthy)
    }

    /// When another call makes sense, as far as the breaker knows; otherwise zero.
    pub const fn retry_in(self) -> Duration {
        match self {
            Self::Healthy => Duration::ZERO,
            Self::Unhealthy { retry_in } | Self::Gated { retry_in, .. } => retry_in,
        }
    }
}

/// What is left of the pipeline's retry budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// There is no budget.
    Unlimited,
    /// There is one.
    Tokens {
        /// Retries that may be made now.
        remaining: u32,
        /// When the next token comes.
        next_in: Duration,
    },
}

impl Budget {
    /// Whether no retry may be made now.
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::Tokens { remaining: 0, .. })
    }

    /// When the next retry may be made.
    pub const fn next_in(self) -> Duration {
        match self {
            Self::Unlimited => Duration::ZERO,
            Self::Tokens { next_in, .. } => next_in,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(3);

    #[test]
    fn a_gated_sink_is_not_healthy_whatever_gates_it() {
        assert!(Health::Healthy.is_healthy());
        assert_eq!(Health::Healthy.retry_in(), Duration::ZERO);
        for health in [
            Health::Unhealthy { retry_in: SOON },
            Health::Gated { by: Gate::Breaker, retry_in: SOON },
            Health::Gated { by: Gate::Credential, retry_in: SOON },
        ] {
            assert!(!health.is_healthy());
            assert_eq!(health.retry_in(), SOON);
        }
    }

    #[test]
    fn a_budget_is_empty_only_without_a_token() {
        assert!(!Budget::Unlimited.is_empty());
        assert!(!Budget::Tokens { remaining: 1, next_in: SOON }.is_empty());
        assert!(Budget::Tokens { remaining: 0, next_in: SOON }.is_empty());
        assert_eq!(Budget::Unlimited.next_in(), Duration::ZERO);
        assert_eq!(Budget::Tokens { remaining: 0, next_in: SOON }.next_in(), SOON);
    }
}
