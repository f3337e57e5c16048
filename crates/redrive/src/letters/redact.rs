//! What of a letter must not be shown: values at given JSON pointers, and headers by name. It is replaced in what leaves by the
//! API, never in the store. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::decimal::Decimal;
use super::edit::Pointer;
use super::edit::json_text::JsonText;

/// What stands in place of a value.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are not looked for in the rest of the letter: a `1` or a `DE` stands everywhere and tells nothing.
const TRACE_CHARS_MIN: usize = 3;

/// The fields of a letter that hold a payload: its own, and the one before its first edit.
const PAYLOADS: [&str; 2] = ["payload", "original"];

/// The fields of a letter that carry what a user wrote; the others are our own words.
const FOREIGN: [&str; 10] = [
    "message",
    "accepted_as",
    "key",
    "tenant",
    "error",
    "headers",
    "original_headers",
    "origin",
    "history",
    "group_error",
];

/// The fields of a letter that hold headers: its own, and those before its first edit.
const HEADERS: [&str; 2] = ["headers", "original_headers"];

/// The field of a letter that says what was replaced in it. An import refuses such a letter.
const MARK: &str = "redacted";

/// Which values are replaced. None, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    pointers: Vec<Pointer>,
    /// In lower case.
    headers: Vec<String>,
}

impl Redaction {
    /// The values at these places of a payload.
    pub fn at(pointers: Vec<Pointer>) -> Self {
        Self { pointers, headers: Vec::new() }
    }

    /// Adds a rule as people write it: `/customer/email`, or `header:x-user`. `false` if it is neither.
    pub fn add(&mut self, rule: &str) -> bool {
        if let Some(name) = rule.strip_prefix("header:").filter(|name| !name.trim().is_empty()) {
            self.headers.push(name.trim().to_ascii_lowercase());
            return true;
        }
        let pointer = Pointer::parse(rule).filter(|_| rule.len() > 1);
        pointer.map(|pointer| self.pointers.push(pointer)).is_some()
    }

    /// Whether nothing is redacted.
    pub fn is_empty(&self) -> bool {
        self.pointers.is_empty() && self.headers.is_empty()
    }

    /// Whether what stands at this place is not shown: a JSON pointer, `header NAME`, or `payload`.
    pub fn hides(&self, at: &str) -> bool {
        if let Some(name) = at.strip_prefix("header ") {
            return self.headers.contains(&name.to_ascii_lowercase());
        }
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut rules = self.pointers.iter().map(ToString::to_string);
        rules.any(|rule| at == "payload" || is_within(at, &rule) || is_within(&rule, at))
    }

    /// The rules, as people write them.
    pub fn rules(&self) -> Vec<String> {
        let headers = self.headers.iter().map(|name| format!("header:{name}"));
        self.pointers.iter().map(ToString::to_string).chain(headers).collect()
    }

    /// Replaces values in a letter as the API shows it, and what was found there wherever else it stands in the letter: an
    /// error text likes to repeat the value it complains about. The rest of the payload stays as it was written. Returns
    /// which rules have found something.
    ///
    /// A payload that is no JSON cannot be searched, so it is replaced as a whole if there are pointers.
    pub fn redact(&self, letter: &mut Value) -> BTreeSet<String> {
        let (mut found, mut whole) = (BTreeSet::new(), false);
        if self.is_empty() {
            return found;
        }
        let mut traces = Traces::default();
        let mut payloads: Vec<(&str, JsonText)> = Vec::new();
        for field in PAYLOADS {
            let Some(value) = letter.get_mut(field).filter(|payload| !payload.is_null()) else { continue };
            let text = value.pointer("/utf8").and_then(Value::as_str);
            if let Some(mut payload) = text.and_then(|text| JsonText::parse(text.as_bytes()).ok()) {
                for pointer in &self.pointers {
                    let replaced = payload.replace_each(pointer, &JsonText::string(REDACTED));
                    if !replaced.is_empty() {
                        replaced.iter().for_each(|value| traces.add(value));
                        found.insert(pointer.to_string());
                    }
                }
                payloads.push((field, payload));
            } else if !self.pointers.is_empty() {
                *value = json!({ "utf8": REDACTED });
                whole = true;
            }
        }
        self.redact_headers(letter, &mut traces, &mut found);
        if !found.is_empty() {
            for (field, mut payload) in payloads {
                traces.scrub_payload(&mut payload);
                letter[field] = json!({ "utf8": payload.into_string() });
            }
            for field in FOREIGN {
                if let Some(value) = letter.get_mut(field) {
                    traces.scrub(value);
                }
            }
        }
        if whole || !found.is_empty() {
            // The pointer to the whole document.
            let all = whole.then(String::new).into_iter().chain(found.iter().cloned());
            letter[MARK] = json!(all.collect::<Vec<_>>());
        }
        found
    }

    fn redact_headers(&self, letter: &mut Value, traces: &mut Traces, found: &mut BTreeSet<String>) {
        for field in HEADERS {
            let Some(headers) = letter.get_mut(field).and_then(Value::as_object_mut) else { continue };
            for (name, value) in headers {
                let name = name.to_ascii_lowercase();
                if self.headers.contains(&name) {
                    traces.add_text(value.as_str().unwrap_or_default());
                    *value = json!(REDACTED);
                    found.insert(format!("header:{name}"));
                }
            }
        }
    }
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
        self.sort();
    }

    fn add_text(&mut self, text: &str) {
        if is_telling(text) {
            self.texts.push(text.to_owned());
            self.sort();
        }
    }

    fn sort(&mut self) {
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

    fn at(pointers: &[&str]) -> Redaction {
        Redaction::at(pointers.iter().map(|pointer| Pointer::parse(pointer).unwrap()).collect())
    }

    fn redact(letter: &mut Value, redaction: &Redaction) -> BTreeSet<String> {
        redaction.redact(letter)
    }

    /// What an edit replaced is shown beside what it wrote.
    #[test]
    fn headers_of_before_an_edit_are_redacted_too() {
        let mut redaction = Redaction::default();
        assert!(redaction.add("header:x-user"));
        let mut letter = letter("{}");
        letter["original_headers"] = json!({"X-User": "alice", "x-src": "web"});
        letter["accepted_as"] = json!("alice-1");
        redact(&mut letter, &redaction);
        assert_eq!(letter["original_headers"], json!({"X-User": "[redacted]", "x-src": "web"}));
        assert!(!letter.to_string().contains("alice"), "{letter}");
    }

    #[test]
    fn headers_are_redacted_by_name_and_their_values_everywhere() {
        let mut redaction = Redaction::default();
        assert!(redaction.add("header:X-User") && redaction.add("/card") && !redaction.is_empty());
        assert!(["card", "", "/", "header:", "/a~"].iter().all(|rule| !redaction.add(rule)));
        assert_eq!(redaction.rules(), ["/card", "header:x-user"]);
        let hidden = ["/card", "/card/number", "payload", "header X-User"];
        assert!(hidden.iter().all(|at| redaction.hides(at)));
        assert!(["/cards", "/currency", "header x", "id"].iter().all(|at| !redaction.hides(at)));
        let mut letter = letter(r#"{"by":"eve@example.com","n":12345678901234567890.10}"#);
        letter["original"] = json!({"utf8": r#"{"card":"4111111111111111"}"#});
        letter["group_error"] = json!("422 card 4111111111111111 refused");
        assert_eq!(redact(&mut letter, &redaction).len(), 2);
        assert_eq!(letter["headers"]["x-user"], "[redacted]");
        assert_eq!(letter["payload"]["utf8"], r#"{"by":"[redacted]","n":12345678901234567890.10}"#);
        assert_eq!(letter["original"]["utf8"], r#"{"card":"[redacted]"}"#);
        assert_eq!(letter["error"], "422 card [redacted] of [redacted] refused");
        assert_eq!(letter["group_error"], "422 card [redacted] refused");
        assert_eq!(letter["redacted"], json!(["/card", "header:x-user"]));
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
        let text = letter.to_string();
        for secret in ["4111111111111111", "eve@example.com"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["/card", "/customer"]);
        assert_eq!(letter["error"], "422 card [redacted] of [redacted] refused");
        assert_eq!(
            (&letter["headers"]["x-src"], &letter["headers"]["x-user"]),
            (&json!("web"), &json!("[redacted]"))
        );
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
        redact(&mut untouched, &Redaction::default());
        assert_eq!(untouched, before);
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
