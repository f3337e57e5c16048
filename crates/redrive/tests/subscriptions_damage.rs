//! Damage in the log of subscriptions: whichever byte it hits, no entry silently reverts to an older state.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive::Time;
use redrive::internal::engine::EngineError;
use redrive::internal::subscriptions::check;
use redrive::internal::subscriptions::file::SubscriptionFile;
use redrive::internal::subscriptions::{
    Answer, Cause, EndpointId, Known, Purge, Record, Registered, SubscriptionState, Subscriptions,
};
use serde_json::{Value, json};

const GONE: Answer<'_> = Answer::Gone { status: Some(410), reason: "410 Gone" };
const KEY: &str = "0123456789abcdef";
const ENDPOINTS: u64 = 8;

fn after(secs: u64) -> Time {
    Time::from_millis(1_700_000_000_000).plus(Duration::from_secs(secs))
}

fn id(number: u64) -> EndpointId {
    EndpointId::from_number(redrive_core::SplitMix64::new(number).draw())
}

/// A directory in memory if possible, because thousands of logs are opened.
fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn opened(dir: &Path, key: &str) -> Result<(Subscriptions, Vec<String>), EngineError> {
    let table = Subscriptions::new("push", Purge::AtOnce);
    table.read_with(Arc::new(|value: &Value, _: Known<'_>| {
        let token = value.get("token").and_then(Value::as_u64).ok_or("no token")?;
        Ok(Registered { endpoint: id(token), key: None })
    }));
    table.announce_purges();
    table.hash_with(key);
    let findings = table.open(Box::new(SubscriptionFile::open(dir)?))?;
    Ok((table, findings))
}

/// The part of the table's content that damage can change.
#[derive(Debug, PartialEq)]
struct Knowledge {
    records: BTreeMap<u64, Option<Record>>,
    stored: BTreeMap<String, EndpointId>,
    unannounced: Vec<EndpointId>,
    is_stopped: bool,
}

fn knowledge(table: &Subscriptions) -> Knowledge {
    let record = |number| table.show(&id(number).digits()).and_then(|listed| listed.record);
    let names = (1..=4).map(|user| format!("user-{user}"));
    Knowledge {
        records: (0..ENDPOINTS).map(|number| (number, record(number))).collect(),
        stored: names.filter_map(|name| table.stored(&name).map(|it| (name, it.endpoint))).collect(),
        unannounced: table.unannounced(None, 100).into_iter().map(|(_, id)| id).collect(),
        is_stopped: table.counts(after(100)).stopped.is_some(),
    }
}

/// Writes every kind of entry, most keys more than once, so that an older line of each could reappear.
async fn fill(dir: &Path) -> Knowledge {
    let (table, findings) = opened(dir, KEY).unwrap();
    assert_eq!(findings, Vec::<String>::new());
    for (user, token) in [(1, 1), (2, 2), (3, 3), (1, 4)] {
        table.register(&format!("user-{user}"), &json!({"token": token}), after(user)).await.unwrap();
    }
    table.remove("user-2", after(10)).await.unwrap();
    for number in 0..5 {
        table.answered(id(number), GONE, after(20 + number)).await;
    }
    // Undone, announced, returned, purged again by an operator, and undone again.
    table.undo(&id(0).digits(), after(30)).await.unwrap();
    table.announced((after(21), id(1))).await.unwrap();
    table.register("user-3", &json!({"token": 3}), after(31)).await.unwrap();
    table.undo(&id(2).digits(), after(32)).await.unwrap();
    table.admit(id(2), None, after(33)).await;
    table.purge(&id(2).digits(), "fraud", "ops", after(33)).await.unwrap();
    // A wave of purges that triggers the guard, and an operator who resumes purging.
    for number in 100..120 {
        table.answered(id(number), GONE, after(40)).await;
    }
    table.resume(after(41)).await.unwrap();
    for number in 5..ENDPOINTS {
        table.answered(id(number), GONE, after(50)).await;
    }
    table.undo(&id(6).digits(), after(60)).await.unwrap();
    knowledge(&table)
}

/// Checks that no entry is older than in the model: it is the same, or marked as doubtful.
fn check_not_older(known: &Knowledge, model: &Knowledge, what: &str) {
    for (number, record) in &known.records {
        let is_doubted = record.as_ref().is_some_and(|record| record.cause == Cause::Damage);
        // If its only line is lost, nothing can be doubtful: the endpoint is called as if it were unknown.
        let is_forgotten = record.is_none();
        let is_right = *record == model.records[number] || is_doubted || is_forgotten;
        assert!(is_right, "{what}: endpoint {number} is {record:?}, not {:?}", model.records[number]);
        let is_called = record.as_ref().is_none_or(|record| record.standing == SubscriptionState::Flagged);
        assert!(*record == model.records[number] || is_called, "{what}: endpoint {number}");
    }
    for (name, endpoint) in &known.stored {
        assert_eq!(model.stored.get(name), Some(endpoint), "{what}: {name}");
    }
    for id in &model.unannounced {
        let number = (0..ENDPOINTS).find(|number| self::id(*number) == *id);
        let is_purged = number.is_some_and(|number| known.records[&number] == model.records[&number]);
        assert!(
            !is_purged || known.unannounced.contains(id),
            "{what}: the purge of {number:?} is never told"
        );
    }
}

/// Regression: an undone purge reappeared, or an announcement was lost, with the line that recorded it.
#[tokio::test]
async fn whichever_byte_is_damaged_nothing_goes_silently_back_to_what_it_was_before() {
    let dir = dir();
    let model = fill(dir.path()).await;
    assert_eq!(knowledge(&opened(dir.path(), KEY).unwrap().0), model, "a restart changes nothing");
    let path = dir.path().join("subscriptions.log");
    let whole = std::fs::read(&path).unwrap();
    let mut doubted = 0;
    for at in 0..whole.len() {
        // Every byte is changed once, and every fourth in two more ways that change the structure of lines.
        let others = [whole[at] ^ (1 << (at % 8)), b'\n', 0];
        for other in others.into_iter().take(if at % 4 == 0 { 3 } else { 1 }) {
            if other == whole[at] {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[at] = other;
            std::fs::write(&path, &damaged).unwrap();
            let what = format!("byte {at} of {} is {other}", whole.len());
            let (table, findings) = opened(dir.path(), KEY).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(!findings.is_empty(), "{what}: nobody is told");
            let known = knowledge(&table);
            check_not_older(&known, &model, &what);
            // A damaged line affects only its own entry.
            let different = known.records.iter().filter(|(number, it)| **it != model.records[number]).count();
            assert!(different <= 1 && known.stored.len() + 1 >= model.stored.len(), "{what}: {known:?}");
            doubted += different;
        }
    }
    assert!(doubted > 500, "{doubted}");
}

#[tokio::test]
async fn a_lost_page_brings_nothing_older_back_and_giving_it_up_changes_nothing_of_that() {
    let dir = dir();
    let model = fill(dir.path()).await;
    let path = dir.path().join("subscriptions.log");
    let whole = std::fs::read(&path).unwrap();
    // The lines that identify the key are at the beginning; without them the table cannot be opened at all.
    let from = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0 + 1;
    for start in (from..whole.len()).step_by(97) {
        for bytes in [200, 512, 4096] {
            let mut damaged = whole.clone();
            damaged[start..(start + bytes).min(whole.len() - 1)].fill(0);
            std::fs::write(&path, &damaged).unwrap();
            let what = format!("{bytes} bytes from {start} of {}", whole.len());
            let (table, findings) = opened(dir.path(), KEY).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(!findings.is_empty(), "{what}");
            let first = knowledge(&table);
            drop(table);
            for (number, record) in &first.records {
                // Purges by operators hold, because no push service could report them again.
                let is_known = *record == model.records[number];
                let by_person = record.as_ref().is_some_and(|record| record.cause == Cause::Operator);
                let is_called = record.as_ref().is_none_or(|it| it.cause == Cause::Damage);
                assert!(is_known || by_person || is_called, "{what}: endpoint {number} is {record:?}");
            }
            assert!(check::drop_damaged(dir.path()).unwrap() > 0, "{what}");
            let (table, findings) = opened(dir.path(), KEY).unwrap();
            assert_eq!((findings, knowledge(&table)), (vec![], first), "{what}: given up");
        }
    }
}

/// Regression: if the line that identifies the key was damaged, any key opened the table, and no purge held.
#[tokio::test]
async fn no_damage_lets_another_hash_key_in() {
    let dir = dir();
    fill(dir.path()).await;
    let path = dir.path().join("subscriptions.log");
    let whole = std::fs::read(&path).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|it| *it.1 == b'\n').map(|it| it.0).collect();
    for at in 0..=ends[2] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        assert!(opened(dir.path(), "fedcba9876543210").is_err(), "byte {at}");
        std::fs::write(&path, &damaged).unwrap();
        assert!(opened(dir.path(), KEY).is_ok(), "byte {at}: the right key opens it");
    }
    // Damages both copies.
    let mut damaged = whole.clone();
    damaged[..ends[1]].fill(0);
    std::fs::write(&path, &damaged).unwrap();
    for key in ["fedcba9876543210", KEY] {
        let refused = opened(dir.path(), key).unwrap_err().to_string();
        assert!(refused.contains("damaged where it records which key"), "{refused}");
        assert!(refused.contains("--accept-loss"), "{refused}");
    }
    check::drop_damaged(dir.path()).unwrap();
    assert!(opened(dir.path(), KEY).is_ok(), "somebody said that the key is the same");
    assert!(opened(dir.path(), "fedcba9876543210").is_err());
}

/// If the line that says that purging is stopped is lost, purging does not simply go on.
#[tokio::test]
async fn purging_stays_stopped_if_nobody_knows_whether_it_was() {
    let dir = dir();
    {
        let (table, _) = opened(dir.path(), KEY).unwrap();
        for number in 0..20 {
            table.answered(id(number), GONE, after(1)).await;
        }
        assert!(table.counts(after(2)).stopped.is_some());
    }
    let path = dir.path().join("subscriptions.log");
    let text = std::fs::read_to_string(&path).unwrap();
    let damaged = text.replace("[\"guard\",\"{", "[\"guard\",\"[");
    assert_ne!(damaged, text);
    std::fs::write(&path, damaged).unwrap();
    let (table, findings) = opened(dir.path(), KEY).unwrap();
    assert!(!findings.is_empty());
    assert!(table.counts(after(2)).stopped.is_some_and(|stopped| stopped.is_unknown()));
    table.resume(after(3)).await.unwrap();
    drop(table);
    assert_eq!(opened(dir.path(), KEY).unwrap().0.counts(after(4)).stopped, None);
}
