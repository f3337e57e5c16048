//! The hidden values, and the search for them in the rest of a message.

use redrive_core::Message;

use super::spelling::{core, spellings};
use super::{REDACTED, Redaction};
use crate::letters::decimal::Decimal;
use crate::letters::edit::json_text::JsonText;

/// A shorter value would be found in every text, so it is only looked for as a whole text.
const PART_CHARS_MIN: usize = 3;

/// Hidden values.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// As spelled, the longest first, so that a value that contains another one is replaced as a whole.
    texts: Vec<String>,
    /// The same in lower case.
    lower: Vec<String>,
    /// Their cores, which all spellings have in common.
    cores: Vec<String>,
    /// Values that are too short to be searched for within a text.
    short: Vec<String>,
    /// Numbers, which may be spelled differently elsewhere.
    numbers: Vec<Decimal>,
}

impl Secrets {
    /// Adds the values that a message has at the redacted places.
    pub fn add_message(&mut self, message: &Message, redaction: &Redaction) {
        let payload = message.payload().and_then(|payload| JsonText::parse(payload).ok());
        if let Some(mut payload) = payload {
            redaction.pointers().iter().for_each(|pointer| {
                payload
                    .replace_each(pointer, &JsonText::string(REDACTED))
                    .iter()
                    .for_each(|value| self.add(value));
            });
        }
        for (_, value) in message.headers().filter(|(name, _)| redaction.hides_header(name)) {
            self.add_text(&String::from_utf8_lossy(value));
        }
    }

    /// Adds the texts of all strings and numbers inside a value, and the names of its fields.
    pub(super) fn add(&mut self, value: &JsonText) {
        for scalar in value.scalars() {
            match scalar.as_bytes().first() {
                Some(b'"') => self.add_text(&serde_json::from_str::<String>(scalar).unwrap_or_default()),
                Some(b'-' | b'0'..=b'9') => self.add_text(scalar),
                _ => {}
            }
        }
        value.names().for_each(|name| self.add_text(&name));
    }

    /// Adds a text, and the number that it may represent.
    pub(super) fn add_text(&mut self, text: &str) {
        if let Some(number) = Decimal::parse(text) {
            self.add_part(&number.to_string());
            self.numbers.push(number);
        }
        self.add_part(text);
    }

    fn add_part(&mut self, text: &str) {
        let part = text.trim();
        let list = if part.chars().count() < PART_CHARS_MIN {
            &mut self.short
        } else {
            let core = core(part);
            if core.chars().count() >= PART_CHARS_MIN && !self.cores.contains(&core) {
                self.cores.push(core);
            }
            self.lower.push(part.to_lowercase());
            &mut self.texts
        };
        if !part.is_empty() && !list.iter().any(|known| known == part) {
            list.push(part.to_owned());
            list.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.short.is_empty()
    }

    /// The text with all hidden values replaced; `None` if it contains none. If one occurs in a different spelling,
    /// the whole text is replaced.
    pub fn without(&self, text: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        if self.short.iter().any(|short| short == text.trim()) {
            return Some(REDACTED.to_owned());
        }
        let found = self.texts.iter().filter(|secret| text.contains(secret.as_str()));
        let clean = found.fold(None, |clean: Option<String>, secret| {
            Some(clean.as_deref().unwrap_or(text).replace(secret.as_str(), REDACTED))
        });
        let left = clean.as_deref().unwrap_or(text).replace(REDACTED, " ");
        if spellings(&left).iter().any(|spelled| self.is_in(spelled)) {
            Some(REDACTED.to_owned())
        } else {
            clean
        }
    }

    /// Whether a lower-case text contains a hidden value, ignoring everything but letters and digits.
    fn is_in(&self, text: &str) -> bool {
        let bare = core(text);
        self.lower.iter().any(|secret| text.contains(secret.as_str()))
            || self.cores.iter().any(|secret| bare.contains(secret.as_str()))
    }

    /// Whether a number is or contains a hidden value. Short numbers are everywhere, so they do not count.
    fn has_number(&self, text: &str) -> bool {
        let is_long = text.chars().count() >= PART_CHARS_MIN;
        let same = |number| self.numbers.contains(&number);
        is_long && (self.without(text).is_some() || Decimal::parse(text).is_some_and(same))
    }

    /// Replaces hidden values in the texts and numbers of a payload; everything else keeps its spelling.
    pub(super) fn scrub_payload(&self, payload: &mut JsonText) {
        payload.replace_scalars(|scalar| match scalar.as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<String>(scalar) {
                Ok(text) if text.chars().count() < PART_CHARS_MIN => None,
                Ok(text) => self.without(&text).map(|text| JsonText::string(&text)),
                // A text that cannot be decoded, such as one with half a surrogate pair, cannot be searched either.
                Err(_) => Some(JsonText::string(REDACTED)),
            },
            Some(b'-' | b'0'..=b'9') => self.has_number(scalar).then(|| JsonText::string(REDACTED)),
            _ => None,
        });
    }
}
