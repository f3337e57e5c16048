//! A JSON value that is compared: like `serde_json::Value`, with numbers that have all their digits.

use std::collections::BTreeMap;

use crate::letters::decimal::Decimal;

/// Values are equal however they were written: spacing, order of fields, `1.0` for `1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, exactly as it was written.
    Number(Decimal),
    /// A string.
    Text(String),
    /// An array.
    Items(Vec<JsonValue>),
    /// An object.
    Fields(BTreeMap<String, JsonValue>),
}

impl JsonValue {
    /// Reads a value that is neither object nor array, from text that was checked to be JSON. `None` for what has no
    /// meaning: half a surrogate pair, or an exponent beyond all bounds.
    pub(super) fn scalar(text: &str) -> Option<Self> {
        Some(match text {
            "null" => Self::Null,
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            text if text.starts_with('"') => Self::Text(serde_json::from_str(text).ok()?),
            text => Self::Number(Decimal::parse(text)?),
        })
    }
}
