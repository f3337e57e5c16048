//! Where the id or the tenant of a message comes from: a place in its JSON payload, or one of its headers.

use std::fmt;

use serde_json::Value;

/// `json:POINTER` or `header:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extract {
    /// A JSON pointer (RFC 6901), such as `/order_id`.
    Json(String),
    Header(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` does not say where to look; write json:/order_id or header:x-order-id")]
pub struct ExtractError {
    pub text: String,
}

impl Extract {
    pub fn parse(text: &str) -> Result<Self, ExtractError> {
        match text.split_once(':') {
            Some(("json", pointer)) if pointer.starts_with('/') => Ok(Self::Json(pointer.to_owned())),
            Some(("header", name)) if !name.trim().is_empty() => Ok(Self::Header(name.trim().to_owned())),
            _ => Err(ExtractError { text: text.to_owned() }),
        }
    }

    /// The text found there. Numbers are taken as they are written; anything else but text is not an id.
    pub fn find(&self, payload: Option<&[u8]>, headers: &[(String, String)]) -> Option<String> {
        match self {
            Self::Json(pointer) => {
                let payload: Value = serde_json::from_slice(payload?).ok()?;
                match payload.pointer(pointer)? {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(number) if !number.is_f64() => Some(number.to_string()),
                    _ => None,
                }
            }
            Self::Header(name) => headers
                .iter()
                .find(|(given, _)| given.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.clone()),
        }
    }
}

impl fmt::Display for Extract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written_back() {
        for text in ["json:/order_id", "json:/a/b~1c", "header:x-tenant"] {
            assert_eq!(Extract::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "order_id", "json:order_id", "header:", "jsn:/x"] {
            assert!(Extract::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_and_whole_numbers_are_found_and_nothing_else() {
        let payload = br#"{"id":"a","n":18446744073709551615,"f":1.5,"o":{"id":"deep"},"b":true}"#;
        let find = |pointer: &str| Extract::Json(pointer.to_owned()).find(Some(payload), &[]);
        assert_eq!(find("/id").as_deref(), Some("a"));
        assert_eq!(find("/n").as_deref(), Some("18446744073709551615"));
        assert_eq!(find("/o/id").as_deref(), Some("deep"));
        for none in ["/f", "/o", "/b", "/missing"] {
            assert_eq!(find(none), None, "{none}");
        }
    }

    #[test]
    fn headers_are_found_whatever_their_case() {
        let headers = [("X-Tenant".to_owned(), "acme".to_owned())];
        assert_eq!(Extract::Header("x-tenant".to_owned()).find(None, &headers).as_deref(), Some("acme"));
        assert_eq!(Extract::Header("x-other".to_owned()).find(None, &headers), None);
    }
}
