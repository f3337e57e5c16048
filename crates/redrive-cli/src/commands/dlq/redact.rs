//! What of a letter must not leave: values at given JSON pointers, and headers that carry secrets. Pure.

use std::collections::BTreeSet;

use redrive::letters::decimal::Decimal;
use redrive::letters::edit::Pointer;
use redrive::letters::edit::json_text::JsonText;
use redrive_core::text::secret_header::is_secret_header;
use serde_json::{Value, json};

use crate::exit::Failed;

/// What stands in place of a value.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are not looked for in the rest of the letter: a `1` or a `DE` stands everywhere and tells nothing.
const TRACE_CHARS_MIN: usize = 3;

/// The fields of a letter that carry what a user wrote; the others are our own words.
const FOREIGN: [&str; 7] = ["message", "key", "tenant", "error", "headers", "origin", "history"];

/// The field of an exported letter that says what was replaced in it. An import refuses such a letter.
const MARK: &str = "redacted";

/// Reads `--redact /card,/email`.
pub fn pointers(texts: &[String]) -> Result<Vec<Pointer>, Failed> {
    texts
        .iter()
        .map(|text| {
            let text = text.trim();
            Pointer::parse(text).filter(|_| text.len() > 1).ok_or_else(|| {
                Failed::usage(format!("--redact `{text}` is not a JSON pointer"))
                    .hint("write it like /card or /customer/email")
            })
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
/// letter: an error text likes to repeat the value it complains about. The rest of the payload stays as it was written.
/// Returns which pointers were found.
///
/// A payload that is no JSON cannot be searched, so it is replaced as a whole.
pub fn redact(letter: &mut Value, pointers: &[Pointer]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if pointers.is_empty() {
        return found;
    }
    let text = letter.pointer("/payload/utf8").and_then(Value::as_str);
    let Some(mut payload) = text.and_then(|text| JsonText::parse(text.as_bytes()).ok()) else {
        if let Some(whole) = letter.get_mut("payload").filter(|payload| !payload.is_null()) {
            *whole = json!({ "utf8": REDACTED });
            // The pointer to the whole document.
            letter[MARK] = json!([""]);
        }
        return found;
    };
    let mut traces = Traces::default();
    for pointer in pointers {
        let replaced = payload.replace_each(pointer, &JsonText::string(REDACTED));
        if !replaced.is_empty() {
            replaced.iter().for_each(|value| traces.add(value));
            found.insert(pointer.to_string());
        }
    }
    if found.is_empty() {
        return found;
    }
    traces.scrub_payload(&mut payload);
    letter["payload"] = json!({ "utf8": payload.into_string() });
    for field in FOREIGN {
        if let Some(value) = letter.get_mut(field) {
            traces.scrub(value);
        }
    }
    letter[MARK] = json!(found);
    found
}

/// What was replaced, to find it wherever else it stands.
#[derive(Default)]
struct Traces {
    /// The longest first, so that a value that contains another one goes as a whole.
    texts: Vec<String>,
    /// The same number may be written in another way elsewhere.
    numbers: Vec<Decimal>,
}

impl Traces {
    /// The texts of all strings and numbers inside a value.
    fn add(&mut self, value: &JsonText) {
        for scalar in value.scalars() {
            let text = match scalar.as_bytes().first() {
                Some(b'"') => serde_json::from_str(scalar).unwrap_or_default(),
                Some(b'-' | b'0'..=b'9') => scalar.to_owned(),
                _ => continue,
            };
            if let Some(number) = Decimal::parse(&text).filter(|number| is_telling(&number.to_string())) {
                self.texts.push(number.to_string());
                self.numbers.push(number);
            }
            if is_telling(&text) {
                self.texts.push(text);
            }
        }
        self.texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.texts.dedup();
    }

    /// The text without any trace; `None` if there was none in it.
    fn without(&self, text: &str) -> Option<String> {
        let found = self.texts.iter().filter(|trace| text.contains(trace.as_str()));
        found.fold(None, |text_so_far: Option<String>, trace| {
            Some(text_so_far.as_deref().unwrap_or(text).replace(trace.as_str(), REDACTED))
        })
    }

    fn has_number(&self, text: &str) -> bool {
        let same = |number| self.numbers.contains(&number);
        self.texts.iter().any(|trace| trace == text) || Decimal::parse(text).is_some_and(same)
    }

    fn scrub_payload(&self, payload: &mut JsonText) {
        payload.replace_scalars(|scalar| match scalar.as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<String>(scalar) {
                Ok(text) => self.without(&text).map(|text| JsonText::string(&text)),
                // A text that cannot be read, as with half a surrogate pair, cannot be searched either.
                Err(_) => Some(JsonText::string(REDACTED)),
            },
            Some(b'-' | b'0'..=b'9') => self.has_number(scalar).then(|| JsonText::string(REDACTED)),
            _ => None,
        });
    }

    fn scrub(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(clean) = self.without(text) {
                    *text = clean;
                }
            }
            Value::Number(number) if self.has_number(&number.to_string()) => {
                *value = Value::String(REDACTED.to_owned());
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub(item)),
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    // Our own numbers and words inside an attempt stay readable.
                    if !matches!(name.as_str(), "attempt" | "at" | "took_ms" | "class") {
                        self.scrub(field);
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_telling(text: &str) -> bool {
    text.chars().count() >= TRACE_CHARS_MIN
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    fn at(pointers: &[&str]) -> Vec<Pointer> {
        pointers.iter().map(|pointer| Pointer::parse(pointer).unwrap()).collect()
    }

    /// Every number was read as a float and printed again, fields were sorted, and repeated ones dropped.
    #[test]
    fn what_is_not_redacted_stays_as_it_was_written() {
        let mut letter = letter(
            r#"{ "z": 98765432109876543210.10, "card":"4111111111111111", "price":2.50,"big":1e400, "a":1, "a" : "caf\u00e9"}"#,
        );
        redact(&mut letter, &at(&["/card"]));
        assert_eq!(
            letter["payload"]["utf8"],
            r#"{ "z": 98765432109876543210.10, "card":"[redacted]", "price":2.50,"big":1e400, "a":1, "a" : "caf\u00e9"}"#
        );
    }

    #[test]
    fn a_value_is_found_in_repeated_fields_and_in_other_spellings() {
        let mut letter = letter(
            r#"{"card":"first-secret","card":41111111111111112222,"copies":[41111111111111112222.0,"no. 4\u003111111111111111222\u0032"],"at":"first-secret","odd":"\ud800"}"#,
        );
        redact(&mut letter, &at(&["/card"]));
        assert_eq!(
            letter["payload"]["utf8"],
            r#"{"card":"[redacted]","card":"[redacted]","copies":["[redacted]","no. [redacted]"],"at":"[redacted]","odd":"[redacted]"}"#
        );
    }

    #[test]
    fn a_letter_says_what_was_redacted_in_it() {
        for (payload, mark) in [
            (r#"{"card":1,"email":"e"}"#, json!(["/card", "/email"])),
            (r#"{"card":1}"#, json!(["/card"])),
            ("card=1", json!([""])),
            (r#"{"other":1}"#, Value::Null),
        ] {
            let mut letter = letter(payload);
            redact(&mut letter, &at(&["/email", "/card"]));
            assert_eq!(letter["redacted"], mark, "{payload}");
        }
    }

    #[test]
    fn a_redacted_value_is_gone_from_the_whole_letter() {
        let mut letter = letter(
            r#"{"order_id":"o-17","card":4111111111111111,"customer":{"email":"eve@example.com"},"copy":["eve@example.com"]}"#,
        );
        let found = redact(&mut letter, &at(&["/card", "/customer", "/nowhere"]));
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
        assert!(redact(&mut text, &at(&["/card"])).is_empty());
        assert_eq!(text["payload"], json!({"utf8": "[redacted]"}));
        let mut binary = letter("");
        binary["payload"] = json!({"base64": "NDExMQ=="});
        redact(&mut binary, &at(&["/card"]));
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
        assert_eq!(pointers(&["/card".into(), " /a/b".into()]).unwrap(), at(&["/card", "/a/b"]));
        for text in ["card", "", "/", "/a~"] {
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
            redact(&mut letter, &at(&["/email"]));
            for value in [&letter["error"], &letter["payload"], &letter["headers"]["x"], &letter["key"]] {
                let left = value.to_string().replace(REDACTED, "").replace("note", "").replace("utf8", "");
                prop_assert!(!left.contains(&secret), "{left}");
            }
        }
    }
}
