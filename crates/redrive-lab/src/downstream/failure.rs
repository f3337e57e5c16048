//! The ways a call of the downstream fails.

use std::time::Duration;

use redrive::Failure;

use super::{LedgerFault, OutageStyle};

/// Why a call failed. Each kind has an HTTP status, and a failure class for calls in process.
#[derive(Debug, thiserror::Error)]
pub enum StubFailure {
    #[error("503 not ready for this order yet (attempt {attempt})")]
    Transient { attempt: u32, retry_after: Option<Duration> },
    #[error("422 field `amount` must not be negative")]
    Poison,
    #[error("{}", outage_text(*style))]
    Outage { style: OutageStyle, retry_after: Option<Duration> },
    #[error("503 the ledger did not record the order: {0}")]
    Ledger(#[source] LedgerFault),
}

fn outage_text(style: OutageStyle) -> &'static str {
    match style {
        OutageStyle::Unavailable => "503 service unavailable",
        OutageStyle::Refuse => "connection refused",
        OutageStyle::Hang => "no answer",
    }
}

/// The kinds of failures, as named in counters and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    Transient,
    Poison,
    Outage,
    Ledger,
}

impl FailureKind {
    pub const ALL: [Self; 4] = [Self::Transient, Self::Poison, Self::Outage, Self::Ledger];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Poison => "poison",
            Self::Outage => "outage",
            Self::Ledger => "ledger",
        }
    }
}

impl StubFailure {
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Transient { .. } => FailureKind::Transient,
            Self::Poison => FailureKind::Poison,
            Self::Outage { .. } => FailureKind::Outage,
            Self::Ledger(_) => FailureKind::Ledger,
        }
    }

    /// The HTTP status of the response.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Poison => 422,
            Self::Transient { .. } | Self::Outage { .. } | Self::Ledger(_) => 503,
        }
    }

    /// The `redrive-reason` header of the response: a short word that is kept with the letter.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Transient { .. } => "not_ready",
            Self::Poison => "negative_amount",
            Self::Outage { .. } => "outage",
            Self::Ledger(_) => "ledger",
        }
    }

    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transient { retry_after, .. } | Self::Outage { retry_after, .. } => *retry_after,
            Self::Poison | Self::Ledger(_) => None,
        }
    }

    /// The failure that a handler in the same process returns: poison is permanent, everything else transient.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Poison => Failure::permanent(self),
            // The order may have been recorded; the retry finds out.
            Self::Ledger(_) => Failure::transient(self).ambiguous(),
            Self::Transient { .. } | Self::Outage { .. } => Failure::transient(self),
        }
    }
}
