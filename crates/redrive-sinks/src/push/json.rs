//! Reads what a message asks for: members of a JSON envelope, or headers.

use redrive_core::Message;
use serde_json::{Map, Value};

/// What is wrong with one field of a message. Shows no value: a token is a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    #[error("the message's payload is not a JSON object")]
    NotObject,
    #[error("the message has no `{0}`")]
    Missing(&'static str),
    #[error("the message's `{0}` is not {1}")]
    Wrong(&'static str, &'static str),
    #[error("the payload has {0} bytes; at most {1} are allowed")]
    TooLarge(usize, usize),
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
