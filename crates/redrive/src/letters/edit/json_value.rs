//! JSON values for comparison: like `serde_json::Value`, but with all digits of numbers.

use std::collections::BTreeMap;

use crate::letters::decimal::Decimal;

/// A value; equal values may differ in spacing, order of fields, or spelling such as `1.0` for `1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number with all its digits.
    Number(Decimal),
    /// A string.
    Text(String),
    /// An array.
    Items(Vec<JsonValue>),
    /// An object.
    Fields(BTreeMap<String, JsonValue>),
}

impl JsonValue {
    /// Reads a value that is neither object nor array, from text that is known to be JSON. `None` for a value without
    /// a meaning: half a surrogate pair, or an exponent out of bounds.
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
