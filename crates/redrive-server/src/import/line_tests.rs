//! Importing a letter: its times, id, attempts and headers, and which letters are refused.

use redrive_core::Pick;

use super::*;

const NOW: Time = Time::from_millis(1_800_000_000_000);

fn read_plain(text: &str) -> Result<ForeignLetter, String> {
    read(text.as_bytes(), None, &Intake::default(), NOW).map(|read| read.letter)
}

/// A letter that died tomorrow would be the youngest for a day, without a visible reason.
#[test]
fn times_in_the_future_become_the_time_of_the_import_and_are_named() {
    let text = r#"{"message":"m","payload":null,"created":"2099-01-01T00:00:00Z","dead_at":"2026-11-15T10:00:00Z","history":[
        {"attempt":1,"at":"2099-01-02T00:00:00Z","class":"transient","error":"503","counted":true}]}"#;
    let read = read(text.as_bytes(), None, &Intake::default(), NOW).unwrap();
    assert_eq!(
        read.note.as_deref(),
        Some(
            "`created` (2099-01-01T00:00:00Z), `history.at` (2099-01-02T00:00:00Z) are in the future: set to the time of the \
             import"
        )
    );
    assert_eq!((read.letter.message.created(), read.letter.history.attempts()[0].at), (NOW, NOW));
    let past = r#"{"message":"m","payload":null,"created":"2026-11-15T10:00:00Z"}"#;
    assert_eq!(super::read(past.as_bytes(), None, &Intake::default(), NOW).unwrap().note, None);
    let wrong = r#"{"payload":null,"history":[{"attempt":1,"at":"soon"}]}"#;
    assert!(read_plain(wrong).unwrap_err().contains("`history.at`"));
}

#[test]
fn a_record_of_a_topic_becomes_a_letter() {
    let text = r#"{"dialect":"spring","place":"orders-dlt/0/17","origin":"orders/7/1182",
        "exception":"org.springframework.dao.QueryTimeoutException","error":"org.springframework.dao.QueryTimeoutException: x",
        "attempts":4,"created":"2023-11-14T22:13:20.123Z","failed_at":"2023-11-14T22:28:20Z","key":{"utf8":"c-7"},
        "headers":[["a","1"],["a",{"base64":"AP8="}],["none",null]],"payload":{"base64":"AP8="}}"#;
    let letter = read_plain(text).unwrap();
    let message = &letter.message;
    assert_eq!((message.id(), message.key()), ("orders/7/1182", Some(&b"c-7"[..])));
    assert_eq!(message.payload(), Some(&[0, 255][..]));
    let headers: Vec<_> = message.headers_or_null().collect();
    assert_eq!(headers, [("a", Some(&b"1"[..])), ("a", Some(&[0, 255][..])), ("none", None)]);
    assert_eq!(message.created(), Time::from_millis(1_700_000_000_123));
    let origin = letter.origin.unwrap();
    assert_eq!((&*origin.topic, origin.partition, origin.offset), ("orders", 7, 1182));
    let [attempt] = &letter.history.attempts()[..] else { panic!("{:?}", letter.history) };
    assert_eq!((attempt.number, attempt.class, attempt.counted), (4, Class::Permanent, true));
    assert_eq!(attempt.code.as_deref(), Some("QueryTimeoutException"));
    assert_eq!(attempt.at, Time::from_millis(1_700_000_900_000));
    assert_eq!((letter.meta.attempts, letter.meta.first_failed), (4, Some(attempt.at)));
}

#[test]
fn an_id_is_given_picked_or_the_place() {
    let id = |text: &str, intake: &Intake| {
        read(text.as_bytes(), None, intake, NOW).unwrap().letter.message.id().to_owned()
    };
    let by_json = Intake { id: Some(Pick::Json("/n".into())), tenant: Some(Pick::Header("t".into())) };
    let with = |more: &str| format!(r#"{{"place":"dlq/0/17","payload":{{"json":{{"n":7}}}}{more}}}"#);
    assert_eq!(id(&with(""), &Intake::default()), "dlq/0/17");
    assert_eq!(id(&with(r#","origin":"o/1/2""#), &Intake::default()), "o/1/2");
    assert_eq!(id(&with(r#","origin":"o/1/2""#), &by_json), "7");
    assert_eq!(id(&with(r#","message":"m-1""#), &by_json), "m-1");
    let unnamed = id(r#"{"payload":"x"}"#, &Intake::default());
    assert!(unnamed.starts_with("imported-"), "{unnamed}");
    assert_eq!(unnamed, id(r#"{"payload":{"utf8":"x"},"headers":{"a":"b"}}"#, &Intake::default()));
    assert_ne!(unnamed, id(r#"{"payload":"y"}"#, &Intake::default()));
    let tenant = read(br#"{"payload":null,"headers":{"T":"acme"}}"#, None, &by_json, NOW).unwrap().letter;
    assert_eq!(tenant.message.tenant(), Some("acme"));
    assert_eq!(tenant.message.payload(), None);
}

#[test]
fn what_an_export_hides_does_not_come_back_as_a_value() {
    let text = r#"{"message":"m","payload":"{}","headers":{"authorization":"(hidden)","x-note":"(hidden)"},"group":"g1","new":1}"#;
    let headers: Vec<_> =
        read_plain(text).unwrap().message.headers().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(headers, ["x-note"]);
}

#[test]
fn the_attempts_of_an_export_come_back() {
    let text = r#"{"message":"m","payload":null,"attempts":2,"error":"503 no","dead_at":"2026-11-15T10:00:00Z","history":[
        {"attempt":1,"at":"2026-11-15T09:00:00Z","took_ms":5,"class":"transient","kind":"status","status":503,"error":"503 no","counted":true,"ambiguous":true},
        {"attempt":2,"class":"rate_limited","kind":"timeout","error":"slow","code":"E","counted":true,"ambiguous":false}]}"#;
    let letter = read_plain(text).unwrap();
    let attempts = letter.history.attempts();
    assert_eq!((attempts[0].class, attempts[0].kind), (Class::Transient, FailureKind::Status(503)));
    assert!(attempts[0].ambiguous && attempts[0].took_ms == 5);
    assert_eq!((attempts[1].class, attempts[1].kind), (Class::RateLimited, FailureKind::Timeout));
    assert_eq!(letter.meta.attempts, 2);
}

#[test]
fn every_kind_of_failure_comes_back() {
    let kinds = [
        FailureKind::Status(503),
        FailureKind::Timeout,
        FailureKind::Refused,
        FailureKind::Dns,
        FailureKind::Tls,
        FailureKind::Proxy,
        FailureKind::Reset,
        FailureKind::Other,
    ];
    let attempt = |kind: &str, status: Option<u16>| {
        let mut attempt =
            serde_json::json!({"attempt": 1, "class": "transient", "error": "no", "counted": true});
        attempt["status"] = status.into();
        if !kind.is_empty() {
            attempt["kind"] = kind.into();
        }
        let text = serde_json::json!({"message": "m", "payload": null, "history": [attempt]}).to_string();
        read_plain(&text).unwrap().history.attempts()[0].kind
    };
    for kind in kinds {
        assert_eq!(attempt(kind.name(), kind.status()), kind);
    }
    assert_eq!(attempt("", Some(404)), FailureKind::Status(404), "as older exports wrote it");
    assert_eq!(attempt("no such kind", None), FailureKind::Other);
}

#[test]
fn faults_name_the_field() {
    for (text, expected) in [
        ("{", "not a letter"),
        ("[]", "not a letter"),
        (r#"{"message":"m"}"#, "no `payload`"),
        (r#"{"paylod":{"utf8":"x"}}"#, "no `payload`"),
        (r#"{"payload":7}"#, "`payload` is neither"),
        (r#"{"payload":{"utf8":"x","base64":"eA=="}}"#, "exactly one"),
        (r#"{"payload":{"base64":"?"}}"#, "`payload` is not base64"),
        (r#"{"payload":null,"origin":"orders"}"#, "`origin`"),
        (r#"{"payload":null,"origin":"orders/-1/2"}"#, "`origin`"),
        (r#"{"payload":null,"created":"soon"}"#, "`created`"),
        (r#"{"payload":null,"class":"sad"}"#, "`class`"),
        (r#"{"payload":null,"headers":7}"#, "`headers`"),
    ] {
        let problem = read_plain(text).unwrap_err();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

const SPRING: &str = r#""payload":"{}","headers":{"kafka_dlt-original-topic":"orders","kafka_dlt-original-partition":{"base64":"AAAABw=="},
    "kafka_dlt-original-offset":"1182","kafka_dlt-exception-fqcn":"com.example.Late","kafka_dlt-exception-message":"no stock"}"#;

/// Dead letters dumped from a topic into a file.
#[test]
fn headers_of_a_framework_say_what_a_line_does_not() {
    let letter = read_plain(&format!("{{{SPRING}}}")).unwrap();
    let origin = letter.origin.unwrap();
    assert_eq!((&*origin.topic, origin.partition, origin.offset), ("orders", 7, 1182));
    let attempts = letter.history.attempts();
    assert_eq!((letter.message.id(), &*attempts[0].error), ("orders/7/1182", "com.example.Late: no stock"));
    assert_eq!(attempts[0].code.as_deref(), Some("Late"));
    let said = read_plain(&format!(r#"{{"error":"mine",{SPRING}}}"#)).unwrap();
    assert_eq!((said.origin.is_none(), &*said.history.attempts()[0].error), (true, "mine"));
    let known = read_plain(&format!(r#"{{"dialect":"plain",{SPRING}}}"#)).unwrap();
    assert!(known.origin.is_none(), "its reader has read them");
    let connect = r#"{"payload":null,"headers":{"__connect.errors.topic":"o","__connect.errors.partition":"0","__connect.errors.offset":"3",
        "__connect.errors.exception.class.name":"E","__connect.errors.exception.message":"m"}}"#;
    assert_eq!(read_plain(connect).unwrap().history.attempts()[0].error, "E: m");
    let plain = read(connect.as_bytes(), Some(Dialect::Plain), &Intake::default(), NOW).unwrap().letter;
    assert_eq!((plain.origin.is_none(), &*plain.history.attempts()[0].error), (true, ""));
    let pointer = r#"{"payload":null,"headers":{"__dlq.errors.topic":"orders","__dlq.errors.partition":"2","__dlq.errors.offset":"41"}}"#;
    assert!(read_plain(pointer).unwrap_err().contains("points at orders/2/41"));
}

/// Each of them once had the position `/0/0`, so that only the first was imported, and the pipeline's rule was ignored.
#[test]
fn records_of_watermill_without_a_uuid_in_a_file_are_told_apart() {
    let id = |payload: &str, more: &str, intake: &Intake| {
        let line = format!(
            r#"{{"payload":{{"utf8":"{payload}"}},"headers":{{"reason_poisoned":"no","n":"7"}}{more}}}"#
        );
        read(line.as_bytes(), None, intake, NOW).unwrap().letter.message.id().to_owned()
    };
    let (first, second) = (id("x", "", &Intake::default()), id("y", "", &Intake::default()));
    assert!(first.starts_with("imported-") && second.starts_with("imported-"), "{first} {second}");
    assert_ne!(first, second);
    assert_eq!(first, id("x", "", &Intake::default()), "imported twice it is one letter");
    assert_eq!(id("x", r#","place":"poison/0/17""#, &Intake::default()), "poison/0/17");
    let by_header = Intake { id: Some(Pick::Header("n".into())), tenant: None };
    assert_eq!(id("x", r#","place":"poison/0/17""#, &by_header), "7");
}

/// They were once silently imported as if no framework had been named.
#[test]
fn lines_that_the_named_framework_does_not_understand_are_refused_with_the_reason() {
    let as_spring = |line: &str| {
        let read = read(line.as_bytes(), Some(Dialect::Spring), &Intake::default(), NOW);
        read.map(|read| read.letter)
    };
    let damaged = SPRING.replace("1182", "later");
    for line in [format!("{{{damaged}}}"), format!(r#"{{"origin":"orders/7/1182",{damaged}}}"#)] {
        let problem = as_spring(&line).unwrap_err();
        let why = "not understood as spring: the header kafka_dlt-original-offset is not a number; ";
        assert!(problem.starts_with(why), "{problem}");
        // A framework detected from the line counts like a named one.
        assert!(read_plain(&line).unwrap_err().starts_with(why));
    }
    // Without an offset it was once reported to have no topic, and imported without an origin unless Spring was named.
    let cut: String = {
        let mut line: serde_json::Value = serde_json::from_str(&format!("{{{SPRING}}}")).unwrap();
        line["headers"].as_object_mut().unwrap().remove("kafka_dlt-original-offset").unwrap();
        line.to_string()
    };
    for problem in [as_spring(&cut).unwrap_err(), read_plain(&cut).unwrap_err()] {
        let why = "not understood as spring: no header kafka_dlt-original-offset; ";
        assert!(problem.starts_with(why) && problem.contains("`\"dialect\": \"plain\"`"), "{problem}");
    }
    let says = cut.replacen('{', r#"{"origin":"orders/7/1182","#, 1);
    assert!(as_spring(&says).is_ok() && read_plain(&says).is_ok(), "{says}");
    let bare = |more: &str| format!(r#"{{"payload":"{{}}","headers":{{"a":"b"}}{more}}}"#);
    let problem = as_spring(&bare("")).unwrap_err();
    assert!(
        problem.starts_with("not understood as spring: no header kafka_dlt-original-topic; "),
        "{problem}"
    );
    assert!(read_plain(&bare("")).is_ok());
    for says in [r#","origin":"orders/7/1182""#, r#","error":"no stock""#] {
        assert!(as_spring(&bare(says)).is_ok(), "{says}");
    }
    let lost = r#"{"payload":null,"headers":{"__dlq.errors.delivery.count":"5"}}"#;
    assert!(read_plain(lost).unwrap_err().contains("no header names the record that holds the message"));
}

#[test]
fn an_exception_is_part_of_the_error_by_which_letters_are_grouped() {
    let error = |fields: &str| {
        let letter = read_plain(&format!(r#"{{"payload":null,{fields}}}"#)).unwrap();
        letter.history.attempts()[0].error.clone()
    };
    assert_eq!(error(r#""exception":"com.example.Late","error":"no stock""#), "com.example.Late: no stock");
    assert_eq!(error(r#""exception":"com.example.Late","error":"Late: no stock""#), "Late: no stock");
    assert_eq!(
        error(r#""exception":"a.B","error":"x.Y: z\nCaused by: a.B: c""#),
        "x.Y: z\nCaused by: a.B: c"
    );
    assert_eq!((error(r#""exception":"a.B""#), error(r#""error":"e""#)), ("a.B".to_owned(), "e".to_owned()));
}

/// A replay would deliver a tombstone to the receiver.
#[test]
fn a_letter_that_was_erased_is_refused() {
    let line =
        |state: &str| read_plain(&format!(r#"{{"message":"m","payload":{{"utf8":"1"}},"state":"{state}"}}"#));
    let problem = line("erased").unwrap_err();
    assert!(problem.contains("it was erased"), "{problem}");
    assert!(line("open").is_ok());
}

/// A replay would deliver `[redacted]` to the receiver.
#[test]
fn a_letter_that_was_redacted_is_refused() {
    let line =
        |mark: &str| read_plain(&format!(r#"{{"message":"m","payload":{{"utf8":"[redacted]"}}{mark}}}"#));
    let problem = line(r#","redacted":["/card"]"#).unwrap_err();
    assert!(problem.contains(r#"its values at ["/card"] were redacted"#), "{problem}");
    assert!(line(r#","redacted":[""]"#).is_err());
    for none in ["", r#","redacted":[]"#, r#","redacted":null"#] {
        assert!(line(none).is_ok(), "{none}");
    }
}

#[test]
fn headers_beyond_every_bound_lose_the_large_ones_or_are_refused() {
    let large = format!(
        r#"{{"message":"m","payload":null,"headers":[["trace","{}"],["a","b"]]}}"#,
        "x".repeat(300_000)
    );
    let kept: Vec<_> =
        read_plain(&large).unwrap().message.headers().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(kept, ["a"]);
    let many: Vec<String> = (0..300).map(|n| format!(r#"["h{n}","v"]"#)).collect();
    let many = format!(r#"{{"message":"m","payload":null,"headers":[{}]}}"#, many.join(","));
    assert!(read_plain(&many).is_err());
}
