//! The form of a value: which values can be read, and how JSON Schema describes them.

use std::time::Duration;

use redrive_core::duration::print;
use serde_json::{Value, json};

/// As [`redrive_core::duration::parse`] reads it.
const DURATION: &str = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";
const SHARE: &str = "^[0-9]{1,5}(\\.[0-9]{1,2})?%$";

/// Stands for no upper bound: a longer duration cannot be written.
pub(in super::super) const FOREVER: Duration = Duration::from_millis(u64::MAX);
/// Bounds from here on only catch mistakes, so they are not mentioned.
const MISTAKE: u64 = 1_000_000;

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
    /// One of these words, as listed by the enum that they are parsed into.
    Words(fn() -> Vec<&'static str>),
    /// A list of such words.
    WordListOf(fn() -> Vec<&'static str>),
    Texts,
    /// A duration from the first to the second.
    Span(Duration, Duration),
    /// Such a duration or this word.
    SpanOr(Duration, Duration, &'static str),
    /// A list of such durations.
    Spans(Duration, Duration),
    /// `20%`, up to 100%.
    Share,
    /// `20/s`, from the first to the second number per second.
    Rate(f64, f64),
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number from the first to the second.
    Number(f64, f64),
    Switch,
    /// A table whose keys are the user's own.
    Open(&'static Form),
    /// A table declared with its keys, written inline.
    Inline,
    /// Any of these.
    Any(&'static [Form]),
}

/// The words of the pairs that [`one_of`](super::super::reader::SettingReader::one_of) takes.
pub(in super::super) fn words<T>(pairs: &[(&'static str, T)]) -> Vec<&'static str> {
    pairs.iter().map(|(word, _)| *word).collect()
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

    /// The durations it accepts.
    pub fn span(self) -> Option<(Duration, Duration)> {
        match self {
            Self::Span(min, max) | Self::SpanOr(min, max, _) | Self::Spans(min, max) => Some((min, max)),
            _ => None,
        }
    }

    /// The bounds in words, if there are any: `1s to 31d`.
    pub(super) fn bounds_text(self) -> Option<String> {
        let (min, max) = match self {
            Self::Whole(min, max) => {
                ((min > 0).then(|| min.to_string()), (max < MISTAKE).then(|| max.to_string()))
            }
            Self::Number(min, max) => (Some(min.to_string()), (max < f64::MAX).then(|| max.to_string())),
            Self::Rate(min, max) => (
                (min > 0.0).then(|| format!("{}/h", (min * 3_600.0).round())),
                (max < f64::MAX).then(|| format!("{max}/s")),
            ),
            Self::Open(of) => return of.bounds_text(),
            form => {
                let (min, max) = form.span()?;
                ((!min.is_zero()).then(|| print(min)), (max != FOREVER).then(|| print(max)))
            }
        };
        match (min, max) {
            (Some(min), Some(max)) => Some(format!("{min} to {max}")),
            (Some(min), None) => Some(format!("at least {min}")),
            (None, Some(max)) => Some(format!("at most {max}")),
            (None, None) => None,
        }
    }

    /// The words it accepts, if it accepts words.
    pub fn words(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Words(words) => Some(words()),
            Self::Any(forms) => forms.iter().find_map(|form| form.words()),
            _ => None,
        }
    }

    /// The JSON Schema of this form.
    pub(in super::super) fn schema(self) -> Value {
        match self {
            Self::Text | Self::File | Self::Address | Self::Rate(..) => json!({"type": "string"}),
            Self::Pick => json!({"type": "string", "pattern": "^(json:|header:)."}),
            Self::Command | Self::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Self::Words(words) => json!({"type": "string", "enum": words()}),
            Self::WordListOf(words) => json!({"type": "array", "items": {"type": "string", "enum": words()}}),
            Self::Span(..) => json!({"type": "string", "minLength": 1, "pattern": DURATION}),
            Self::SpanOr(min, max, word) => {
                json!({"anyOf": [Self::Span(min, max).schema(), {"const": word}]})
            }
            Self::Spans(min, max) => json!({"type": "array", "items": Self::Span(min, max).schema()}),
            Self::Share => json!({"type": "string", "pattern": SHARE}),
            Self::Whole(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Number(min, max) => json!({"type": "number", "minimum": min, "maximum": max}),
            Self::Switch => json!({"type": "boolean"}),
            Self::Open(of) => json!({"type": "object", "additionalProperties": of.schema()}),
            Self::Inline => json!({"type": "object"}),
            Self::Any(forms) => {
                json!({"anyOf": forms.iter().map(|form| form.schema()).collect::<Vec<_>>()})
            }
        }
    }
}
