//! The table of subscriptions across restarts, in virtual time and on a real disk.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::Time;
use redrive::internal::engine::EngineError;
use redrive::internal::subscriptions::entry::Entry;
use redrive::internal::subscriptions::file::SubscriptionFile;
use redrive::internal::subscriptions::{
    Admission, Answer, Change, EndpointId, Known, Loaded, Purge, Registered, SubscriptionState,
    SubscriptionStore, Subscriptions, SubscriptionsError,
};
use serde_json::{Value, json};

const GONE: Answer<'_> = Answer::Gone { status: Some(410), reason: "410 Gone" };

fn start() -> Time {
    Time::from_millis(1_700_000_000_000)
}

fn after(secs: u64) -> Time {
    start().plus(Duration::from_secs(secs))
}

/// Looks like a keyed hash: all bits vary.
fn id(number: u64) -> EndpointId {
    EndpointId::from_number(redrive_core::SplitMix64::new(number).draw())
}

fn open(dir: &Path, purge: Purge) -> Subscriptions {
    let subscriptions = Subscriptions::new("push", purge);
    subscriptions.read_with(Arc::new(|value: &Value, _: Known<'_>| {
        let token = value.get("token").and_then(Value::as_u64).ok_or("no token")?;
        Ok(Registered {
            endpoint: id(token),
            key: value.get("key").and_then(Value::as_str).map(str::to_owned),
        })
    }));
    let findings = subscriptions.open(Box::new(SubscriptionFile::open(dir).unwrap())).unwrap();
    assert_eq!(findings, Vec::<String>::new());
    subscriptions
}

/// Makes endpoints known to this process by calling them.
async fn called(table: &Subscriptions, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(table.admit(id(number), None, start()).await, Admission::Call);
    }
}

fn standing(subscriptions: &Subscriptions, endpoint: EndpointId) -> Option<SubscriptionState> {
    subscriptions.show(&endpoint.to_string()).map(|listed| listed.standing())
}

#[tokio::test]
async fn a_flag_is_verified_an_hour_later_across_a_restart_and_then_no_call_is_made() {
    let dir = tempfile::tempdir().unwrap();
    {
        let table = open(dir.path(), Purge::Verify);
        table.answered(id(1), GONE, start()).await;
        table.answered(id(1), GONE, after(3599)).await;
        assert_eq!(table.admit(id(1), None, after(3599)).await, Admission::Call);
    }
    {
        let table = open(dir.path(), Purge::Verify);
        assert_eq!(standing(&table, id(1)), Some(SubscriptionState::Flagged));
        table.answered(id(1), GONE, after(3600)).await;
        assert!(matches!(table.admit(id(1), None, after(3601)).await, Admission::Purged(_)));
    }
    let table = open(dir.path(), Purge::Verify);
    let Admission::Purged(record) = table.admit(id(1), None, after(7200)).await else {
        panic!("it is purged")
    };
    assert_eq!((record.status, record.reason.as_str(), record.at), (Some(410), "410 Gone", after(3600)));
    assert_eq!(table.admit(id(2), None, after(7200)).await, Admission::Call);
}

#[tokio::test]
async fn a_success_between_two_gone_begins_the_hour_anew() {
    let dir = tempfile::tempdir().unwrap();
    let table = open(dir.path(), Purge::Verify);
    table.answered(id(1), GONE, start()).await;
    table.answered(id(1), Answer::Delivered, after(1800)).await;
    assert_eq!(standing(&table, id(1)), None);
    table.answered(id(1), GONE, after(3601)).await;
    assert_eq!(standing(&table, id(1)), Some(SubscriptionState::Flagged));
}

/// TRAPS D-8: a deployment that drops a route answers 404 to everything.
#[tokio::test]
async fn the_guard_stops_a_wave_of_purges_alerts_once_and_goes_on_only_when_it_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let changes = Arc::new(Mutex::new(Vec::new()));
    {
        let table = open(dir.path(), Purge::AtOnce);
        let heard = Arc::clone(&changes);
        table.on_change(move |changed| heard.lock().unwrap().push(changed.change));
        for number in 0..1_000 {
            table.answered(id(number), Answer::Delivered, start()).await;
        }
        for number in 0..1_000 {
            table.answered(id(number), GONE, after(1)).await;
        }
        let counts = table.counts(after(2));
        let limit = (counts.active + counts.purged) / 50;
        assert!(counts.purged <= limit && counts.purged >= limit - 1, "{counts:?}");
        assert_eq!(counts.flagged + counts.purged, 1_000);
        let stopped = counts.stopped.expect("it is stopped");
        assert!(stopped.purged * 50 > stopped.active && stopped.percent() < 2.3, "{stopped:?}");
    }
    let stops =
        || changes.lock().unwrap().iter().filter(|it| matches!(it, Change::PurgingStopped(_))).count();
    assert_eq!(stops(), 1);
    let table = open(dir.path(), Purge::AtOnce);
    assert!(table.counts(after(86_400)).stopped.is_some(), "a restart does not lift it");
    table.answered(id(9_999), GONE, after(86_400)).await;
    assert_eq!(standing(&table, id(9_999)), Some(SubscriptionState::Flagged));
    table.resume(after(86_400)).await.unwrap();
    assert!(matches!(table.resume(after(86_400)).await, Err(SubscriptionsError::NotStopped)));
    table.answered(id(9_999), GONE, after(86_401)).await;
    assert_eq!(standing(&table, id(9_999)), Some(SubscriptionState::Purged));
}

/// Regression: after a restart the estimate was up to a fifth too low, and the guard that much stricter.
#[tokio::test]
async fn how_large_two_percent_is_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let before = {
        let table = open(dir.path(), Purge::AtOnce);
        for number in 0..5_900 {
            table.answered(id(number), Answer::Delivered, start()).await;
        }
        table.counts(after(60)).active
    };
    assert!(before.abs_diff(5_900) < 5_900 / 20, "{before}");
    for _ in 0..3 {
        let table = open(dir.path(), Purge::AtOnce);
        let active = table.counts(after(60)).active;
        assert!(active <= before && active >= before - before / 100, "{active} of {before}");
    }
    let table = open(dir.path(), Purge::AtOnce);
    for number in 0..1_000 {
        table.answered(id(number), GONE, after(120)).await;
    }
    let counts = table.counts(after(120));
    let stopped = counts.stopped.expect("the guard has stopped it");
    assert!(stopped.purged * 50 > stopped.active && counts.purged * 50 <= stopped.active, "{counts:?}");
    assert!(counts.purged >= before / 50 * 99 / 100, "no earlier than it would have without the restart");
    // Endpoints that are seen again are not counted as new.
    for number in 0..5_900 {
        table.answered(id(number), Answer::Delivered, after(180)).await;
    }
    let counts = table.counts(after(180));
    assert!((counts.active + counts.purged).abs_diff(before) <= before / 50, "{counts:?} of {before}");
}

#[tokio::test]
async fn a_snapshot_keeps_the_estimate_and_a_week_without_pushes_is_no_reason_to_forget_it() {
    let dir = tempfile::tempdir().unwrap();
    let day = 86_400;
    {
        let table = open(dir.path(), Purge::Verify);
        for number in 0..3_000 {
            table.answered(id(number), Answer::Delivered, start()).await;
        }
        // Enough changes for the log to be rewritten.
        for round in 0..15 {
            let mut answers = tokio::task::JoinSet::new();
            for (number, answer) in (0..500).flat_map(|number| [(number, GONE), (number, Answer::Delivered)])
            {
                let table = table.clone();
                answers.spawn(async move { table.answered(id(number), answer, after(round)).await });
            }
            answers.join_all().await;
        }
    }
    let table = open(dir.path(), Purge::Verify);
    let active = |days: u64| table.counts(after(days * day)).active;
    assert!(active(6).abs_diff(3_000) < 150, "{}", active(6));
    assert_eq!(active(15), 0, "after two weeks nobody knows");
}

/// Regression: two accounts of a browser share its endpoint, but only the one registered last was found by its
/// endpoint.
#[tokio::test]
async fn two_stored_ids_of_one_endpoint_both_work_and_what_happens_to_it_concerns_both() {
    let dir = tempfile::tempdir().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let both = ["user-1/phone".to_owned(), "user-2/phone".to_owned()];
    {
        let table = open(dir.path(), Purge::AtOnce);
        let changes = Arc::clone(&heard);
        table.on_change(move |changed| changes.lock().unwrap().push((changed.change, changed.ids.clone())));
        for (name, at) in both.iter().zip([0, 1]) {
            table.register(name, &json!({"token": 1}), after(at)).await.unwrap();
        }
        table.answered(id(1), GONE, after(2)).await;
    }
    assert_eq!(heard.lock().unwrap().pop(), Some((Change::Purged, both.to_vec())));
    let table = open(dir.path(), Purge::AtOnce);
    for name in &both {
        assert!(table.stored(name).is_some());
        let shown = table.show(name).unwrap();
        assert_eq!((shown.standing(), shown.ids), (SubscriptionState::Purged, both.to_vec()));
    }
    assert_eq!(table.list(None, None, 10).len(), 1, "it is one endpoint");
    // Registering either one restores the endpoint for both.
    table.register(&both[0], &json!({"token": 1}), after(10)).await.unwrap();
    assert_eq!(table.admit(id(1), None, after(11)).await, Admission::Call);
    table.purge(&both[0], "fraud", "ops", after(12)).await.unwrap();
    assert_eq!(table.show(&both[1]).unwrap().standing(), SubscriptionState::Purged);
    // Removing one leaves the other.
    table.remove(&both[1], after(13)).await.unwrap();
    assert_eq!(table.show(&id(1).to_string()).unwrap().ids, [both[0].clone()]);
    assert_eq!(table.stored(&both[0]).unwrap().subscription()["token"], 1);
    // So does moving one to another endpoint.
    table.register(&both[1], &json!({"token": 1}), after(14)).await.unwrap();
    table.register(&both[0], &json!({"token": 2}), after(15)).await.unwrap();
    assert_eq!(table.show(&id(1).to_string()).unwrap().ids, [both[1].clone()]);
    assert_eq!(table.show(&id(2).to_string()).unwrap().ids, [both[0].clone()]);
}

/// Regression: a hash that never occurred is a typing error, but it was purged silently.
#[tokio::test]
async fn a_hash_that_was_never_heard_of_is_neither_flagged_nor_purged_nor_undone() {
    let dir = tempfile::tempdir().unwrap();
    let table = open(dir.path(), Purge::Verify);
    let unknown = id(404).to_string();
    let not_found = |done: Result<_, SubscriptionsError>| {
        let error: SubscriptionsError = match done {
            Ok(listed) => panic!("{listed:?}"),
            Err(error) => error,
        };
        assert_eq!(error.to_string(), format!("no subscription `{unknown}` is known"));
        assert!(matches!(error, SubscriptionsError::NotFound(_)));
    };
    not_found(table.flag(&unknown, "odd", "ops", start()).await);
    not_found(table.purge(&unknown, "odd", "ops", start()).await);
    not_found(table.undo(&unknown, start()).await);
    assert_eq!(table.show(&unknown), None);
    assert_eq!((table.counts(start()).purged, table.counts(start()).flagged), (0, 0));
    // An endpoint that is just active is known once it was called.
    assert_eq!(table.admit(id(404), None, start()).await, Admission::Call);
    let undone = table.undo(&unknown, start()).await;
    assert!(matches!(undone, Err(SubscriptionsError::NotMarked(_))), "{undone:?}");
    table.purge(&unknown, "fraud", "ops", start()).await.unwrap();
    assert_eq!(standing(&table, id(404)), Some(SubscriptionState::Purged));
}

/// Regression: when an operator's purge replaced a flag and was undone, the flag was lost.
#[tokio::test]
async fn undoing_what_a_person_did_restores_the_flag_that_was_there_before_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let name = id(1).to_string();
    {
        let table = open(dir.path(), Purge::Verify);
        table.answered(id(1), GONE, start()).await;
        table.purge(&name, "account closed", "ops", after(60)).await.unwrap();
    }
    let table = open(dir.path(), Purge::Verify);
    let back = table.undo(&name, after(120)).await.unwrap();
    let record = back.record.expect("the flag is there again");
    assert_eq!((record.standing, record.at, record.status), (SubscriptionState::Flagged, start(), Some(410)));
    assert_eq!(table.counts(after(120)).flagged, 1);
    // It is verified as if nothing had happened in between.
    table.answered(id(1), GONE, after(3600)).await;
    assert_eq!(standing(&table, id(1)), Some(SubscriptionState::Purged));
    // An operator may restore an endpoint that a push service confirmed as gone: the operator knows better.
    assert_eq!(table.undo_since(after(3000), after(3700)).await.unwrap(), 1);
    assert_eq!(table.admit(id(1), None, after(3700)).await, Admission::Call);
    assert_eq!(standing(&table, id(1)), Some(SubscriptionState::Active));
}

#[tokio::test]
async fn purges_are_undone_one_by_one_or_since_a_time_and_that_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    {
        let table = open(dir.path(), Purge::AtOnce);
        for (number, at) in [(1, 0), (2, 100), (3, 200)] {
            table.answered(id(number), GONE, after(at)).await;
        }
        assert_eq!(table.undo_since(after(100), after(300)).await.unwrap(), 2);
        assert_eq!(table.undo_since(after(100), after(300)).await.unwrap(), 0);
    }
    let table = open(dir.path(), Purge::AtOnce);
    assert_eq!(table.counts(after(300)).purged, 1);
    table.undo(&id(1).to_string(), after(300)).await.unwrap();
    assert_eq!(table.admit(id(1), None, after(301)).await, Admission::Call);
    let again = table.undo(&id(1).to_string(), after(300)).await;
    assert!(matches!(again, Err(SubscriptionsError::NotMarked(_))), "{again:?}");
}

#[tokio::test]
async fn an_operator_flags_and_purges_under_their_name_and_the_guard_has_no_say() {
    let dir = tempfile::tempdir().unwrap();
    let table = open(dir.path(), Purge::Off);
    called(&table, 0..100).await;
    for number in 0..50 {
        let purged = table.purge(&id(number).to_string(), "fraud", "ops", start()).await.unwrap();
        assert_eq!(purged.record.unwrap().actor.as_deref(), Some("ops"));
    }
    assert_eq!(table.counts(start()).stopped, None);
    let again = table.purge(&id(1).to_string(), "fraud", "ops", start()).await;
    assert!(matches!(again, Err(SubscriptionsError::AlreadyPurged(_))));
    table.flag(&id(77).to_string(), "looks odd", "ops", start()).await.unwrap();
    assert_eq!(standing(&table, id(77)), Some(SubscriptionState::Flagged));
    let unknown = table.flag("nobody", "looks odd", "ops", start()).await;
    assert!(matches!(unknown, Err(SubscriptionsError::NotFound(_))));
}

#[tokio::test]
async fn a_new_registration_brings_a_purged_endpoint_back() {
    let dir = tempfile::tempdir().unwrap();
    {
        let table = open(dir.path(), Purge::AtOnce);
        table.answered(id(1), GONE, start()).await;
        table.register("user-1/phone", &json!({"token": 1, "key": "BOld"}), after(10)).await.unwrap();
        assert_eq!(table.admit(id(1), None, after(11)).await, Admission::Call);
        // A message that carries the registration time of its device has the same effect.
        table.answered(id(2), GONE, start()).await;
        assert_eq!(table.admit(id(2), Some(after(5)), after(11)).await, Admission::Returned);
    }
    let table = open(dir.path(), Purge::AtOnce);
    assert_eq!((standing(&table, id(2)), table.counts(after(20)).purged), (None, 0));
    assert_eq!(table.stored("user-1/phone").unwrap().subscription()["token"], 1);
    table.register("user-2/phone", &json!({"token": 2, "key": "BNew"}), after(20)).await.unwrap();
    table.register("user-3/phone", &json!({"token": 3, "key": "BNew"}), after(20)).await.unwrap();
    let keys: Vec<_> = table.keys().into_iter().collect();
    assert_eq!(keys, [(Some("BNew".to_owned()), 2), (Some("BOld".to_owned()), 1)]);
    table.remove("user-1/phone", after(30)).await.unwrap();
    assert!(table.stored("user-1/phone").is_none());
    assert!(matches!(table.remove("user-1/phone", after(30)).await, Err(SubscriptionsError::NotFound(_))));
    for (name, value) in [("", json!({"token": 1})), ("hmac-sha256:0000000000000001", json!({"token": 1}))] {
        assert!(matches!(table.register(name, &value, after(30)).await, Err(SubscriptionsError::Id)));
    }
    let wrong = table.register("user-4", &json!({}), after(30)).await;
    assert!(matches!(wrong, Err(SubscriptionsError::Subscription(_))));
}

#[tokio::test]
async fn old_purges_are_forgotten_and_the_file_does_not_grow_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let lines = || std::fs::read_to_string(dir.path().join("subscriptions.log")).unwrap().lines().count();
    {
        let table = open(dir.path(), Purge::Verify);
        for round in 0..25 {
            for answer in [GONE, Answer::Delivered] {
                let mut answers = tokio::task::JoinSet::new();
                for number in 0..500 {
                    let table = table.clone();
                    answers.spawn(async move { table.answered(id(number), answer, after(round)).await });
                }
                answers.join_all().await;
            }
        }
    }
    assert!(lines() < 15_000, "{} of more than 25,000", lines());
    let purging = open(dir.path(), Purge::AtOnce);
    purging.answered(id(2), GONE, after(20_000)).await;
    let month_later = after(20_000 + 31 * 86_400);
    purging.answered(id(3), Answer::Delivered, month_later).await;
    assert_eq!(purging.counts(month_later).purged, 0);
}

#[tokio::test]
async fn rows_are_listed_page_by_page_and_by_state() {
    let dir = tempfile::tempdir().unwrap();
    let table = open(dir.path(), Purge::AtOnce);
    for number in 0..6 {
        table.answered(id(number), GONE, start()).await;
    }
    called(&table, 50..51).await;
    table.flag(&id(50).to_string(), "odd", "ops", start()).await.unwrap();
    table.register("user-9", &json!({"token": 99}), start()).await.unwrap();
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = table.list(None, cursor, 3);
        cursor = page.last().map(|last| last.endpoint);
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen.len(), 8);
    assert!(seen.is_sorted_by_key(|listed| listed.endpoint));
    let of = |standing| table.list(Some(standing), None, 100).len();
    assert_eq!(
        (of(SubscriptionState::Purged), of(SubscriptionState::Flagged), of(SubscriptionState::Active)),
        (6, 1, 1)
    );
}

/// A store whose disk is full.
struct Full;

impl SubscriptionStore for Full {
    fn load(&mut self, _: &mut dyn FnMut(Loaded)) -> Result<Vec<String>, EngineError> {
        Ok(Vec::new())
    }

    fn append(&mut self, _: &[Entry]) -> Result<(), EngineError> {
        Err(EngineError::Storage("disk full".to_owned()))
    }
}

#[tokio::test]
async fn what_cannot_be_written_holds_until_the_end_and_is_counted() {
    let table = Subscriptions::new("push", Purge::AtOnce);
    table.open(Box::new(Full)).unwrap();
    table.answered(id(1), GONE, start()).await;
    assert!(matches!(table.admit(id(1), None, start()).await, Admission::Purged(_)));
    assert_eq!(table.counts(start()).unwritten, 1);
    called(&table, 2..3).await;
    let purged = table.purge(&id(2).to_string(), "fraud", "ops", start()).await;
    assert!(matches!(purged, Err(SubscriptionsError::Store(_))));
}
