//! What of a letter must not leave: values at given JSON pointers, and headers that carry secrets. Pure.

use std::collections::BTreeSet;

use redrive_core::text::secret_header::is_secret_header;
use serde_json::Value;

use crate::exit::Failed;

/// What stands in place of a value.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are not looked for in the rest of the letter: a `1` or a `DE` stands everywhere and tells nothing.
const TRACE_CHARS_MIN: usize = 3;

/// The fields of a letter that carry what a user wrote; the others are our own words.
const FOREIGN: [&str; 7] = ["message", "key", "tenant", "error", "headers", "origin", "history"];

/// Reads `--redact /card,/email`.
pub fn pointers(texts: &[String]) -> Result<Vec<String>, Failed> {
    texts
        .iter()
        .map(|text| {
            let pointer = text.trim();
            if pointer.starts_with('/') && pointer.len() > 1 {
                Ok(pointer.to_owned())
            } else {
                Err(Failed::usage(format!("--redact `{pointer}` is not a JSON pointer"))
                    .hint("write it like /card or /customer/email"))
            }
        })
        .collect()
}

/// Removes headers whose name says that they carry a secret.
pub fn hide_secret_headers(letter: &mut Value) {
    if let Some(headers) = letter.get_mut("headers").and_then(Value::as_object_mut) {
        headers.retain(|name, _| !is_secret_header(name));
    }
}

/// Replaces the values at `pointers` in a letter's payload, and what was found there wherever else it stands in the
/// letter: an error text likes to repeat the value it complains about. Returns which pointers were found.
///
/// A payload that is no JSON cannot be searched, so it is replaced as a whole.
pub fn redact(letter: &mut Value, pointers: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if pointers.is_empty() {
        return found;
    }
    let text = letter.pointer("/payload/utf8").and_then(Value::as_str);
    let Some(mut payload) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        if let Some(whole) = letter.get_mut("payload").filter(|payload| !payload.is_null()) {
            *whole = serde_json::json!({ "utf8": REDACTED });
        }
        return found;
    };
    let mut traces = BTreeSet::new();
    for pointer in pointers {
        if let Some(value) = payload.pointer_mut(pointer) {
            collect(value, &mut traces);
            *value = Value::String(REDACTED.to_owned());
            found.insert(pointer.clone());
        }
    }
    // The longest first, so that a value that contains another one goes as a whole.
    let mut traces: Vec<String> = traces.into_iter().collect();
    traces.sort_by_key(|trace| std::cmp::Reverse(trace.len()));
    scrub(&mut payload, &traces);
    letter["payload"] = serde_json::json!({ "utf8": payload.to_string() });
    for field in FOREIGN {
        if let Some(value) = letter.get_mut(field) {
            scrub(value, &traces);
        }
    }
    found
}

/// The texts of all strings and numbers inside a value.
fn collect(value: &Value, traces: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.chars().count() >= TRACE_CHARS_MIN => _ = traces.insert(text.clone()),
        Value::Number(number) if number.to_string().len() >= TRACE_CHARS_MIN => {
            traces.insert(number.to_string());
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, traces)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, traces)),
        _ => {}
    }
}

/// Replaces every trace inside a value.
fn scrub(value: &mut Value, traces: &[String]) {
    match value {
        Value::String(text) => {
            for trace in traces {
                if text.contains(trace.as_str()) {
                    *text = text.replace(trace.as_str(), REDACTED);
                }
            }
        }
        Value::Number(number) if traces.contains(&number.to_string()) => {
            *value = Value::String(REDACTED.to_owned());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(item, traces)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                // Our own numbers and words inside an attempt stay readable.
                if !matches!(name.as_str(), "attempt" | "at" | "took_ms" | "class") {
                    scrub(field, traces);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn letter(payload: &str) -> Value {
        json!({
            "id": "orders/17", "message": "o-17", "state": "discarded", "attempts": 4,
            "error": "422 card 4111111111111111 of eve@example.com refused",
            "headers": {"x-src": "web", "Authorization": "Bearer s3cret", "x-user": "eve@example.com"},
            "payload": {"utf8": payload},
            "history": [{"attempt": 1, "at": "2026-11-15T08:01:12.000Z", "took_ms": 112, "error": "card 4111111111111111"}],
        })
    }

    #[test]
    fn a_redacted_value_is_gone_from_the_whole_letter() {
        let mut letter = letter(
            r#"{"order_id":"o-17","card":4111111111111111,"customer":{"email":"eve@example.com"},"copy":["eve@example.com"]}"#,
        );
        let pointers = ["/card".to_owned(), "/customer".to_owned(), "/nowhere".to_owned()];
        let found = redact(&mut letter, &pointers);
        hide_secret_headers(&mut letter);
        let text = letter.to_string();
        for secret in ["4111111111111111", "eve@example.com", "s3cret"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["/card", "/customer"]);
        assert_eq!(letter["error"], "422 card [redacted] of [redacted] refused");
        assert_eq!(letter["headers"], json!({"x-src": "web", "x-user": "[redacted]"}));
        assert_eq!(letter["history"][0]["took_ms"], 112);
        assert_eq!(letter["message"], "o-17");
        let payload: Value = serde_json::from_str(letter["payload"]["utf8"].as_str().unwrap()).unwrap();
        assert_eq!(
            payload,
            json!({"order_id": "o-17", "card": "[redacted]", "customer": "[redacted]", "copy": ["[redacted]"]})
        );
    }

    #[test]
    fn a_payload_that_cannot_be_searched_goes_as_a_whole() {
        let mut text = letter("card=4111111111111111");
        assert!(redact(&mut text, &["/card".to_owned()]).is_empty());
        assert_eq!(text["payload"], json!({"utf8": "[redacted]"}));
        let mut binary = letter("");
        binary["payload"] = json!({"base64": "NDExMQ=="});
        redact(&mut binary, &["/card".to_owned()]);
        assert_eq!(binary["payload"], json!({"utf8": "[redacted]"}));
    }

    #[test]
    fn without_pointers_the_payload_stays_as_it_is() {
        let mut untouched = letter("card=1");
        let before = untouched.clone();
        redact(&mut untouched, &[]);
        assert_eq!(untouched, before);
    }

    #[test]
    fn a_pointer_that_is_none_is_a_usage_error() {
        assert_eq!(pointers(&["/card".into(), " /a/b".into()]).unwrap(), ["/card", "/a/b"]);
        for text in ["card", "", "/"] {
            assert_eq!(pointers(&[text.to_owned()]).unwrap_err().exit.code(), 2);
        }
    }

    proptest! {
        #[test]
        fn no_redacted_value_is_left(secret in "[a-zA-Z0-9@.]{3,20}", before in "[a-z ]{0,9}", after in "[a-z ]{0,9}") {
            // The value must not be part of what is ours anyway.
            prop_assume!(!REDACTED.contains(&secret) && !"orders/17 discarded open email card".contains(&secret));
            let payload = json!({"email": secret, "note": format!("{before}{secret}{after}")}).to_string();
            let mut letter = json!({
                "id": "orders/17", "state": "discarded", "error": format!("{before}{secret}{after}"),
                "payload": {"utf8": payload}, "headers": {"x": secret}, "key": secret,
            });
            redact(&mut letter, &["/email".to_owned()]);
            for value in [&letter["error"], &letter["payload"], &letter["headers"]["x"], &letter["key"]] {
                let left = value.to_string().replace(REDACTED, "").replace("note", "").replace("utf8", "");
                prop_assert!(!left.contains(&secret), "{left}");
            }
        }
    }
}
