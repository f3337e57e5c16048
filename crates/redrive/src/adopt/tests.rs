//! Tests the golden records of each framework, and that no bytes make the reader panic.

use proptest::prelude::*;
use redrive_core::Time;
use redrive_core::fingerprint::{DeathCause, fingerprint};
use redrive_core::{GroupRules, Reason};
use serde_json::Value;

use super::record::Header;
use super::{Dialect, ForeignRecord, NotUnderstood, Understood};

const WRITTEN: Time = Time::from_millis(1_700_000_900_000);

fn golden(dialect: Dialect) -> Vec<Value> {
    let text = match dialect {
        Dialect::Spring => include_str!("golden/spring.json"),
        Dialect::Connect => include_str!("golden/connect.json"),
        Dialect::Streams => include_str!("golden/streams.json"),
        Dialect::Kip1191 => include_str!("golden/kip1191.json"),
        Dialect::Watermill => include_str!("golden/watermill.json"),
        Dialect::Karafka => include_str!("golden/karafka.json"),
        Dialect::Plain => include_str!("golden/plain.json"),
    };
    serde_json::from_str(text).unwrap()
}

/// Text, or `{"hex": …}` for bytes that are not text.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(hex) = value.get("hex").and_then(Value::as_str) {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        return Some((0..hex.len()).step_by(2).map(byte).collect());
    }
    value.as_str().map(|text| text.as_bytes().to_vec())
}

/// Reads a golden record and passes it to `test`.
fn with_record<T>(golden: &Value, test: impl FnOnce(&ForeignRecord<'_>) -> T) -> T {
    let (key, value) = (bytes(&golden["key"]), bytes(&golden["value"]));
    let headers = golden["headers"].as_array().unwrap().iter();
    let headers: Vec<(String, Option<Vec<u8>>)> =
        headers.map(|header| (header[0].as_str().unwrap().to_owned(), bytes(&header[1]))).collect();
    let headers: Vec<Header<'_>> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    let (key, value) = (key.as_deref(), value.as_deref());
    test(&ForeignRecord {
        topic: "dlq",
        partition: 0,
        offset: 17,
        written: Some(WRITTEN),
        key,
        value,
        headers,
    })
}

fn check(case: &str, expected: &Value, understood: &Understood) {
    let text = |name: &str| expected[name].as_str().map(str::to_owned);
    let number = |name: &str| expected[name].as_u64();
    assert_eq!(understood.origin.as_ref().map(ToString::to_string), text("origin"), "{case}");
    assert_eq!(understood.message_id, text("message"), "{case}");
    assert_eq!(understood.exception, text("exception"), "{case}");
    assert_eq!(understood.error, text("error"), "{case}");
    assert_eq!(understood.attempts.map(u64::from), number("attempts"), "{case}");
    assert_eq!(understood.created.map(Time::as_millis), number("created"), "{case}");
    assert_eq!(understood.failed_at, Some(WRITTEN), "{case}");
    assert_eq!(understood.is_pointer, expected["pointer"] == true, "{case}");
    if let Some(group) = text("group") {
        let error = understood.error.as_deref();
        let cause =
            DeathCause { reason: Reason::Imported, class: None, status: None, error, sink: "webhook" };
        assert_eq!(fingerprint(&cause, &GroupRules::default()).title, group, "{case}");
    }
}

#[test]
fn the_golden_records_of_each_framework_are_understood() {
    for dialect in Dialect::ALL {
        for golden in golden(dialect) {
            let case = format!("{}: {}", dialect.name(), golden["name"]);
            let understood = with_record(&golden, |record| dialect.understand(record, false));
            match (understood, golden["not_understood"].as_str()) {
                (Ok(understood), None) => check(&case, &golden["understood"], &understood),
                (Err(why), Some(expected)) => assert_eq!(why.to_string(), expected, "{case}"),
                (understood, _) => panic!("{case}: {understood:?}"),
            }
        }
    }
}

#[test]
fn records_without_an_origin_are_understood_once_somebody_says_which_topic() {
    for dialect in Dialect::ALL {
        for golden in golden(dialect) {
            let said = with_record(&golden, |record| dialect.understand(record, true));
            let before = with_record(&golden, |record| dialect.understand(record, false));
            match before {
                Ok(before) => assert_eq!(said, Ok(before)),
                Err(why) => assert_eq!(said.is_ok(), why.needs_source(), "{}", golden["name"]),
            }
        }
    }
}

#[test]
fn the_framework_is_told_by_its_headers() {
    for dialect in Dialect::ALL {
        for golden in golden(dialect).iter().filter(|golden| golden["understood"]["origin"].is_string()) {
            let detected = with_record(golden, Dialect::detect);
            assert_eq!(detected, Some(dialect), "{}", golden["name"]);
        }
        assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
        assert!(!dialect.reads().is_empty());
    }
    let mut record = ForeignRecord {
        topic: "dlq",
        partition: 0,
        offset: 0,
        written: None,
        key: None,
        value: Some(b"{}"),
        headers: vec![("content-type", Some(b"application/json"))],
    };
    assert_eq!(Dialect::understand_any(&record, false), Err(NotUnderstood::NoDialect));
    assert!(Dialect::understand_any(&record, true).is_ok_and(|as_plain| as_plain.dialect == Dialect::Plain));
    // The record passed through Spring, and then through Connect.
    record.headers = vec![("kafka_dlt-original-topic", Some(b"a")), ("__connect.errors.topic", Some(b"b"))];
    assert_eq!(Dialect::detect(&record), Some(Dialect::Connect));
}

/// Header names that some dialect reads, and others.
fn names() -> impl Strategy<Value = String> {
    let known: Vec<String> = Dialect::ALL
        .into_iter()
        .flat_map(golden)
        .flat_map(|golden| {
            let headers = golden["headers"].as_array().unwrap().clone();
            headers.into_iter().map(|header| header[0].as_str().unwrap().to_owned())
        })
        .collect();
    prop_oneof![4 => prop::sample::select(known), 1 => ".{0,20}"]
}

/// Arbitrary bytes, digits, and malformed stack traces.
fn values() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        Just(None),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
        "[0-9]{0,25}".prop_map(|text| Some(text.into_bytes())),
        "(Caused by: |\tat |é|: |org\\.springframework\\.kafka\\.listener\\.ListenerExecutionFailedException|\n){0,12}"
            .prop_map(|text| Some(text.into_bytes())),
    ]
}

proptest! {
    #[test]
    fn no_bytes_bring_a_dialect_down(
        headers in prop::collection::vec((names(), values()), 0..12),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..8)),
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..8)),
        offset: i64,
        has_source: bool,
    ) {
        let headers: Vec<Header<'_>> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let (key, value) = (key.as_deref(), value.as_deref());
        let record = ForeignRecord { topic: "dlq", partition: 0, offset, written: None, key, value, headers };
        for dialect in Dialect::ALL {
            if let Ok(understood) = dialect.understand(&record, has_source) {
                let origin = understood.origin;
                prop_assert!(origin.is_none_or(|origin| origin.partition >= 0 && origin.offset >= 0));
            }
        }
        let _ = Dialect::understand_any(&record, has_source);
    }
}
