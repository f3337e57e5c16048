//! Purges wait, durably, until they are announced to the owner's system. And a table can only be opened with the key
//! with which it was created.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive::Time;
use redrive::internal::engine::EngineError;
use redrive::internal::subscriptions::entry::Entry;
use redrive::internal::subscriptions::file::SubscriptionFile;
use redrive::internal::subscriptions::{
    Answer, EndpointId, Known, Loaded, Purge, Registered, SubscriptionState, SubscriptionStore, Subscriptions,
};
use serde_json::{Value, json};

const GONE: Answer<'_> = Answer::Gone { status: Some(410), reason: "410 Gone" };

fn after(secs: u64) -> Time {
    Time::from_millis(1_700_000_000_000).plus(Duration::from_secs(secs))
}

fn id(number: u64) -> EndpointId {
    EndpointId::from_number(redrive_core::SplitMix64::new(number).draw())
}

fn closed() -> Subscriptions {
    let subscriptions = Subscriptions::new("push", Purge::AtOnce);
    subscriptions.read_with(Arc::new(|value: &Value, _: Known<'_>| {
        let token = value.get("token").and_then(Value::as_u64).ok_or("no token")?;
        Ok(Registered { endpoint: id(token), key: None })
    }));
    subscriptions
}

fn open(dir: &Path) -> Subscriptions {
    let subscriptions = closed();
    subscriptions.announce_purges();
    subscriptions.open(Box::new(SubscriptionFile::open(dir).unwrap())).unwrap();
    subscriptions
}

/// Leaves more outdated entries than a log may hold, so that the next opening compacts it.
fn churn(dir: &Path) {
    let outdated = Entry { key: "stored/busy".to_owned(), value: None };
    SubscriptionFile::open(dir).unwrap().append(&vec![outdated; 20_000]).unwrap();
}

fn log_bytes(dir: &Path) -> usize {
    std::fs::read(dir.join("subscriptions.log")).unwrap().len()
}

/// Regression: purges were announced from memory only, so a crash before the call lost the announcement.
#[tokio::test]
async fn a_purge_waits_over_restarts_until_it_was_announced() {
    let dir = tempfile::tempdir().unwrap();
    {
        let table = open(dir.path());
        table.register("user-1/phone", &json!({"token": 1}), after(0)).await.unwrap();
        table.answered(id(1), GONE, after(1)).await;
        table.answered(id(2), GONE, after(2)).await;
        assert_eq!(table.unannounced(None, 10), [(after(1), id(1)), (after(2), id(2))]);
    }
    {
        let table = open(dir.path());
        let counts = table.counts(after(3));
        assert_eq!((counts.unannounced, counts.unannounced_since), (2, Some(after(1))));
        let first = table.announcement((after(1), id(1))).unwrap();
        assert_eq!((first.ids, first.record.unwrap().status), (vec!["user-1/phone".to_owned()], Some(410)));
        table.announced((after(1), id(1))).await.unwrap();
        assert_eq!(table.unannounced(None, 10), [(after(2), id(2))]);
        table.announced((after(1), id(2))).await.unwrap();
        assert_eq!(table.unannounced(None, 10), [(after(2), id(2))], "that was another purge");
    }
    let table = open(dir.path());
    assert_eq!(table.unannounced(None, 10), [(after(2), id(2))]);
    assert_eq!(
        table.show(&id(1).to_string()).unwrap().standing(),
        SubscriptionState::Purged,
        "it holds as before"
    );
}

#[tokio::test]
async fn what_was_taken_back_or_registered_again_is_not_announced() {
    let dir = tempfile::tempdir().unwrap();
    {
        let table = open(dir.path());
        for number in 1..=3 {
            table.register(&format!("user-{number}"), &json!({"token": number}), after(0)).await.unwrap();
            table.answered(id(number), GONE, after(1)).await;
        }
        table.undo("user-1", after(2)).await.unwrap();
        table.register("user-2", &json!({"token": 2}), after(2)).await.unwrap();
        assert_eq!(table.unannounced(None, 10), [(after(1), id(3))]);
    }
    let table = open(dir.path());
    assert_eq!(table.unannounced(None, 10), [(after(1), id(3))]);
    table.undo("user-3", after(3)).await.unwrap();
    table.purge("user-3", "account closed", "ops", after(4)).await.unwrap();
    assert_eq!(table.unannounced(None, 10), [(after(4), id(3))], "purged anew, announced anew");
}

/// Otherwise the owner would remove the new subscription of a user whose old one was purged.
#[tokio::test]
async fn an_id_that_moved_on_to_another_endpoint_is_not_announced_as_purged() {
    let dir = tempfile::tempdir().unwrap();
    let table = open(dir.path());
    table.register("user-1", &json!({"token": 1}), after(0)).await.unwrap();
    table.answered(id(1), GONE, after(1)).await;
    table.register("user-1", &json!({"token": 2}), after(2)).await.unwrap();
    let announcement = table.announcement((after(1), id(1))).unwrap();
    assert_eq!(announcement.ids, Vec::<String>::new());
}

/// Regression: if a subscription was removed between two tries, the id of the event changed and it was no longer a
/// repeat.
#[tokio::test]
async fn what_is_said_of_a_purge_stays_the_same_if_its_subscription_is_removed_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    {
        let table = open(dir.path());
        for name in ["user-1", "user-2"] {
            table.register(name, &json!({"token": 1}), after(0)).await.unwrap();
        }
        table.answered(id(1), GONE, after(1)).await;
        table.remove("user-1", after(2)).await.unwrap();
        let announcement = table.announcement((after(1), id(1))).unwrap();
        assert_eq!(announcement.ids, ["user-1".to_owned(), "user-2".to_owned()]);
        // This user has moved on to another endpoint and must not be called gone.
        table.register("user-2", &json!({"token": 2}), after(3)).await.unwrap();
    }
    let table = open(dir.path());
    assert_eq!(table.announcement((after(1), id(1))).unwrap().ids, ["user-1".to_owned()]);
}

/// A store of which the given number of writes fails.
struct Faltering(SubscriptionFile, std::sync::Arc<std::sync::atomic::AtomicU32>);

impl SubscriptionStore for Faltering {
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<Vec<String>, EngineError> {
        self.0.load(each)
    }

    fn append(&mut self, entries: &[Entry]) -> Result<(), EngineError> {
        use std::sync::atomic::Ordering::SeqCst;
        if self.1.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(EngineError::Unavailable("no answer within 10 s".to_owned()));
        }
        self.0.append(entries)
    }
}

/// Regression: an announcement that one member had made but could not record was never made by the others.
#[tokio::test]
async fn an_announcement_that_could_not_be_noted_waits_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let failures = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let table = closed();
    table.announce_purges();
    table
        .open(Box::new(Faltering(SubscriptionFile::open(dir.path()).unwrap(), Arc::clone(&failures))))
        .unwrap();
    table.answered(id(1), GONE, after(1)).await;
    failures.store(1, std::sync::atomic::Ordering::SeqCst);
    assert!(table.announced((after(1), id(1))).await.is_err());
    assert_eq!(table.unannounced(None, 10), [(after(1), id(1))], "it is noted at the next try");
    table.announced((after(1), id(1))).await.unwrap();
    assert!(table.unannounced(None, 10).is_empty());
    // A purge that was undone meanwhile is not announced.
    table.answered(id(2), GONE, after(2)).await;
    table.undo(&id(2).digits(), after(3)).await.unwrap();
    assert!(table.unannounced(None, 10).is_empty());
    drop(table);
    assert!(open(dir.path()).unannounced(None, 10).is_empty());
}

#[tokio::test]
async fn a_crash_between_an_announcement_and_its_purge_leaves_neither() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("subscriptions.log");
    drop(open(dir.path()));
    let before = std::fs::read(&path).unwrap().len();
    open(dir.path()).answered(id(1), GONE, after(1)).await;
    let whole = std::fs::read(&path).unwrap();
    for end in before..=whole.len() {
        std::fs::write(&path, &whole[..end]).unwrap();
        let table = open(dir.path());
        let is_purged =
            table.show(&id(1).to_string()).is_some_and(|it| it.standing() == SubscriptionState::Purged);
        let announced = table.announcement((after(1), id(1))).is_some();
        let waits = !table.unannounced(None, 10).is_empty();
        assert_eq!(announced, is_purged, "{end}");
        assert!(waits || !is_purged, "{end}: a purge without its announcement");
        for purge in table.unannounced(None, 10) {
            table.announced(purge).await.unwrap();
        }
        assert!(table.unannounced(None, 10).is_empty());
    }
}

#[tokio::test]
async fn compaction_and_the_time_for_undoing_forget_no_announcement() {
    let dir = tempfile::tempdir().unwrap();
    {
        let table = open(dir.path());
        table.answered(id(1), GONE, after(0)).await;
        table.answered(id(2), GONE, after(0)).await;
        table.announced((after(0), id(2))).await.unwrap();
    }
    churn(dir.path());
    assert!(log_bytes(dir.path()) > 100_000);
    {
        let table = open(dir.path());
        assert!(log_bytes(dir.path()) < 10_000, "it is compacted");
        assert_eq!(table.unannounced(None, 10), [(after(0), id(1))]);
        let later = after(40 * 86_400);
        table.answered(id(3), Answer::Delivered, later).await;
        assert!(table.show(&id(2).to_string()).is_none(), "too old to be undone");
        assert!(table.announcement((after(0), id(1))).is_some(), "nobody knows of it yet");
    }
    let without = closed();
    without.open(Box::new(SubscriptionFile::open(dir.path()).unwrap())).unwrap();
    assert_eq!(without.counts(after(1)).unannounced, 0, "nobody asks any more");
}

#[tokio::test]
async fn purges_wait_for_nobody_unless_somebody_wants_to_hear_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let table = closed();
    table.open(Box::new(SubscriptionFile::open(dir.path()).unwrap())).unwrap();
    table.answered(id(1), GONE, after(1)).await;
    assert!(table.unannounced(None, 10).is_empty());
    drop(table);
    assert!(open(dir.path()).unannounced(None, 10).is_empty());
}

fn keyed(dir: &Path, fingerprint: &str) -> Result<Subscriptions, EngineError> {
    let table = closed();
    table.hash_with(fingerprint);
    table.open(Box::new(SubscriptionFile::open(dir).unwrap())).map(|_| table)
}

/// Regression: with another key every purge of the table was without effect, and no error said so.
#[tokio::test]
async fn a_table_is_not_opened_with_another_hash_key() {
    let dir = tempfile::tempdir().unwrap();
    keyed(dir.path(), "0123456789abcdef").unwrap().answered(id(1), GONE, after(1)).await;
    let refused = keyed(dir.path(), "fedcba9876543210").unwrap_err().to_string();
    assert!(refused.contains("pipeline `push` were hashed with another key"), "{refused}");
    assert!(refused.contains("restore the former `hash_key_file`"), "{refused}");
    assert!(!refused.contains("0123456789abcdef"), "{refused}");
    let table = keyed(dir.path(), "0123456789abcdef").unwrap();
    assert_eq!(table.counts(after(2)).purged, 1);
    drop(table);
    // This holds after a compaction, too.
    churn(dir.path());
    keyed(dir.path(), "0123456789abcdef").unwrap();
    assert!(log_bytes(dir.path()) < 10_000);
    assert!(keyed(dir.path(), "fedcba9876543210").is_err());
}

#[test]
fn an_older_table_takes_the_first_key_it_sees() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = SubscriptionFile::open(dir.path()).unwrap();
    let value = json!({"state": "purged", "cause": "gone", "reason": "410 Gone", "at_ms": 1}).to_string();
    log.append(&[Entry { key: format!("endpoint/{}", id(1).digits()), value: Some(value) }]).unwrap();
    drop(log);
    assert_eq!(keyed(dir.path(), "0123456789abcdef").unwrap().counts(after(1)).purged, 1);
    assert!(keyed(dir.path(), "fedcba9876543210").is_err());
}

/// Regression: two accounts in one browser counted as two active endpoints, so the guard allowed more than 2 % of
/// purges.
#[tokio::test]
async fn the_guard_counts_endpoints_and_not_the_ids_that_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let table = open(dir.path());
    for number in 0..1_000 {
        let subscription = json!({"token": number % 20});
        table.register(&format!("user-{number}"), &subscription, after(0)).await.unwrap();
    }
    let counts = table.counts(after(1));
    assert_eq!((counts.stored, counts.active), (1_000, 20));
    for number in 0..20 {
        table.answered(id(number), GONE, after(1)).await;
    }
    let counts = table.counts(after(2));
    assert_eq!((counts.purged, counts.stopped.map(|stopped| stopped.active)), (10, Some(20)));
    assert_eq!(counts.active, 10, "whoever is purged is not active");
    table.undo(&id(0).digits(), after(3)).await.unwrap();
    table.remove("user-1", after(3)).await.unwrap();
    assert_eq!(table.counts(after(3)).active, 11);
    drop(table);
    assert_eq!(open(dir.path()).counts(after(4)).active, 11, "after a restart, too");
}
