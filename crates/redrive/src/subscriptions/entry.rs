//! The table as keys and values, as stored in the log on disk and in the compacted topic. The last value of a key
//! counts.

use serde_json::{Value, json};

use super::guard::Stopped;
use super::record::{EndpointId, Record};
use super::sketch::Sketch;
use super::stored::Stored;

use super::unannounced::Announcement;

const ENDPOINT: &str = "endpoint/";
const STORED: &str = "stored/";
const SEEN: &str = "seen/";
const UNANNOUNCED: &str = "unannounced/";

/// One key with its new value.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    /// The value; `None` if the key was removed.
    pub value: Option<String>,
}

/// The meaning of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    Endpoint(EndpointId, Option<Record>),
    Stored(String, Option<Box<Stored>>),
    Guard(Option<Stopped>),
    /// The endpoints that took a push in a generation, as a sketch from which only their number can be estimated.
    Seen(u64, Option<Sketch>),
    /// A purge that still has to be announced to the owner's system; `None` once it was announced.
    Unannounced(EndpointId, Option<Announcement>),
    /// Identifies the key of the endpoint hashes.
    HashKey(String),
}

impl Fact {
    pub(super) const GUARD: &str = "guard";
    pub(super) const HASH_KEY: &str = "hash-key";

    pub(super) fn endpoint_key(id: EndpointId) -> String {
        format!("{ENDPOINT}{}", id.digits())
    }

    pub(super) fn unannounced_key(id: EndpointId) -> String {
        format!("{UNANNOUNCED}{}", id.digits())
    }

    pub(super) fn stored_key(id: &str) -> String {
        format!("{STORED}{id}")
    }

    pub(super) fn entry(&self) -> Entry {
        let (key, value) = match self {
            Self::Endpoint(id, record) => (Self::endpoint_key(*id), record.as_ref().map(Record::to_json)),
            Self::Stored(id, stored) => (Self::stored_key(id), stored.as_ref().map(|it| it.to_json())),
            Self::Guard(stopped) => (Self::GUARD.to_owned(), stopped.as_ref().map(Stopped::to_json)),
            Self::Seen(number, sketch) => {
                let value = sketch.as_ref().map(|sketch| json!({ "sketch": sketch.to_text() }));
                (format!("{SEEN}{number}"), value)
            }
            Self::Unannounced(id, waits) => {
                (Self::unannounced_key(*id), waits.as_ref().map(Announcement::to_json))
            }
            Self::HashKey(fingerprint) => {
                (Self::HASH_KEY.to_owned(), Some(json!({ "fingerprint": fingerprint })))
            }
        };
        Entry { key, value: value.map(|value| value.to_string()) }
    }

    /// Returns `None` for entries of a later version and for damaged ones.
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
            let waits = value.map(|value| Announcement::from_json(&value).ok_or(())).transpose().ok()?;
            return Some(Self::Unannounced(digits.parse().ok()?, waits));
        }
        match (entry.key.as_str(), value) {
            (Self::HASH_KEY, Some(value)) => {
                Some(Self::HashKey(value.get("fingerprint")?.as_str()?.to_owned()))
            }
            (Self::GUARD, None) => Some(Self::Guard(None)),
            (Self::GUARD, Some(value)) => Some(Self::Guard(Some(Stopped::from_json(&value)?))),
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
    use redrive_core::Time;

    use super::super::record::{Cause, SubscriptionState};
    use super::super::stored::Registered;
    use super::*;

    #[test]
    fn every_fact_reads_back_and_what_is_unknown_is_left_out() {
        let id = EndpointId::from_number(7);
        let at = Time::from_millis(5);
        let record = Record::new(SubscriptionState::Purged, Cause::Gone, "Gone", at).status(Some(410));
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
            Fact::Unannounced(id, Some(Announcement { at, ids: None })),
            Fact::Unannounced(id, Some(Announcement { at, ids: Some(vec!["user-1/phone".into()]) })),
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
