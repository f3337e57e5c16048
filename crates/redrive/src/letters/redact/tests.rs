//! Tests what is shown of a letter, and what never is.

use proptest::prelude::*;

use super::*;

fn letter(payload: &str) -> Value {
    json!({
        "id": "orders/17", "message": "o-17", "state": "discarded", "attempts": 4,
        "error": "422 card 4111111111111111 of eve@example.com refused",
        "headers": {"x-src": "web", "Authorization": "Bearer s3cret", "x-user": "eve@example.com"},
        "payload": {"utf8": payload},
        "history": [{"attempt": 1, "at": "2026-11-15T08:01:12.000Z", "took_ms": 112, "status": 422, "code": "card_4111111111111111", "error": "card 4111111111111111"}],
    })
}

fn at(pointers: &[&str]) -> Redaction {
    Redaction::at(pointers.iter().map(|pointer| Pointer::parse(pointer).unwrap()).collect())
}

fn redact(letter: &mut Value, redaction: &Redaction) -> BTreeSet<String> {
    redaction.redact(letter)
}

/// The replaced version of an edited message is shown as well.
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
    assert_eq!(letter["error"], "422 [redacted]");
    assert_eq!(letter["group_error"], "422 [redacted]");
    assert_eq!(letter["redacted"], json!(["/card", "header:x-user"]));
}

/// Every number used to be read as a float and printed again, fields were sorted, and repeated ones dropped.
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
    assert_eq!(letter["error"], "422 [redacted]");
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

#[test]
fn what_others_wrote_of_a_message_is_not_shown_whatever_it_says() {
    for payload in ["not json at all", r#"{"other":"field"}"#, r#"{"card":"4111"}"#] {
        let mut letter = letter(payload);
        redact(&mut letter, &at(&["/card"]));
        assert_eq!(letter["error"], "422 [redacted]", "{payload}");
        assert_eq!(letter["history"][0]["error"], "422 [redacted]", "{payload}");
        assert_eq!(letter["history"][0]["code"], "[redacted]", "{payload}");
    }
}

#[test]
fn a_value_that_an_edit_has_replaced_is_hidden_where_the_rest_repeats_it() {
    let message = |payload: &str| {
        let builder = redrive_core::Message::builder("o-17").header("x-user", "Mallory Old");
        builder.payload(payload.to_owned()).build().unwrap()
    };
    let mut redaction = at(&["/email"]);
    assert!(redaction.add("header:x-user"));
    let mut secrets = Secrets::default();
    for version in [r#"{"email":"first@example.com"}"#, r#"{"email":{"second@example.com":"x"}}"#] {
        secrets.add_message(&message(version), &redaction);
    }
    let mut letter = letter(r#"{"email":"third@example.com","was":"first%40example.com"}"#);
    letter["key"] = json!("second@example.com");
    letter["tenant"] = json!("mallory old");
    redaction.redact_with(&mut letter, secrets);
    assert_eq!(letter["payload"]["utf8"], r#"{"email":"[redacted]","was":"[redacted]"}"#);
    assert_eq!((&letter["key"], &letter["tenant"]), (&json!("[redacted]"), &json!("[redacted]")));
}

#[test]
fn a_short_value_is_hidden_where_it_stands_alone_outside_of_the_payload() {
    let mut letter = letter(r#"{"country":"DE","lang":"DE","size":7,"n":7}"#);
    letter["key"] = json!("DE");
    letter["tenant"] = json!("7");
    redact(&mut letter, &at(&["/country", "/size"]));
    assert_eq!((&letter["key"], &letter["tenant"]), (&json!("[redacted]"), &json!("[redacted]")));
    assert_eq!(
        letter["payload"]["utf8"],
        r#"{"country":"[redacted]","lang":"DE","size":"[redacted]","n":7}"#
    );
    assert_eq!(letter["id"], "orders/17");
}

/// The spellings of a text to look for.
fn spellings(secret: &str) -> Vec<String> {
    let quoted = json!(secret).to_string();
    let json = quoted.trim_matches('"').to_owned();
    let percent = |keep: fn(u8) -> bool| -> String {
        let one = |byte: u8| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        secret.bytes().map(one).collect()
    };
    let units = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat();
    let html = secret.chars().map(|char| format!("&#{};", u32::from(char))).collect::<Vec<_>>().concat();
    let url = percent(|byte| byte.is_ascii_alphanumeric());
    vec![
        secret.to_owned(),
        json,
        url.replace('%', "%25"),
        url,
        percent(|_| false),
        units,
        html,
        secret.to_uppercase(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However and wherever a value is repeated, no field of a letter shows it.
    #[test]
    fn no_redacted_value_is_left_in_any_spelling(
        secret in r#"[a-z0-9@."\\ /<é世]{2,20}[a-z0-9]{2}"#,
        replaced in "[q-z]{5,9}[0-9]{3}",
        cut in 0..30_usize,
        before in "[a-p ]{0,9}",
    ) {
        let ours = "orders/17 discarded open email card note payload utf8 headers error key tenant message history status code type";
        prop_assume!(!ours.contains(secret.trim()) && secret.trim().len() > 3);
        for spelled in spellings(&secret).into_iter().chain(spellings(&replaced)) {
            let told = format!("{before}{spelled}");
            let cut_text = told.chars().take(told.chars().count().saturating_sub(cut)).collect::<String>();
            let payload = json!({"email": secret, "note": told, "deep": [{"x": told}]}).to_string();
            let mut letter = json!({
                "id": "orders/17", "message": told, "state": "discarded", "error": cut_text, "group_error": told,
                "payload": {"utf8": payload}, "headers": {"x": told, "x-user": replaced}, "key": told, "tenant": told,
                "type": told, "correlation_id": told, "accepted_as": told, "original": {"utf8": payload},
                "original_headers": {"y": told},
                "history": [{"attempt": 1, "status": 422, "error": cut_text, "code": told}],
            });
            let mut redaction = at(&["/email"]);
            redaction.add("header:x-user");
            redaction.redact(&mut letter);
            let shown = letter.to_string();
            for form in [&secret, &replaced, &spelled] {
                prop_assert!(!shown.contains(form.as_str()), "{form:?} in {shown}");
                let escaped = json!(form).to_string();
                prop_assert!(!shown.contains(escaped.trim_matches('"')), "{form:?} in {shown}");
            }
        }
    }
}
