//! Reads what a message asks for: members of a JSON envelope, or headers.

use std::sync::Arc;

use redrive::subscriptions::Stored;
use redrive_core::Message;
use serde_json::{Map, Value};

/// Finds a stored subscription by its id.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Stored>>;

/// What is wrong with one field of a message. Shows no value: a token is a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    #[error("the message's payload is not a JSON object")]
    NotObject,
    #[error("the message has no `{0}`")]
    Missing(&'static str),
    #[error("the message's `{0}` is not {1}")]
    Wrong(&'static str, &'static str),
    #[error("there is no stored subscription of the id that the message names")]
    Unknown,
    #[error("the payload has {0} bytes; at most {1} are allowed")]
    TooLarge(usize, usize),
}

/// The token that an envelope carries, or that of the stored subscription which it names, with when that registered.
pub fn token(envelope: &Map<String, Value>, lookup: Lookup<'_>) -> Result<(String, Option<u64>), FieldFault> {
    match (text(envelope, "token")?, text(envelope, "subscription")?) {
        (Some(token), None) => Ok((token, None)),
        (None, Some(id)) => {
            let stored = lookup(&id).ok_or(FieldFault::Unknown)?;
            let token = stored.subscription().get("token").and_then(Value::as_str).map(str::to_owned);
            Ok((token.ok_or(FieldFault::Unknown)?, Some(stored.registered.as_millis())))
        }
        (None, None) => Err(FieldFault::Missing("token")),
        (Some(_), Some(_)) => Err(FieldFault::Wrong("subscription", "given beside a token")),
    }
}

/// The payload as a JSON object.
pub fn object(message: &Message) -> Result<Map<String, Value>, FieldFault> {
    match serde_json::from_slice(message.payload().unwrap_or_default()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => Err(FieldFault::NotObject),
    }
}

/// A member that is a text; `None` if there is none.
pub fn text(object: &Map<String, Value>, name: &'static str) -> Result<Option<String>, FieldFault> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(FieldFault::Wrong(name, "a text")),
    }
}

/// A header that is a text.
pub fn header(message: &Message, name: &str) -> Option<String> {
    let found = message.headers().find(|(given, _)| given.eq_ignore_ascii_case(name));
    found.and_then(|(_, value)| std::str::from_utf8(value).ok()).map(str::to_owned)
}
