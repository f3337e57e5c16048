//! Parses a message's request: members of a JSON envelope, or headers.

use std::sync::Arc;

use redrive::internal::subscriptions::Stored;
use redrive_core::Message;
use redrive_core::nearest::nearest;
use redrive_core::text::redact;
use serde_json::{Map, Value};

/// Finds a stored subscription by its id.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Stored>>;

/// A fault in one field of a message. Shows no value: a token is a secret.
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
    #[error(transparent)]
    UnknownMember(#[from] UnknownMember),
}

/// A message has an unknown member: more likely a typo than something to ignore.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {of} has a member `{name}`, which means nothing here{hint}")]
pub struct UnknownMember {
    of: &'static str,
    name: String,
    hint: String,
}

impl UnknownMember {
    fn new(of: &'static str, name: &str, nearest: Option<String>) -> Self {
        let hint = nearest.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let shown = redact::without_secrets(name);
        let name = shown.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
        Self { of, name, hint }
    }
}

/// The maximum length of a member's name in a fault; the rest is cut off.
const NAME_CHARS_MAX: usize = 40;

/// Refuses members other than `known` and `others`, which are the pipeline's.
pub fn only(
    envelope: &Map<String, Value>,
    known: &'static [&'static str],
    others: &[String],
) -> Result<(), UnknownMember> {
    let is_known = |name: &&String| known.contains(&name.as_str()) || others.contains(name);
    let Some(name) = envelope.keys().find(|name| !is_known(name)) else { return Ok(()) };
    Err(UnknownMember::new("message", name, nearest(name, known.iter().copied()).map(str::to_owned)))
}

/// Refuses members of a subscription that are misspellings of `known`, in its part `within`. Others are ignored:
/// browsers add some, and so do intermediaries.
pub fn no_near_miss(value: &Value, known: &[&'static str], within: &str) -> Result<(), UnknownMember> {
    let names = value.as_object().into_iter().flat_map(Map::keys);
    for name in names.filter(|name| !known.contains(&name.as_str())) {
        let is_same = |known: &&&str| spelled(known) == spelled(name);
        let near = known.iter().find(is_same).copied().or_else(|| nearest(name, known.iter().copied()));
        if let Some(near) = near {
            return Err(UnknownMember::new("subscription", name, Some(format!("{within}{near}"))));
        }
    }
    Ok(())
}

/// Normalises spelling: `vapidKey` and `vapid-key` become `vapid_key`.
fn spelled(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
}

/// The token of an envelope, or that of the stored subscription it names, with its registration time.
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

/// A text member; `None` if missing.
pub fn text(object: &Map<String, Value>, name: &'static str) -> Result<Option<String>, FieldFault> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(FieldFault::Wrong(name, "a text")),
    }
}

/// The token of a message, even if the message is invalid otherwise: its own, or that of a stored subscription.
pub fn readable_token(envelope: &Map<String, Value>, lookup: Lookup<'_>) -> Option<String> {
    token(envelope, lookup).ok().map(|(token, _)| token).filter(|token| !token.is_empty())
}

/// A header as text.
pub fn header(message: &Message, name: &str) -> Option<String> {
    let found = message.headers().find(|(given, _)| given.eq_ignore_ascii_case(name));
    found.and_then(|(_, value)| std::str::from_utf8(value).ok()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_that_means_nothing_is_named_with_the_nearest_that_does() {
        let check = |value: Value| {
            let others = ["order".to_owned()];
            only(value.as_object().unwrap(), &["token", "urgency"], &others)
                .map_err(|fault| fault.to_string())
        };
        assert_eq!(check(json!({"token": "t", "order": {"id": 1}})), Ok(()));
        let said = check(json!({"urgancy": "high"})).unwrap_err();
        assert_eq!(
            said,
            "the message has a member `urgancy`, which means nothing here; did you mean `urgency`?"
        );
        let said = check(json!({"https://push.example/wp/1\n": 1})).unwrap_err();
        assert!(said.contains("`[url]`") && !said.contains("push.example"), "{said}");
    }
}
