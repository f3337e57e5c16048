//! The table as keys and values: what the log on disk and the compacted topic hold. The last value of a key counts.

use redrive_core::Time;
use serde_json::{Value, json};

use super::guard::Stopped;
use super::record::{EndpointId, Record};
use super::sketch::Sketch;
use super::stored::Stored;

const ENDPOINT: &str = "endpoint/";
const STORED: &str = "stored/";
const GUARD: &str = "guard";
const SEEN: &str = "seen/";
const UNANNOUNCED: &str = "unannounced/";
const HASH_KEY: &str = "hash-key";

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
    /// The endpoints that took a push in a generation, of which only the number is known.
    Seen(u64, Option<Sketch>),
    /// The owner's system has still to hear of the purge at this time; `None`: it has heard of it.
    Unannounced(EndpointId, Option<Time>),
    /// Identifies the key that the hashes were made with.
    HashKey(String),
}

impl Fact {
    pub(super) fn entry(&self) -> Entry {
        let (key, value) = match self {
            Self::Endpoint(id, record) => {
                (format!("{ENDPOINT}{}", id.digits()), record.as_ref().map(Record::to_json))
            }
            Self::Stored(id, stored) => (format!("{STORED}{id}"), stored.as_ref().map(|it| it.to_json())),
            Self::Guard(stopped) => (GUARD.to_owned(), stopped.as_ref().map(Stopped::to_json)),
            Self::Seen(number, sketch) => {
                let value = sketch.as_ref().map(|sketch| json!({ "sketch": sketch.to_text() }));
                (format!("{SEEN}{number}"), value)
            }
            Self::Unannounced(id, at) => {
                let value = at.map(|at| json!({ "at_ms": at.as_millis() }));
                (format!("{UNANNOUNCED}{}", id.digits()), value)
            }
            Self::HashKey(fingerprint) => (HASH_KEY.to_owned(), Some(json!({ "fingerprint": fingerprint }))),
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
        if let Some(number) = entry.key.strip_prefix(SEEN) {
            let sketch = match value {
                Some(value) => Some(Sketch::from_text(value.get("sketch")?.as_str()?)?),
                None => None,
            };
            return Some(Self::Seen(number.parse().ok()?, sketch));
        }
        if let Some(digits) = entry.key.strip_prefix(UNANNOUNCED) {
            let at = match value {
                Some(value) => Some(Time::from_millis(value.get("at_ms")?.as_u64()?)),
                None => None,
            };
            return Some(Self::Unannounced(digits.parse().ok()?, at));
        }
        match (entry.key.as_str(), value) {
            (HASH_KEY, Some(value)) => Some(Self::HashKey(value.get("fingerprint")?.as_str()?.to_owned())),
            (GUARD, None) => Some(Self::Guard(None)),
            (GUARD, Some(value)) => Some(Self::Guard(Some(Stopped::from_json(&value)?))),
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
        let mut sketch = Sketch::default();
        sketch.add(id);
        for fact in [
            Fact::Endpoint(id, Some(record)),
            Fact::Endpoint(id, None),
            Fact::Stored("user-1/phone".into(), Some(stored)),
            Fact::Stored("user-1/phone".into(), None),
            Fact::Guard(Some(Stopped { at, purged: 3, active: 100 })),
            Fact::Guard(None),
            Fact::Seen(2_810, Some(sketch)),
            Fact::Seen(2_808, None),
            Fact::Unannounced(id, Some(at)),
            Fact::Unannounced(id, None),
            Fact::HashKey("09ff3c51a7d2e840".into()),
        ] {
            assert_eq!(Fact::of(&fact.entry()), Some(fact));
        }
        for (key, value) in [
            ("other", "{}"),
            ("endpoint/7", "{}"),
            ("guard", "[]"),
            ("seen/1", "{}"),
            ("seen/x", "nonsense"),
            ("hash-key", "{}"),
        ] {
            assert_eq!(Fact::of(&Entry { key: key.into(), value: Some(value.into()) }), None, "{key}");
        }
    }
}
