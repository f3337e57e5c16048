//! A change of a message: values in its JSON payload, the whole payload, headers, and its id.

use std::collections::BTreeSet;

use bytes::Bytes;
use redrive_core::Message;
use redrive_core::message::MessageError;
use redrive_core::text::connection_header::is_connection_header;

use super::json_text::{JsonFault, JsonText, Pointer};
use crate::engine::Letter;

/// The changes, applied in this order: the whole payload, values to set, values to remove, headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageChange {
    /// The new payload.
    pub payload: Option<Bytes>,
    /// Values to set in a JSON payload.
    pub set: Vec<(Pointer, JsonText)>,
    /// Values to remove from a JSON payload.
    pub unset: Vec<Pointer>,
    /// Headers to set.
    pub set_headers: Vec<(String, String)>,
    /// Headers to remove.
    pub unset_headers: Vec<String>,
}

/// Whether an edited message keeps its id if the receiver may have seen it, because an attempt ended without an
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MessageIds {
    /// Undecided: such letters are not edited.
    #[default]
    Undecided,
    /// Such letters keep their id; a receiver that applied the message and remembers ids will ignore the edited one.
    Same,
    /// Such letters get a new id; a receiver that applied the original applies the edited one too.
    New,
}

/// Why a message could not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditFault {
    /// The payload cannot be changed this way.
    #[error(transparent)]
    Json(#[from] JsonFault),
    /// The changed message would not be valid.
    #[error("the changed message is not allowed: {0}")]
    Message(#[from] MessageError),
}

impl MessageChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it can change only JSON payloads.
    pub fn needs_json(&self) -> bool {
        self.payload.is_none() && !(self.set.is_empty() && self.unset.is_empty())
    }

    /// The first value or header that is changed twice, so that the result would depend on the order.
    pub fn changed_twice(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        let fields = self.fields().into_iter();
        let folded = fields.map(|field| match field.strip_prefix("header ") {
            Some(name) => format!("header {}", name.to_ascii_lowercase()),
            None => field,
        });
        folded.into_iter().find(|field| !seen.insert(field.clone()))
    }

    /// Why a header to set could never be sent: its name or value is not valid in HTTP, or it belongs to the
    /// connection.
    pub fn header_fault(&self) -> Option<String> {
        self.set_headers
            .iter()
            .find_map(|(name, value)| header_fault(name, value).map(|why| format!("header {name:?}: {why}")))
    }

    /// The changed fields, for the action log: pointers, headers, `payload`. Never a value.
    pub fn fields(&self) -> Vec<String> {
        let whole = self.payload.iter().map(|_| "payload".to_owned());
        let pointers = self.set.iter().map(|(pointer, _)| pointer).chain(&self.unset).map(Pointer::to_string);
        let headers = self.set_headers.iter().map(|(name, _)| name).chain(&self.unset_headers);
        whole.chain(pointers).chain(headers.map(|name| format!("header {name}"))).collect()
    }

    /// The changed message, with the new id if one is given; `None` if nothing would change.
    pub fn apply(&self, message: &Message, id: Option<&str>) -> Result<Option<Message>, EditFault> {
        let payload = self.new_payload(message)?;
        let mut builder = Message::builder(id.unwrap_or(message.id())).created(message.created());
        if let Some(key) = message.key() {
            builder = builder.key(key.to_vec());
        }
        if let Some(tenant) = message.tenant() {
            builder = builder.tenant(tenant);
        }
        if let Some(deadline) = message.deadline() {
            builder = builder.deadline(deadline);
        }
        if let Some(payload) = payload {
            builder = builder.payload(payload);
        }
        let named = |name: &str, names: &str| name.eq_ignore_ascii_case(names);
        let mut set: Vec<&(String, String)> = self.set_headers.iter().collect();
        for (name, value) in message.headers_or_null() {
            if self.unset_headers.iter().any(|gone| named(name, gone)) {
                continue;
            }
            if self.set_headers.iter().any(|(new, _)| named(name, new)) {
                // Replace the first header of that name, and drop the others.
                if let Some(at) = set.iter().position(|(new, _)| named(name, new)) {
                    let (new, value) = set.remove(at);
                    builder = builder.header(new.as_str(), value.clone().into_bytes());
                }
                continue;
            }
            builder = match value {
                Some(value) => builder.header(name, value.to_vec()),
                None => builder.null_header(name),
            };
        }
        for (name, value) in set {
            builder = builder.header(name.as_str(), value.clone().into_bytes());
        }
        let changed = builder.build()?;
        Ok((changed.wire() != message.wire()).then_some(changed))
    }

    fn new_payload(&self, message: &Message) -> Result<Option<Bytes>, EditFault> {
        let payload = self.payload.as_deref().or(message.payload());
        if self.set.is_empty() && self.unset.is_empty() {
            return Ok(payload.map(Bytes::copy_from_slice));
        }
        let mut json = JsonText::parse(payload.unwrap_or_default())?;
        for (pointer, value) in &self.set {
            json.set(pointer, value)?;
        }
        for pointer in &self.unset {
            json.unset(pointer)?;
        }
        Ok(Some(Bytes::from(json.into_string())))
    }
}

/// Why a header cannot be sent; `None` if it can.
pub fn header_fault(name: &str, value: &str) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some("the name may have letters, digits and !#$%&'*+-.^_`|~ only");
    }
    if is_connection_header(name) {
        return Some("it belongs to the connection and is never sent from a message");
    }
    let is_control = |byte: u8| byte != b'\t' && byte.is_ascii_control();
    value.bytes().any(is_control).then_some("the value has a control character, such as a line break")
}

/// Whether the receiver may have applied the message although the attempt failed.
pub(crate) fn is_ambiguous(letter: &Letter) -> bool {
    letter.history.attempts().iter().any(|attempt| attempt.ambiguous)
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;

    use super::*;

    fn message() -> Message {
        let message = Message::builder("o-1").key("c-7").tenant("acme").created(Time::from_millis(5));
        let message = message.header("X-Src", "web").header("trace", "t-1").header("x-src", "app");
        message.null_header("empty").payload(r#"{"currency":"eur"}"#).build().unwrap()
    }

    fn set(pointer: &str, value: &str) -> MessageChange {
        let value = JsonText::parse(value.as_bytes()).unwrap();
        MessageChange { set: vec![(Pointer::parse(pointer).unwrap(), value)], ..MessageChange::default() }
    }

    #[test]
    fn what_is_not_named_stays() {
        let changed = set("/currency", "\"EUR\"").apply(&message(), None).unwrap().unwrap();
        assert_eq!(changed.payload(), Some(&br#"{"currency":"EUR"}"#[..]));
        let parts = |message: &Message| {
            let headers: Vec<_> = message
                .headers_or_null()
                .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)))
                .collect();
            let key = message.key().map(<[u8]>::to_vec);
            (message.id().to_owned(), key, message.tenant().map(str::to_owned), message.created(), headers)
        };
        assert_eq!(parts(&changed), parts(&message()));
        assert_eq!(changed.deadline(), None);
        let renamed = set("/currency", "1").apply(&message(), Some("o-1-e-12")).unwrap().unwrap();
        assert_eq!(renamed.id(), "o-1-e-12");
    }

    #[test]
    fn a_change_that_changes_nothing_is_none() {
        assert_eq!(set("/currency", "\"eur\"").apply(&message(), None), Ok(None));
        let gone = MessageChange { unset_headers: vec!["nothing".into()], ..MessageChange::default() };
        assert_eq!(gone.apply(&message(), None), Ok(None));
    }

    #[test]
    fn headers_are_set_in_place_and_removed_whatever_their_case() {
        let change = MessageChange {
            set_headers: vec![("x-src".into(), "fixed".into()), ("new".into(), "1".into())],
            unset_headers: vec!["TRACE".into()],
            ..MessageChange::default()
        };
        let changed = change.apply(&message(), None).unwrap().unwrap();
        let headers: Vec<_> = changed.headers_or_null().collect();
        assert_eq!(headers, [("x-src", Some(&b"fixed"[..])), ("empty", None), ("new", Some(&b"1"[..]))]);
        assert_eq!(change.fields(), ["header x-src", "header new", "header TRACE"]);
        assert!(!change.needs_json());
    }

    #[test]
    fn one_place_is_changed_once() {
        let change = MessageChange { unset: vec![Pointer::parse("/n").unwrap()], ..set("/n", "1") };
        assert_eq!(change.changed_twice().as_deref(), Some("/n"));
        let change = MessageChange {
            set_headers: vec![("X-Src".into(), "a".into())],
            unset_headers: vec!["x-src".into()],
            ..set("/n", "1")
        };
        assert_eq!(change.changed_twice().as_deref(), Some("header x-src"));
        assert_eq!(set("/n", "1").changed_twice(), None);
    }

    #[test]
    fn a_header_that_is_never_sent_is_a_fault() {
        for (name, value, part) in [
            ("bad name", "1", "the name"),
            ("", "1", "the name"),
            ("x-src", "a\nb", "line break"),
            ("Content-Length", "1", "connection"),
            ("host", "a", "connection"),
        ] {
            assert!(header_fault(name, value).is_some_and(|why| why.contains(part)), "{name:?}");
        }
        assert_eq!(header_fault("x-src", "käse\t1"), None);
    }

    #[test]
    fn a_payload_that_is_not_json_is_changed_as_a_whole_or_not_at_all() {
        let plain = Message::builder("o-1").payload("plain").build().unwrap();
        assert!(matches!(set("/a", "1").apply(&plain, None), Err(EditFault::Json(JsonFault::NotJson(_)))));
        let whole =
            MessageChange { payload: Some(Bytes::from_static(b"better")), ..MessageChange::default() };
        assert_eq!(whole.apply(&plain, None).unwrap().unwrap().payload(), Some(&b"better"[..]));
        let tombstone = Message::builder("o-1").build().unwrap();
        assert!(matches!(set("/a", "1").apply(&tombstone, None), Err(EditFault::Json(_))));
    }
}
