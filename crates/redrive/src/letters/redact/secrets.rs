//! The values that must not be shown, to find them wherever else they stand in a message.

use redrive_core::Message;

use super::spelling::{core, spellings};
use super::{REDACTED, Redaction};
use crate::letters::decimal::Decimal;
use crate::letters::edit::json_text::JsonText;

/// A shorter value stands in every text and tells nothing there: it is looked for only where it is all that stands.
const PART_CHARS_MIN: usize = 3;

/// Values that must not be shown.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// As they are written, the longest first, so that a value that contains another one goes as a whole.
    texts: Vec<String>,
    /// The same in lower case.
    lower: Vec<String>,
    /// What is left of them in every spelling.
    cores: Vec<String>,
    /// Those that are too short to be looked for within a text.
    short: Vec<String>,
    /// The same number may be written in another way elsewhere.
    numbers: Vec<Decimal>,
}

impl Secrets {
    /// The values that a message has where the rules say.
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

    /// The texts of all strings and numbers inside a value, and of the names of its fields.
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

    /// A text, and the number that it may be.
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

    /// The text without any of them; `None` if there was none in it. Where one is spelled in another way, nothing of the
    /// text is left.
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

    /// Whether a text in lower case has one of them in it, whatever stands between its letters and digits.
    fn is_in(&self, text: &str) -> bool {
        let bare = core(text);
        self.lower.iter().any(|secret| text.contains(secret.as_str()))
            || self.cores.iter().any(|secret| bare.contains(secret.as_str()))
    }

    /// Whether a number is one of them, or contains one. Short ones stand everywhere.
    fn has_number(&self, text: &str) -> bool {
        let is_long = text.chars().count() >= PART_CHARS_MIN;
        let same = |number| self.numbers.contains(&number);
        is_long && (self.without(text).is_some() || Decimal::parse(text).is_some_and(same))
    }

    /// Replaces them in the texts and numbers of a payload; everything else stays as it was written.
    pub(super) fn scrub_payload(&self, payload: &mut JsonText) {
        payload.replace_scalars(|scalar| match scalar.as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<String>(scalar) {
                Ok(text) if text.chars().count() < PART_CHARS_MIN => None,
                Ok(text) => self.without(&text).map(|text| JsonText::string(&text)),
                // A text that cannot be read, as with half a surrogate pair, cannot be searched either.
                Err(_) => Some(JsonText::string(REDACTED)),
            },
            Some(b'-' | b'0'..=b'9') => self.has_number(scalar).then(|| JsonText::string(REDACTED)),
            _ => None,
        });
    }
}
