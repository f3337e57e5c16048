//! Records that earlier versions wrote can still be read. `tests/fixtures` has a file for each change of the headers,
//! written by the version before it: `REDRIVE_REGENERATE=1 cargo test -p redrive-kafka --test older_records` writes one
//! with this version.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rdkafka::Timestamp;
use rdkafka::message::{Header, Headers, OwnedHeaders, OwnedMessage};
use redrive::internal::engine::{Attempt, Grouping, History, Letter, LetterState};
use redrive::letters::Filter;
use redrive_core::{Class, FailureKind, Message, Meta, Reason, Time};
use redrive_kafka::record::{CopyRecord, LetterMarks, Origin, Read, RecordReader, headers};
use redrive_kafka::{KafkaPipeline, Only};
use serde::{Deserialize, Serialize};

/// Written before attempts had the kind, status and code of their failures.
const WITHOUT_KINDS: &str = "records-without-kinds.json";
const AT: u64 = 1_790_000_000_000;

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    topic: String,
    payload: String,
    headers: Vec<(String, String)>,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn time(after_ms: u64) -> Time {
    Time::from_millis(AT + after_ms)
}

fn attempt(number: u32, class: Class, kind: FailureKind, error: &str) -> Attempt {
    Attempt {
        number,
        at: time(u64::from(number) * 1000),
        took_ms: 12,
        class,
        kind,
        code: None,
        counted: true,
        ambiguous: number == 2,
        error: error.to_owned(),
    }
}

/// Returns a message that waits in a tier, and one that became a letter.
fn copies() -> [(&'static str, CopyRecord); 2] {
    let message =
        Message::builder("o-1").key("c-7").payload("{\"n\":1}").tenant("acme").header("trace", "abc");
    let message = message.created(time(0)).build().unwrap();
    let history = History::default()
        .with(&attempt(1, Class::Transient, FailureKind::Status(503), "503 Service Unavailable: busy"))
        .with(&attempt(2, Class::Transient, FailureKind::Other, "timed out after 5s"));
    let last = (Class::Permanent, FailureKind::Status(422), "422 Unprocessable Entity: no_lines");
    let waiting = CopyRecord {
        message,
        meta: Meta {
            created: time(0),
            attempts: 2,
            first_failed: Some(time(1000)),
            last_delay_ms: 4000,
            ..Meta::default()
        },
        history,
        origin: Origin { topic: "orders".into(), partition: 7, offset: 1182 },
        due: Some(time(9000)),
        reason: None,
        dead_at: None,
        job: None,
        marks: LetterMarks::default(),
    };
    let letter = CopyRecord {
        meta: Meta { attempts: 3, ..waiting.meta },
        history: waiting.history.with(&attempt(3, last.0, last.1, last.2)),
        due: None,
        reason: Some(Reason::Permanent),
        dead_at: Some(time(3012)),
        ..waiting.clone()
    };
    [("orders.retry.5s", waiting), ("orders.DLQ", letter)]
}

fn written() -> Vec<StoredRecord> {
    let stored = |(topic, copy): &(&str, CopyRecord)| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let all = headers(copy, Some(&copy.origin));
        let pair = |header: Header<'_, &[u8]>| (header.key.to_owned(), text(header.value.unwrap()));
        StoredRecord {
            topic: (*topic).to_owned(),
            payload: text(copy.message.payload().unwrap()),
            headers: all.iter().map(pair).collect(),
        }
    };
    copies().iter().map(stored).collect()
}

fn read(record: &StoredRecord) -> CopyRecord {
    let insert = |headers: OwnedHeaders, (key, value): &(String, String)| {
        headers.insert(Header { key, value: Some(value.as_bytes()) })
    };
    let message = OwnedMessage::new(
        Some(record.payload.clone().into_bytes()),
        Some(b"c-7".to_vec()),
        record.topic.clone(),
        Timestamp::CreateTime(AT.cast_signed()),
        7,
        40,
        Some(record.headers.iter().fold(OwnedHeaders::new(), insert)),
    );
    let pipeline = KafkaPipeline {
        name: "orders".to_owned(),
        source: "orders".to_owned(),
        tiers: vec![Duration::from_secs(5)],
        id: None,
        tenant: None,
        ttl: None,
        blocking: false,
        subscriptions: false,
        only: Only::Everything,
    };
    match RecordReader::new(&pipeline).read(&message) {
        Ok(Read::Copy(copy)) => *copy,
        other => panic!("{other:?}"),
    }
}

fn is_found(copy: &CopyRecord, filter: &str) -> bool {
    let letter = Letter {
        id: 1,
        state: LetterState::Open,
        reason: copy.reason.unwrap_or(Reason::MaxRetries),
        dead_at: copy.dead_at.unwrap_or(time(0)),
        job: None,
        message: copy.message.clone(),
        meta: copy.meta,
        history: copy.history.clone(),
        group: Grouping::default().of(Reason::MaxRetries, None),
        edits: Vec::new(),
        options: None,
    };
    Filter::parse(filter).unwrap().matches(&letter, time(10_000))
}

#[test]
fn records_without_kinds_are_read_and_found_by_their_status() {
    if std::env::var_os("REDRIVE_REGENERATE").is_some() {
        let text = serde_json::to_string_pretty(&written()).unwrap();
        fs::write(fixture("records-of-this-version.json"), text + "\n").unwrap();
    }
    let records: Vec<StoredRecord> =
        serde_json::from_slice(&fs::read(fixture(WITHOUT_KINDS)).unwrap()).unwrap();
    let [waiting, letter] = &records[..] else { panic!("two records") };
    let [(_, expected_waiting), (_, expected_letter)] = copies();
    assert_eq!(read(waiting), expected_waiting);
    let letter = read(letter);
    assert_eq!(letter, expected_letter);
    assert!(is_found(&letter, "status:422") && !is_found(&letter, "status:503"));
}
