//! This version continues with topics that earlier versions wrote: on a real broker, waiting messages are delivered,
//! and letters are listed and replayed. `tests/fixtures/topics-*.json` holds everything a pipeline has in its topics
//! and commits, and `REDRIVE_REGENERATE=1 cargo test -p redrive-kafka --test older_topics` writes one with this
//! version.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use redrive::internal::engine::{
    Deliver, Delivery, KeepLetters, LetterChange, LetterState, Query, ReplayAnswer, ReplayJob, ReplayTarget,
    StoreOptions, TakeGate, Verdict,
};
use redrive_core::{FailureKind, Meta, Reason, Time};
use redrive_kafka::TopicsMode;
use redrive_kafka::topics::scan::Scan;
use redrive_kafka::topics::{Topics, prepare};
use serde::{Deserialize, Serialize};
use support::drive::{at, ids, messages, settle, take};
use support::{LIMIT, World, wait};

const TIERS: [Duration; 1] = [Duration::from_secs(5)];
/// Records of the source: so many that the completions do not fit into a note beside an offset and go to `T.progress`.
const SOURCE: u32 = 4_000;
/// Written by the version that introduced this test.
const FIRST: &str = "topics-2026-11-18.json";
/// Written before attempts had the kind, status and code of their failures.
const WITHOUT_KINDS: &str = "records-without-kinds.json";
/// Placeholder for the name of the pipeline.
const T: &str = "{T}";

/// Everything that is stored of a pipeline except its source.
#[derive(Default, Serialize, Deserialize)]
struct StoredTopics {
    records: Vec<StoredRecord>,
    commits: Vec<StoredCommit>,
}

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    topic: String,
    #[serde(default)]
    partition: i32,
    #[serde(default)]
    key: Option<String>,
    payload: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct StoredCommit {
    topic: String,
    partition: i32,
    offset: i64,
    note: String,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Writes text unchanged, and other bytes as hex digits after `hex:`.
fn text(bytes: &[u8], name: &str) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.replace(name, T),
        Err(_) => bytes.iter().fold("hex:".to_owned(), |all, byte| format!("{all}{byte:02x}")),
    }
}

fn bytes(text: &str, name: &str) -> Vec<u8> {
    let Some(digits) = text.strip_prefix("hex:") else { return text.replace(T, name).into_bytes() };
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Returns everything a pipeline has in its topics and has committed.
fn stored(world: &World) -> StoredTopics {
    let name = &world.pipeline.name;
    let topics = Topics::of(&world.pipeline);
    let mut all = StoredTopics::default();
    let scan = Scan::new(&world.cluster).unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition(&topics.source, 0);
    for (_, topic) in topics.owned() {
        list.add_partition(topic, 0);
        let each = |record: &BorrowedMessage<'_>| {
            let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
            all.records.push(StoredRecord {
                topic: topic.replace(name, T),
                partition: record.partition(),
                key: record.key().map(|key| text(key, name)),
                payload: record.payload().map(|payload| text(payload, name)),
                headers: headers
                    .map(|header| (header.key.to_owned(), text(header.value.unwrap(), name)))
                    .collect(),
            });
        };
        scan.read(&scan.bounds(topic).unwrap(), |span| span.low, each).unwrap();
    }
    let consumer: BaseConsumer =
        support::client_at(&world.brokers).set("group.id", &world.cluster.group).create().unwrap();
    for element in consumer.committed_offsets(list, LIMIT).unwrap().elements() {
        if let Offset::Offset(offset) = element.offset() {
            all.commits.push(StoredCommit {
                topic: element.topic().replace(name, T),
                partition: element.partition(),
                offset,
                note: element.metadata().to_owned(),
            });
        }
    }
    all
}

/// Writes what is stored to the topics of a world.
fn load(world: &World, stored: &StoredTopics) {
    let name = &world.pipeline.name;
    prepare(&world.cluster, &world.pipeline, TopicsMode::Create).unwrap();
    let producer: BaseProducer = support::client_at(&world.brokers).create().unwrap();
    for record in &stored.records {
        let topic = record.topic.replace(T, name);
        let headers = record.headers.iter().fold(OwnedHeaders::new(), |all, (key, value)| {
            all.insert(Header { key, value: Some(&bytes(value, name)) })
        });
        let part = |part: &Option<String>| part.as_ref().map(|part| bytes(part, name));
        let (key, payload) = (part(&record.key), part(&record.payload));
        let mut sent = BaseRecord::<[u8], [u8]>::to(&topic).partition(record.partition).headers(headers);
        sent.key = key.as_deref();
        sent.payload = payload.as_deref();
        producer.send(sent).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
    let consumer: BaseConsumer =
        support::client_at(&world.brokers).set("group.id", &world.cluster.group).create().unwrap();
    let mut list = TopicPartitionList::new();
    for commit in &stored.commits {
        let mut element = list.add_partition(&commit.topic.replace(T, name), commit.partition);
        element.set_offset(Offset::Offset(commit.offset)).unwrap();
        element.set_metadata(&commit.note);
    }
    wait("the group takes the offsets", || consumer.commit(&list, CommitMode::Sync).is_ok());
}

fn number(delivery: &Delivery) -> u32 {
    delivery.message.id()[1..].parse().unwrap()
}

/// Settles the odd messages as done, except that m1 waits in the tier, m3 is an open letter and m5 a discarded one. The
/// even ones are not delivered, and the pipeline is paused.
fn write_with_this_version() -> StoredTopics {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..SOURCE));
    let mut engine = world.open(StoreOptions::default());
    let (odd, even): (Vec<_>, Vec<_>) =
        take(&mut engine, at(0), SOURCE as usize).into_iter().partition(|one| number(one) % 2 == 1);
    settle(&mut engine, odd, |one| match number(one) {
        1 => Verdict::Retry { due: at(500), meta: Meta { attempts: 1, ..one.meta } },
        3 | 5 => {
            Verdict::Dead { reason: Reason::Permanent, meta: Meta { attempts: 1, ..one.meta }, at: at(1) }
        }
        _ => Verdict::Done,
    });
    settle(&mut engine, even, |_| Verdict::Release);
    let letters = engine.letters(Some(LetterState::Open), None, 10).unwrap();
    let fifth = letters.iter().find(|letter| letter.message.id() == "m5").expect("m5 is a letter").id;
    assert_eq!(engine.change_letters(&LetterChange::Discard, &[fifth], at(2).into()).unwrap(), [true]);
    engine.gate_all(TakeGate::Shut).unwrap();
    engine.close().unwrap();
    drop(engine);
    stored(&world)
}

#[test]
fn topics_of_the_first_fixture_are_continued() {
    if std::env::var_os("REDRIVE_REGENERATE").is_some() {
        let text = serde_json::to_string_pretty(&write_with_this_version()).unwrap();
        fs::write(fixture("topics-of-this-version.json"), text + "\n").unwrap();
    }
    let stored: StoredTopics = serde_json::from_slice(&fs::read(fixture(FIRST)).unwrap()).unwrap();
    assert_continued(&stored);
}

/// This version can read its own records in the same way, so a fixture can be written at any time.
#[test]
fn topics_of_this_version_are_continued() {
    assert_continued(&write_with_this_version());
}

fn assert_continued(stored: &StoredTopics) {
    let written: BTreeSet<&str> = stored.records.iter().map(|record| &*record.topic).collect();
    for suffix in [".retry.5s", ".DLQ", ".DLQ.state", ".progress", ".control"] {
        assert!(written.contains(&*format!("{T}{suffix}")), "{suffix} is not in {written:?}");
    }
    assert!(stored.commits.iter().any(|commit| commit.note.starts_with("v1 ")), "no commit has a note");
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..SOURCE));
    load(&world, stored);

    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(engine.shared_gate(), Some(TakeGate::Shut), "it is paused as it was");
    engine.gate_all(TakeGate::Open).unwrap();
    let counts = engine.counts();
    let half = u64::from(SOURCE / 2);
    assert_eq!((counts.ready, counts.delayed, counts.letters_open), (half, 1, 1), "{counts:?}");
    let rest = take(&mut engine, at(0), SOURCE as usize / 2);
    assert!(rest.iter().all(|one| number(one).is_multiple_of(2)), "what was done is not delivered again");
    settle(&mut engine, rest, |_| Verdict::Done);
    let retried = take(&mut engine, at(500), 1);
    assert_eq!((retried[0].message.id(), retried[0].meta.attempts), ("m1", 1));
    settle(&mut engine, retried, |_| Verdict::Done);
    replays(&mut engine, "m3", at(600));
    engine.close().unwrap();
}

/// Checks that the only open letter is that of message `id`, and that a replay delivers it.
fn replays(engine: &mut redrive_kafka::KafkaEngine, id: &str, now: Time) {
    let letters = engine.letters(Some(LetterState::Open), None, 10).unwrap();
    assert_eq!(letters.iter().map(|letter| letter.message.id()).collect::<Vec<_>>(), [id]);
    let job = ReplayJob { id: 7, due: now, force: false, target: ReplayTarget::Pipeline };
    assert_eq!(engine.replay(&job, &[letters[0].id], now.into()).unwrap(), [ReplayAnswer::Replayed]);
    let again = take(engine, now, 1);
    assert_eq!((ids(&again), again[0].meta.replays), ([id.to_owned()].into(), 1));
    settle(engine, again, |_| Verdict::Done);
    assert_eq!(engine.counts().letters_open, 0);
}

/// Records of the version before attempts had kinds, with a commit, a letter's state and a pause as it wrote them.
#[test]
fn topics_without_kinds_are_continued() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..4));
    let mut records: Vec<StoredRecord> =
        serde_json::from_slice(&fs::read(fixture(WITHOUT_KINDS)).unwrap()).unwrap();
    // The fixture has one message, once waiting and once dead; here the second is a message of its own.
    for (offset, record) in records.iter_mut().enumerate() {
        record.topic = record.topic.replace("orders", T);
        record.key = Some("c-7".to_owned());
        for (name, value) in &mut record.headers {
            match name.as_str() {
                "x-orig-topic" => T.clone_into(value),
                "x-orig-partition" => "0".clone_into(value),
                "x-orig-offset" => *value = offset.to_string(),
                "x-message-id" => *value = format!("o-{}", offset + 1),
                _ => {}
            }
        }
    }
    let record = |topic: &str, key: &str, payload: &str| StoredRecord {
        topic: topic.to_owned(),
        partition: 0,
        key: Some(key.to_owned()),
        payload: Some(payload.to_owned()),
        headers: Vec::new(),
    };
    let state = r#"{"at":"2026-09-21T14:13:23.012Z","generation":0,"state":"open"}"#;
    records.push(record("{T}.DLQ.state", "1", state));
    records.push(record("{T}.control", "pause", r#"{"by":"one","at":"2026-09-21T14:14:00.000Z"}"#));
    let note = "v1 clean taken=3 done=1+1".to_owned();
    let commits = vec![StoredCommit { topic: T.to_owned(), partition: 0, offset: 2, note }];
    load(&world, &StoredTopics { records, commits });

    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(engine.shared_gate(), Some(TakeGate::Shut));
    engine.gate_all(TakeGate::Open).unwrap();
    let fresh = take(&mut engine, at(0), 1);
    assert_eq!(
        ids(&fresh),
        ["m2".to_owned()].into(),
        "what lies before the offset, and what the note says, is done"
    );
    settle(&mut engine, fresh, |_| Verdict::Done);
    let due = Time::from_millis(1_790_000_009_000);
    let waiting = take(&mut engine, due, 1);
    assert_eq!((waiting[0].message.id(), waiting[0].meta.attempts), ("o-1", 2));
    settle(&mut engine, waiting, |_| Verdict::Done);
    let letter = engine.letters(Some(LetterState::Open), None, 10).unwrap().remove(0);
    let kinds: Vec<FailureKind> = letter.history.attempts().iter().map(|attempt| attempt.kind).collect();
    assert_eq!(kinds, [FailureKind::Status(503), FailureKind::Other, FailureKind::Status(422)]);
    replays(&mut engine, "o-2", due);
    engine.close().unwrap();
}
