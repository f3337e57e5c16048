//! Harmless user mistakes: an engine opened twice, an ordering changed between two starts, an error whose text panics,
//! a handler that panics in its drop. None of them may lose messages, repeat them forever or stop the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use redrive::internal::engine::{Deliver, EngineError, StoreOptions, Verdict};
use redrive::{
    DeliveryOrder, Embedded, Failure, LetterState, MemoryStores, Message, Pipeline, Policy, Redrive, Time,
};

const NOW: Time = Time::from_millis(1_000);

fn keyed(id: &str) -> Message {
    Message::builder(id).key("k").build().expect("within all bounds")
}

#[tokio::test]
async fn a_store_that_is_open_is_not_opened_again_in_the_same_process() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(dir.path()).unwrap();
    let first = embedded.store("orders", StoreOptions::default()).unwrap();
    let second = embedded.clone().store("orders", StoreOptions::default()).unwrap_err();
    assert!(matches!(&second, EngineError::Owned(_)), "{second}");
    assert!(embedded.store("others", StoreOptions::default()).is_ok());
    drop(first);
    assert!(embedded.store("orders", StoreOptions::default()).is_ok(), "a closed one can be opened again");
}

#[tokio::test]
async fn an_ordering_that_would_leave_followers_behind_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(dir.path()).unwrap();
    let by_key = StoreOptions { ordering: DeliveryOrder::Key, ..StoreOptions::default() };
    let mut store = embedded.store("orders", by_key.clone()).unwrap();
    let ingest = store.ingest().unwrap();
    let batch = ["a", "b"].map(|id| redrive::NewMessage { message: keyed(id), due: None }).to_vec();
    ingest.submit(batch, NOW).await.unwrap().unwrap();
    store.poll(&mut Vec::new()).unwrap();
    let mut taken = Vec::new();
    store.take(NOW, 10, &mut taken).unwrap();
    assert_eq!(taken.len(), 1, "the second waits for the first");
    let delivery = taken.remove(0);
    let verdict = Verdict::Retry { due: Time::from_millis(2_000), meta: delivery.meta };
    store.settle(vec![redrive::internal::engine::Settlement { delivery, verdict, attempt: None }]).unwrap();
    store.close().unwrap();
    drop(store);
    let refused = embedded.store("orders", StoreOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("ordering = key until they are done"), "{refused}");
    // The error blames the setting, not the disk.
    let pipeline = redrive::Pipeline::new("orders").handler_fn(|_: Message| async { Ok(()) });
    let error = redrive::Redrive::builder().engine(embedded.clone()).pipeline(pipeline).build().unwrap_err();
    assert_eq!(error.faults[0].kind, redrive::FaultKind::Setting, "{error}");
    assert!(embedded.store("orders", by_key).is_ok());
}

#[derive(Debug)]
struct Unprintable;

impl std::fmt::Display for Unprintable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("an error that cannot even be printed")
    }
}

impl std::error::Error for Unprintable {}

/// Panics when it is dropped.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

/// Runs one message until it is dead and returns the error texts of its letter.
async fn errors_of(pipeline: Pipeline) -> Vec<String> {
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let orders = redrive.pipeline("orders").unwrap();
    orders.ingest([Message::builder("o-1").build().unwrap()]).await.unwrap();
    let mut errors = Vec::new();
    let dead = async {
        while orders.counts().await.unwrap().letters_open == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let letters = orders.letters(Some(LetterState::Open), None, 1).await.unwrap();
        errors.extend(letters[0].history.attempts().into_iter().map(|attempt| attempt.error));
    };
    tokio::time::timeout(Duration::from_mins(5), redrive.run_until(dead)).await.expect("no hang").unwrap();
    errors
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_cannot_be_printed_is_a_failure_like_any_other() {
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["1ms"]))
        .handler_fn(|_| async { Err(Failure::transient(Unprintable)) });
    let errors = errors_of(pipeline).await;
    assert_eq!(errors, ["the error could not be printed: its Display panicked"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_while_it_is_dropped_uses_up_its_attempts() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message| {
        counted.fetch_add(1, SeqCst);
        async {
            let _held = Touchy;
            std::future::pending::<()>().await;
            Ok(())
        }
    };
    let pipeline = Pipeline::new("orders").policy(Policy::tiers(["1ms"])).timeout("10ms").handler_fn(handler);
    assert_eq!(errors_of(pipeline).await.len(), 2);
    assert_eq!(calls.load(SeqCst), 2);
}
