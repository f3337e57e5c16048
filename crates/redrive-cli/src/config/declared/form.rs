//! The form of a value: which values can be read, and how JSON Schema describes them.

use serde_json::{Value, json};

/// As [`redrive_core::duration::parse`] reads it.
const DURATION: &str = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";
const SHARE: &str = "^[0-9]{1,5}(\\.[0-9]{1,2})?%$";

/// The form of a value.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Text,
    /// The path of a file or directory.
    File,
    /// A URL. It may contain a secret, so its line is never shown.
    Address,
    /// A program and its arguments; they may contain secrets too.
    Command,
    /// `json:POINTER` or `header:NAME`.
    Pick,
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of the words that another part of the program defines.
    WordsOf(fn() -> Vec<&'static str>),
    /// A list of such words.
    WordListOf(fn() -> Vec<&'static str>),
    Texts,
    Duration,
    /// A duration or this word.
    DurationOr(&'static str),
    Durations,
    /// `20%`.
    Share,
    /// `20/s`.
    Rate,
    /// A whole number from the first to the second.
    Whole(u64, u64),
    Number,
    Switch,
    /// A table whose keys are the user's own.
    Open(&'static Form),
    /// A table declared with its keys, written inline.
    Inline,
    /// Any of these.
    Any(&'static [Form]),
}

impl Form {
    /// Whether a message may show a line with such a value.
    pub(in super::super) fn is_plain(self) -> bool {
        match self {
            Self::Address | Self::Command | Self::Open(_) | Self::Inline => false,
            Self::Any(forms) => forms.iter().all(|form| form.is_plain()),
            _ => true,
        }
    }

    pub(in super::super) fn bounds(self) -> Option<(u64, u64)> {
        match self {
            Self::Whole(min, max) => Some((min, max)),
            Self::Open(of) => of.bounds(),
            _ => None,
        }
    }

    pub(in super::super) fn words(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Words(words) => Some(words.to_vec()),
            Self::WordsOf(words) => Some(words()),
            _ => None,
        }
    }

    /// The JSON Schema of this form.
    pub(in super::super) fn schema(self) -> Value {
        match self {
            Self::Text | Self::File | Self::Address | Self::Rate => json!({"type": "string"}),
            Self::Pick => json!({"type": "string", "pattern": "^(json:|header:)."}),
            Self::Command | Self::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Self::Words(words) => json!({"type": "string", "enum": words}),
            Self::WordsOf(words) => json!({"type": "string", "enum": words()}),
            Self::WordListOf(words) => json!({"type": "array", "items": {"type": "string", "enum": words()}}),
            Self::Duration => json!({"type": "string", "minLength": 1, "pattern": DURATION}),
            Self::DurationOr(word) => json!({"anyOf": [Self::Duration.schema(), {"const": word}]}),
            Self::Durations => json!({"type": "array", "items": Self::Duration.schema()}),
            Self::Share => json!({"type": "string", "pattern": SHARE}),
            Self::Whole(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Number => json!({"type": "number"}),
            Self::Switch => json!({"type": "boolean"}),
            Self::Open(of) => json!({"type": "object", "additionalProperties": of.schema()}),
            Self::Inline => json!({"type": "object"}),
            Self::Any(forms) => {
                json!({"anyOf": forms.iter().map(|form| form.schema()).collect::<Vec<_>>()})
            }
        }
    }
}
