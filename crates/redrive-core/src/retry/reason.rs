//! Why a message became a dead letter.

use std::fmt;

/// Why a message became a dead letter. Exhaustive on purpose, like [`Class`](crate::Class): a new reason must be a
/// compile error wherever code matches on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The failure was classified as permanent.
    Permanent,
    /// The receiver is gone for good.
    Gone,
    /// All counted attempts are used up.
    MaxRetries,
    /// The next attempt would start at or after the deadline.
    TtlExceeded,
    /// It was held without using up attempts for as long as `hold_max` allows.
    HoldExpired,
    /// The retry budget is empty and the policy says dead-letter.
    BudgetExhausted,
    /// It crashed its worker too often.
    PoisonPill,
    /// An earlier message of its key is dead, and the policy says `block_key`.
    KeyBlocked,
    /// The stored bytes are damaged; the letter holds the readable rest.
    Corrupt,
    /// It was cancelled while waiting.
    Cancelled,
    /// It died in another system, and its dead letter was imported.
    Imported,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Permanent,
        Self::Gone,
        Self::MaxRetries,
        Self::TtlExceeded,
        Self::HoldExpired,
        Self::BudgetExhausted,
        Self::PoisonPill,
        Self::KeyBlocked,
        Self::Corrupt,
        Self::Cancelled,
        Self::Imported,
    ];

    /// The name in metrics, filters and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Gone => "gone",
            Self::MaxRetries => "max_retries",
            Self::TtlExceeded => "ttl_exceeded",
            Self::HoldExpired => "hold_expired",
            Self::BudgetExhausted => "budget_exhausted",
            Self::PoisonPill => "poison_pill",
            Self::KeyBlocked => "key_blocked",
            Self::Corrupt => "corrupt",
            Self::Cancelled => "cancelled",
            Self::Imported => "imported",
        }
    }

    /// The byte that stands for this reason on disk. Never renumber.
    pub const fn code(self) -> u8 {
        match self {
            Self::Permanent => 1,
            Self::Gone => 2,
            Self::MaxRetries => 3,
            Self::TtlExceeded => 4,
            Self::HoldExpired => 5,
            Self::BudgetExhausted => 6,
            Self::PoisonPill => 7,
            Self::KeyBlocked => 8,
            Self::Corrupt => 9,
            Self::Cancelled => 10,
            Self::Imported => 11,
        }
    }

    /// The reason with this stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// The reason of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_keeps_its_name_and_its_code() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
            assert_eq!(reason.to_string(), reason.name());
        }
        assert_eq!(Reason::from_code(0), None);
    }
}
