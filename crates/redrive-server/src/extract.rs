//! Extracts the id or the tenant of a message from its configured location.

use redrive_core::Pick;
use serde_json::Value;

/// The text at that location. Numbers are used as written; other types are not ids.
pub fn find(pick: &Pick, payload: Option<&[u8]>, headers: &[(String, String)]) -> Option<String> {
    match pick {
        Pick::Json(pointer) => {
            let payload: Value = serde_json::from_slice(payload?).ok()?;
            match payload.pointer(pointer)? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) if !number.is_f64() => Some(number.to_string()),
                _ => None,
            }
        }
        Pick::Header(name) => {
            headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_whole_numbers_are_found_and_nothing_else() {
        let payload = br#"{"id":"a","n":18446744073709551615,"f":1.5,"o":{"id":"deep"},"b":true}"#;
        let find = |pointer: &str| super::find(&Pick::Json(pointer.to_owned()), Some(payload), &[]);
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
        assert_eq!(find(&Pick::Header("x-tenant".to_owned()), None, &headers).as_deref(), Some("acme"));
        assert_eq!(find(&Pick::Header("x-other".to_owned()), None, &headers), None);
    }
}
