//! Hides parts of a letter: values at given JSON pointers, and headers by name. They are replaced in output of the
//! API, never in the store. Pure.
//!
//! There are three rules. Values at the given places are replaced. Texts and codes of errors come from others and
//! could repeat a value in any form, so they are not shown at all. Everything else of the message is searched for the
//! hidden values, in all their spellings.

mod secrets;
mod spelling;

use std::collections::BTreeSet;

use redrive_core::Message;
use serde_json::{Map, Value, json};

pub use secrets::Secrets;

use super::edit::Pointer;
use super::edit::json_text::JsonText;

/// Replaces a hidden value.
pub const REDACTED: &str = "[redacted]";

/// The fields of a letter that hold a payload: its own, and the one before its first edit.
const PAYLOADS: [&str; 2] = ["payload", "original"];
/// The fields of a letter that hold headers: its own, and those before its first edit.
const HEADERS: [&str; 2] = ["headers", "original_headers"];

/// Fields of letters and messages that need no search: their text is ours, or they are handled separately. All other
/// fields hold text of producers and receivers.
const OWN: [&str; 28] = [
    "queue",
    "number",
    "state",
    "reason",
    "class",
    "error_class",
    "attempts",
    "replays",
    "group",
    "dead_at",
    "created",
    "first_seen",
    "due",
    "deadline",
    "held_ms",
    "crashes",
    "first_crash",
    "last_crash",
    "options",
    "redacted",
    "origin",
    "edits",
    "letter",
    "history",
    "payload",
    "original",
    "error",
    "group_error",
];

/// The field of a letter that lists what was redacted. An import refuses a letter that has it.
const MARK: &str = "redacted";

/// Which values are redacted. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    pointers: Vec<Pointer>,
    /// In lower case.
    headers: Vec<String>,
    /// Whether error texts are shown after removing the values: the sink that wrote them conceals the values itself.
    shows_texts: bool,
}

impl Redaction {
    /// Redacts the values at these places of a payload.
    pub fn at(pointers: Vec<Pointer>) -> Self {
        Self { pointers, ..Self::default() }
    }

    /// Redacts the receivers in messages of a push sink. Such a sink conceals them in its error texts, so those are
    /// shown.
    pub fn of_receivers(rules: &[&str]) -> Self {
        let mut redaction = Self::default();
        rules.iter().for_each(|rule| {
            redaction.add(rule);
        });
        Self { shows_texts: true, ..redaction }
    }

    /// Whether error texts, and texts made from them, are hidden.
    pub fn hides_texts(&self) -> bool {
        !self.is_empty() && !self.shows_texts
    }

    /// Adds a rule as spelled by users: `/customer/email`, or `header:x-user`. Returns `false` if it is neither.
    pub fn add(&mut self, rule: &str) -> bool {
        if let Some(name) = rule.strip_prefix("header:").filter(|name| !name.trim().is_empty()) {
            self.headers.push(name.trim().to_ascii_lowercase());
            return true;
        }
        let pointer = Pointer::parse(rule).filter(|_| rule.len() > 1);
        pointer.map(|pointer| self.pointers.push(pointer)).is_some()
    }

    /// Whether nothing is redacted.
    pub fn is_empty(&self) -> bool {
        self.pointers.is_empty() && self.headers.is_empty()
    }

    /// The pointers into payloads.
    pub(super) fn pointers(&self) -> &[Pointer] {
        &self.pointers
    }

    /// Whether the value of a header is hidden.
    fn hides_header(&self, name: &str) -> bool {
        self.headers.contains(&name.to_ascii_lowercase())
    }

    /// Whether the value at this place is hidden: a JSON pointer, `header NAME`, or `payload`.
    pub fn hides(&self, at: &str) -> bool {
        if let Some(name) = at.strip_prefix("header ") {
            return self.hides_header(name);
        }
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut rules = self.pointers.iter().map(ToString::to_string);
        rules.any(|rule| at == "payload" || is_within(at, &rule) || is_within(&rule, at))
    }

    /// Whether range comparisons of the value at this place could reveal something hidden: the value is hidden
    /// itself, or may repeat a hidden one. The receivers of a push sink are not repeated elsewhere.
    pub(crate) fn is_guessed_at(&self, at: &str) -> bool {
        self.hides_texts() || self.hides(at)
    }

    /// Whether the tenant of a message is one of the hidden values.
    pub fn hides_tenant(&self, message: &Message) -> bool {
        let Some(tenant) = message.tenant().filter(|_| !self.is_empty()) else { return false };
        let mut secrets = Secrets::default();
        secrets.add_message(message, self);
        secrets.without(tenant).is_some()
    }

    /// The rules, as spelled by users.
    pub fn rules(&self) -> Vec<String> {
        let headers = self.headers.iter().map(|name| format!("header:{name}"));
        self.pointers.iter().map(ToString::to_string).chain(headers).collect()
    }

    /// Redacts a letter as the API shows it: the values at the given places, the texts of its errors, and the hidden
    /// values wherever else they occur in the letter. The rest of the payload keeps its spelling. Returns the rules
    /// that have found something.
    ///
    /// A payload that is not JSON cannot be searched, so it is replaced as a whole if there are pointers.
    pub fn redact(&self, letter: &mut Value) -> BTreeSet<String> {
        self.redact_with(letter, Secrets::default())
    }

    /// Like [`Self::redact`], for a letter with more hidden values: those of its message before edits.
    pub fn redact_with(&self, letter: &mut Value, mut secrets: Secrets) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let Some(fields) = letter.as_object_mut().filter(|_| !self.is_empty()) else { return found };
        let mut payloads: Vec<(&str, Option<JsonText>)> = Vec::new();
        for field in PAYLOADS {
            let Some(value) = fields.get(field).filter(|payload| !payload.is_null()) else { continue };
            let text = value.pointer("/utf8").and_then(Value::as_str);
            let mut payload = text.and_then(|text| JsonText::parse(text.as_bytes()).ok());
            if let Some(payload) = &mut payload {
                for pointer in &self.pointers {
                    for value in payload.replace_each(pointer, &JsonText::string(REDACTED)) {
                        secrets.add(&value);
                        found.insert(pointer.to_string());
                    }
                }
            }
            payloads.push((field, payload));
        }
        self.redact_headers(fields, &mut secrets, &mut found);
        let mut whole = false;
        for (field, payload) in payloads {
            let shown = match payload {
                Some(mut payload) => {
                    secrets.scrub_payload(&mut payload);
                    payload.into_string()
                }
                // It is not JSON, so its content is unknown.
                None if self.hides_texts() && (!self.pointers.is_empty() || !secrets.is_empty()) => {
                    whole = true;
                    REDACTED.to_owned()
                }
                None => continue,
            };
            fields.insert(field.to_owned(), json!({ "utf8": shown }));
        }
        if self.hides_texts() {
            hide_errors(fields);
        } else {
            for name in ["history", "error", "group_error"] {
                fields.get_mut(name).into_iter().for_each(|texts| scrub(texts, &secrets));
            }
        }
        // We assign the id of a letter, but not that of a message.
        let is_letter = fields.contains_key("message");
        let is_own = |name: &str| OWN.contains(&name) || (is_letter && name == "id");
        for (_, value) in fields.iter_mut().filter(|(name, _)| !is_own(name)) {
            scrub(value, &secrets);
        }
        if whole || !found.is_empty() {
            // The empty pointer means the whole document.
            let all = whole.then(String::new).into_iter().chain(found.iter().cloned());
            fields.insert(MARK.to_owned(), json!(all.collect::<Vec<_>>()));
        }
        found
    }

    fn redact_headers(
        &self,
        fields: &mut Map<String, Value>,
        secrets: &mut Secrets,
        found: &mut BTreeSet<String>,
    ) {
        for field in HEADERS {
            let Some(headers) = fields.get_mut(field).and_then(Value::as_object_mut) else { continue };
            for (name, value) in headers.iter_mut().filter(|(name, _)| self.hides_header(name)) {
                secrets.add_text(value.as_str().unwrap_or_default());
                *value = json!(REDACTED);
                found.insert(format!("header:{}", name.to_ascii_lowercase()));
            }
        }
    }
}

/// The visible part of an error text: the status, and the fact that there was a text.
pub fn hidden_error(status: Option<u64>) -> String {
    status.map_or_else(|| REDACTED.to_owned(), |status| format!("{status} {REDACTED}"))
}

/// Hides the texts and codes of errors of a letter or a message, and the title that was made from one. The caller
/// restores a title that came from a configured rule.
pub fn hide_errors(fields: &mut Map<String, Value>) {
    let mut last = None;
    for attempt in fields.get_mut("history").and_then(Value::as_array_mut).into_iter().flatten() {
        last = attempt.get("status").and_then(Value::as_u64);
        if let Some(error) = attempt.get_mut("error").filter(|error| !error.is_null()) {
            *error = json!(hidden_error(last));
        }
        if let Some(code) = attempt.get_mut("code").filter(|code| !code.is_null()) {
            *code = json!(REDACTED);
        }
    }
    for name in ["error", "group_error"] {
        let text = fields.get_mut(name).filter(|text| text.as_str().is_some_and(|text| !text.is_empty()));
        if let Some(text) = text {
            *text = json!(hidden_error(last));
        }
    }
}

fn scrub(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => {
            if let Some(clean) = secrets.without(text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(item, secrets)),
        Value::Object(fields) => fields.values_mut().for_each(|field| scrub(field, secrets)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
