//! The table as keys and values: what the log on disk and the compacted topic hold. The last value of a key counts.

use redrive_core::Time;
use serde_json::{Value, json};

use super::guard::Stopped;
use super::record::{EndpointId, Record};
use super::stored::Stored;

const ENDPOINT: &str = "endpoint/";
const STORED: &str = "stored/";
const GUARD: &str = "guard";
const ACTIVE: &str = "active";

/// One key with its new value.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    /// `None`: there is none any more.
    pub value: Option<String>,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    Endpoint(EndpointId, Option<Record>),
    Stored(String, Option<Box<Stored>>),
    Guard(Option<Stopped>),
    /// How many endpoints were active, and when that was estimated.
    Active(u64, Time),
}

impl Fact {
    pub(super) fn entry(&self) -> Entry {
        let (key, value) = match self {
            Self::Endpoint(id, record) => {
                (format!("{ENDPOINT}{}", id.digits()), record.as_ref().map(Record::to_json))
            }
            Self::Stored(id, stored) => (format!("{STORED}{id}"), stored.as_ref().map(|it| it.to_json())),
            Self::Guard(stopped) => (GUARD.to_owned(), stopped.as_ref().map(Stopped::to_json)),
            Self::Active(count, at) => {
                (ACTIVE.to_owned(), Some(json!({ "count": count, "at_ms": at.as_millis() })))
            }
        };
        Entry { key, value: value.map(|value| value.to_string()) }
    }

    /// `None` for what a later version may have written, and for what is damaged.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let value: Option<Value> = entry.value.as_deref().map(serde_json::from_str).transpose().ok()?;
        if let Some(digits) = entry.key.strip_prefix(ENDPOINT) {
            let record = value.map(|value| Record::from_json(&value).ok_or(())).transpose().ok()?;
            return Some(Self::Endpoint(digits.parse().ok()?, record));
        }
        if let Some(id) = entry.key.strip_prefix(STORED) {
            let stored = value.map(|value| Stored::from_json(&value).map(Box::new).ok_or(()));
            return Some(Self::Stored(id.to_owned(), stored.transpose().ok()?));
        }
        match (entry.key.as_str(), value) {
            (GUARD, None) => Some(Self::Guard(None)),
            (GUARD, Some(value)) => Some(Self::Guard(Some(Stopped::from_json(&value)?))),
            (ACTIVE, Some(value)) => {
                let number = |name: &str| value.get(name).and_then(Value::as_u64);
                Some(Self::Active(number("count")?, Time::from_millis(number("at_ms")?)))
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Cause, Standing};
    use super::super::stored::Registered;
    use super::*;

    #[test]
    fn every_fact_reads_back_and_what_is_unknown_is_left_out() {
        let id = EndpointId::from_number(7);
        let at = Time::from_millis(5);
        let record = Record::new(Standing::Purged, Cause::Gone, "Gone", at).status(Some(410));
        let registered = Registered { endpoint: id, key: None };
        let stored = Box::new(Stored::new(registered, at, &json!({"token": "t"})));
        for fact in [
            Fact::Endpoint(id, Some(record)),
            Fact::Endpoint(id, None),
            Fact::Stored("user-1/phone".into(), Some(stored)),
            Fact::Stored("user-1/phone".into(), None),
            Fact::Guard(Some(Stopped { at, purged: 3, active: 100 })),
            Fact::Guard(None),
            Fact::Active(18_204, at),
        ] {
            assert_eq!(Fact::of(&fact.entry()), Some(fact));
        }
        for (key, value) in [("other", "{}"), ("endpoint/7", "{}"), ("guard", "[]"), ("active", "nonsense")] {
            assert_eq!(Fact::of(&Entry { key: key.into(), value: Some(value.into()) }), None, "{key}");
        }
    }
}
