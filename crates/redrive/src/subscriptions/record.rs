//! The record of one endpoint that is not active.

use std::fmt;
use std::str::FromStr;

use redrive_core::Time;
use serde_json::{Value, json};

const PREFIX: &str = "hmac-sha256:";
const DIGITS: usize = 16;
/// Longest stored reason in bytes; the rest is cut off.
const REASON_BYTES_MAX: usize = 120;

/// Identifies an endpoint by its keyed hash. The endpoint itself is a secret and not stored here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(u64);

impl EndpointId {
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    pub const fn number(self) -> u64 {
        self.0
    }

    /// Sixteen hexadecimal digits.
    pub fn digits(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:016x}", self.0)
    }
}

impl FromStr for EndpointId {
    type Err = NotAHash;

    /// Parses a hash with or without `hmac-sha256:`.
    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digits = text.strip_prefix(PREFIX).unwrap_or(text);
        let are_digits = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        are_digits.then(|| u64::from_str_radix(digits, 16).ok()).flatten().map(Self).ok_or(NotAHash)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an endpoint hash is {PREFIX} and sixteen hexadecimal digits")]
pub struct NotAHash;

/// The state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubscriptionState {
    Active,
    /// Still called, but watched.
    Flagged,
    /// No longer called.
    Purged,
}

impl SubscriptionState {
    pub const ALL: [Self; 3] = [Self::Active, Self::Flagged, Self::Purged];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Flagged => "flagged",
            Self::Purged => "purged",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.name() == name)
    }
}

/// Why an endpoint is flagged or purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The push service answered that it is gone.
    Gone,
    /// The push service refused this endpoint, without saying that it is gone.
    Refused,
    /// It was requested by hand.
    Operator,
    /// The latest record was lost in a damaged log.
    Damage,
}

impl Cause {
    const ALL: [Self; 4] = [Self::Gone, Self::Refused, Self::Operator, Self::Damage];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Operator => "operator",
            Self::Damage => "damage",
        }
    }
}

/// A flag or a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// [`SubscriptionState::Flagged`] or [`SubscriptionState::Purged`]; an active endpoint has no record.
    pub standing: SubscriptionState,
    pub cause: Cause,
    /// The reason given by the push service or the operator.
    pub reason: String,
    pub status: Option<u16>,
    /// When it was flagged or purged.
    pub at: Time,
    /// The operator, if it was requested by hand.
    pub actor: Option<String>,
    /// The flag that it replaced, if an operator requested it; an undo restores that.
    pub before: Option<Box<Self>>,
}

impl Record {
    pub fn new(standing: SubscriptionState, cause: Cause, reason: &str, at: Time) -> Self {
        let end = (0..=REASON_BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
        let reason = reason[..end.min(reason.len())].to_owned();
        Self { standing, cause, reason, status: None, at, actor: None, before: None }
    }

    #[must_use]
    pub fn status(self, status: Option<u16>) -> Self {
        Self { status, ..self }
    }

    #[must_use]
    pub fn actor(self, actor: &str) -> Self {
        Self { actor: Some(actor.to_owned()), ..self }
    }

    /// Replaces an earlier record, which an undo restores. Only one earlier record is kept.
    #[must_use]
    pub fn instead_of(self, known: Option<&Self>) -> Self {
        let before = known.map(|known| Box::new(Self { before: None, ..known.clone() }));
        Self { before, ..self }
    }

    /// The record to use if a later one may be lost: the endpoint must be checked again.
    #[must_use]
    pub fn doubted(&self) -> Self {
        if self.cause == Cause::Damage {
            return self.clone();
        }
        let reason = format!("what came after this is lost: {}, {}", self.standing.name(), self.reason);
        Self::new(SubscriptionState::Flagged, Cause::Damage, &reason, self.at).status(self.status)
    }

    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "state": self.standing.name(), "cause": self.cause.name(), "reason": self.reason,
            "at_ms": self.at.as_millis(),
        });
        if let Some(status) = self.status {
            value["status"] = status.into();
        }
        if let Some(actor) = &self.actor {
            value["actor"] = actor.as_str().into();
        }
        if let Some(before) = &self.before {
            value["before"] = before.to_json();
        }
        value
    }

    /// Parses the JSON of a record; `None` if it is not valid.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let standing = text("state")
            .and_then(SubscriptionState::from_name)
            .filter(|it| *it != SubscriptionState::Active)?;
        let cause = text("cause").and_then(|name| Cause::ALL.into_iter().find(|it| it.name() == name))?;
        let at = Time::from_millis(value.get("at_ms").and_then(Value::as_u64)?);
        let status = value.get("status").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let record = Self::new(standing, cause, text("reason").unwrap_or_default(), at).status(status);
        let before = value.get("before").and_then(Self::from_json).map(Box::new);
        Some(Self { actor: text("actor").map(str::to_owned), before, ..record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_with_and_without_its_prefix() {
        let id = EndpointId::from_number(0x5bdc_c146_bf60_754e);
        assert_eq!(id.to_string(), "hmac-sha256:5bdcc146bf60754e");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("5bdcc146bf60754e".parse(), Ok(id));
        for wrong in ["", "5bdcc146", "hmac-sha256:", "5bdcc146bf60754x", "+bdcc146bf60754e"] {
            assert_eq!(wrong.parse::<EndpointId>(), Err(NotAHash), "{wrong}");
        }
    }

    #[test]
    fn a_record_reads_back_and_a_long_reason_is_cut() {
        let reason = "ü".repeat(200);
        let record = Record::new(SubscriptionState::Purged, Cause::Gone, &reason, Time::from_millis(7));
        let record = record.status(Some(410)).actor("ops");
        assert_eq!(record.reason.len(), REASON_BYTES_MAX);
        let over =
            Record::new(SubscriptionState::Purged, Cause::Operator, "", Time::ZERO).instead_of(Some(&record));
        assert_eq!(Record::from_json(&over.to_json()), Some(over.clone()));
        assert_eq!(Record::from_json(&record.to_json()), Some(record.clone()));
        let twice = record.instead_of(Some(&over));
        assert_eq!(twice.before.unwrap().before, None, "one state before is enough");
        let bare = Record::new(SubscriptionState::Flagged, Cause::Operator, "", Time::ZERO);
        assert_eq!(Record::from_json(&bare.to_json()), Some(bare));
        assert_eq!(Record::from_json(&json!({"state": "active", "cause": "gone", "at_ms": 1})), None);
        assert_eq!(Record::from_json(&json!({})), None);
    }
}
