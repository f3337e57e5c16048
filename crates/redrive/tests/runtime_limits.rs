//! Limits and error texts: how much may be pending, what a closed pipeline answers, names, directories, hooks.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::internal::engine::{Accepted, Deliver, EngineError, IngestError, Memory, StoreOptions};
use redrive::{
    AttemptFailed, BreakerSettings, Class, Clock, Decided, DeliveryOrder, Embedded, Failure, GuardSettings,
    MemoryStores, Message, Mode, Pipeline, Policy, Reason, Redrive, VirtualClock,
};
use support::{at_rest, guarded, message, until};

fn built(pipeline: Pipeline) -> Redrive {
    Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap()
}

async fn fine(_: &Message) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn no_more_is_accepted_than_may_be_pending() {
    let redrive = built(Pipeline::new("p").max_pending(10).dedup(Duration::from_mins(1)).handler(fine));
    let handle = redrive.pipeline("p").unwrap();
    let batch = |from: u32, len: u32| (from..from + len).map(|n| message(format!("m-{n}")));
    handle.ingest(batch(0, 8)).await.unwrap();
    let refused = handle.ingest(batch(8, 3)).await.unwrap_err();
    assert_eq!(refused, IngestError::TooMany { pending: 8, max: 10 });
    assert!(refused.to_string().contains("8 messages are pending"), "{refused}");
    assert_eq!(handle.counts().await.unwrap().ready, 8, "all or nothing");
    handle.ingest(batch(0, 2)).await.unwrap();
    handle.ingest(batch(8, 2)).await.expect("duplicates take no place");
    let work = async {
        at_rest(&handle).await;
        // Far more than may be pending at once gets through, as long as the pipeline keeps up.
        for round in 1..50 {
            while handle.ingest(batch(round * 10, 10)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        at_rest(&handle).await;
    };
    let report = guarded(redrive.run_until(work)).await.unwrap();
    assert_eq!(report.total().succeeded, 500);
}

/// A producer repeats batches without an answer. If a full pipeline refused them, it would repeat them forever.
#[tokio::test]
async fn a_full_pipeline_still_knows_what_it_has_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = || Pipeline::new("p").max_pending(2).dedup(Duration::from_mins(1)).handler(fine);
    let stored = Redrive::builder().engine(Embedded::open(dir.path()).unwrap()).pipeline(pipeline());
    for redrive in [built(pipeline()), stored.build().unwrap()] {
        let handle = redrive.pipeline("p").unwrap();
        handle.ingest(["a", "b"].map(message)).await.unwrap();
        let seqs = |accepted: Vec<Accepted>| {
            let seq = |one| if let Accepted::Duplicate { seq } = one { Some(seq) } else { None };
            accepted.into_iter().map(seq).collect::<Vec<_>>()
        };
        assert_eq!(seqs(handle.ingest([message("b")]).await.unwrap()), [Some(1)]);
        assert_eq!(seqs(handle.ingest(["b", "a"].map(message)).await.unwrap()), [Some(1), Some(0)]);
        let full = Err(IngestError::TooMany { pending: 2, max: 2 });
        assert_eq!(handle.ingest(["a", "c"].map(message)).await, full, "all or nothing");
        assert_eq!(handle.ingest([message("c")]).await, full);
        assert_eq!(handle.counts().await.unwrap().ready, 2);
    }
}

#[tokio::test]
async fn what_a_store_holds_already_counts_as_pending() {
    let stores = MemoryStores::new();
    let built = || {
        let pipeline = Pipeline::new("p").max_pending(2).handler(fine);
        Redrive::builder().engine(stores.clone()).pipeline(pipeline).build().unwrap()
    };
    built().pipeline("p").unwrap().ingest([message("a"), message("b")]).await.unwrap();
    let again = built().pipeline("p").unwrap();
    assert_eq!(again.ingest([message("c")]).await, Err(IngestError::TooMany { pending: 2, max: 2 }));
}

#[tokio::test]
async fn replayed_letters_are_never_refused_and_count_as_pending() {
    let handler = |_: Message| async { Err(Failure::permanent("400")) };
    let redrive = built(Pipeline::new("p").max_pending(3).handler_fn(handler));
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest(["a", "b", "c"].map(message)).await.unwrap();
    let work = async {
        until(&handle, |c| c.letters_open == 3).await;
        handle.pause().await.unwrap();
        while handle.ingest([message("d")]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ids: Vec<u64> = handle.letters(None, None, 9).await.unwrap().iter().map(|l| l.id).collect();
        handle.replay(ids).await.unwrap();
        while handle.figures().pending.held < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let refused = handle.ingest([message("e")]).await.unwrap_err();
        assert_eq!(refused, IngestError::TooMany { pending: 4, max: 3 });
    };
    guarded(redrive.run_until(work)).await.unwrap();
}

#[tokio::test]
async fn a_pipeline_whose_run_has_ended_says_that_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let redrive = Redrive::builder()
        .engine(Embedded::open(dir.path()).unwrap())
        .pipeline(Pipeline::new("p").handler(fine))
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    guarded(redrive.run_until(async {})).await.unwrap();
    let error = handle.ingest([message("a")]).await.unwrap_err();
    assert_eq!(error, IngestError::NotTaking);
    assert!(error.to_string().contains("nothing was accepted"), "{error}");
}

#[tokio::test]
async fn a_message_can_be_due_in_a_while() {
    let clock = Arc::new(VirtualClock::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sees, reads) = (Arc::clone(&seen), Arc::clone(&clock));
    let handler = move |_: Message| {
        sees.lock().unwrap().push(reads.now());
        async { Ok(()) }
    };
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(Arc::clone(&clock))
        .pipeline(Pipeline::new("p").handler_fn(handler))
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    let now = handle.now();
    handle.ingest_in(Duration::from_secs(5), [message("a")]).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [now.plus(Duration::from_secs(5))]);
}

#[tokio::test]
async fn every_failed_attempt_is_told_with_its_decision_and_its_notes() {
    let told: Arc<Mutex<Vec<AttemptFailed>>> = Arc::default();
    let hears = Arc::clone(&told);
    let handler = |m: Message| async move {
        let failure = match m.id() {
            "limited" => Failure::rate_limited(Duration::from_secs(7), "429"),
            _ => Failure::transient(std::io::Error::other("connection refused")),
        };
        Err(failure.note("status_code", "503").note("endpoint_hash", "hmac-sha256:1f"))
    };
    let pipeline = Pipeline::new("p")
        .policy(Policy::tiers(["5s"]).jitter("none").retry_after_jitter(redrive_core::Ratio::percent(0)))
        .handler_fn(handler)
        .on_failure(move |failed| hears.lock().unwrap().push(failed.clone()));
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(VirtualClock::default())
        .pipeline(pipeline)
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    let began = handle.now();
    handle.ingest([message("limited")]).await.unwrap();
    let work = async {
        until(&handle, |c| c.letters_open == 1).await;
        handle.ingest([message("refused")]).await.unwrap();
        until(&handle, |c| c.letters_open == 2).await;
    };
    guarded(redrive.run_until(work)).await.unwrap();
    let told = told.lock().unwrap();
    let of = |id: &str| told.iter().filter(|f| f.message_id == id).cloned().collect::<Vec<_>>();
    let limited = of("limited");
    assert_eq!(limited.len(), 2);
    assert_eq!((limited[0].attempt, limited[1].attempt, &*limited[0].pipeline), (1, 2, "p"));
    assert_eq!(
        (limited[0].class, limited[0].retry_after),
        (Class::RateLimited, Some(Duration::from_secs(7)))
    );
    let due = began.plus(Duration::from_secs(7));
    assert_eq!(limited[0].decision, Decided::Retry { due, tier: "5s".into(), counts: true });
    assert_eq!((limited[1].decision.clone(), limited[1].at), (Decided::Dead(Reason::MaxRetries), due));
    let refused = of("refused");
    assert_eq!(refused[0].error, "connection refused");
    let notes = [("status_code", "503".to_owned()), ("endpoint_hash", "hmac-sha256:1f".to_owned())];
    assert_eq!(refused[0].notes, notes);
}

#[tokio::test]
async fn a_failure_hook_that_panics_or_is_slow_loses_nothing() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let pipeline = Pipeline::new("p")
        .policy(support::quick(0).outage_gate(false))
        .breaker(BreakerSettings::off())
        .guard(GuardSettings::off())
        .handler_fn(|_: Message| async { Err(Failure::transient("503")) })
        .on_failure(move |_| {
            assert!(counted.fetch_add(1, SeqCst).is_multiple_of(2), "every second one panics");
        });
    let redrive = built(pipeline);
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest((0..3_000).map(|n| message(format!("m-{n}")))).await.unwrap();
    std::panic::set_hook(Box::new(|_| {}));
    guarded(redrive.run_until(until(&handle, |c| c.letters_open == 3_000))).await.unwrap();
    let _ = std::panic::take_hook();
    assert_eq!(calls.load(SeqCst), 3_000, "the run waits for what its hooks have to hear");
}

#[test]
fn a_handle_shows_how_its_pipeline_was_built() {
    let pipeline = Pipeline::new("a")
        .policy(Policy::fixed("1s").retries(2))
        .mode(Mode::Blocking)
        .ordering(DeliveryOrder::Key);
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .pipeline(pipeline.concurrency(3).handler(fine))
        .pipeline(Pipeline::new("b").handler(fine))
        .build()
        .unwrap();
    let names: Vec<String> = redrive.pipelines().map(|handle| handle.name().to_owned()).collect();
    assert_eq!(names, ["a", "b"]);
    let a = redrive.pipeline("a").unwrap();
    assert_eq!((a.policy().retries(), a.mode(), a.policy().mode()), (2, Mode::Blocking, Mode::Blocking));
    assert_eq!((a.ordering(), a.concurrency(), a.is_paused()), (DeliveryOrder::Key, 3, false));
    assert_eq!(redrive.pipeline("b").unwrap().mode(), Mode::NonBlocking);
}

#[tokio::test]
async fn pausing_is_seen_before_and_while_it_runs() {
    let redrive = built(Pipeline::new("p").handler(fine));
    let handle = redrive.pipeline("p").unwrap();
    handle.pause().await.unwrap();
    assert!(handle.is_paused() && handle.figures().paused);
    let work = async {
        handle.resume().await.unwrap();
        assert!(!handle.is_paused());
    };
    guarded(redrive.run_until(work)).await.unwrap();
}

#[test]
fn names_that_no_store_can_have_are_refused_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(dir.path()).unwrap();
    for name in ["LOCK", "FORMAT", "lock", ".hidden", "..", "a/b", "", "replays"] {
        let pipeline = Pipeline::new(name).handler(fine);
        let error = Redrive::builder().engine(embedded.clone()).pipeline(pipeline).build().unwrap_err();
        assert_eq!((error.faults.len(), &*error.faults[0].key), (1, "name"), "{error}");
        assert!(error.faults[0].fix.contains("a-z"), "{error}");
        let store = embedded.store(name, StoreOptions::default()).unwrap_err();
        assert!(matches!(store, EngineError::Directory { .. }), "one rule for both: {store}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_says_what_to_do_about_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a-file");
    std::fs::write(&file, "in the way").unwrap();
    let mut errors = vec![
        Embedded::open(&file).unwrap_err(),
        Embedded::open(file.join("below")).unwrap_err(),
        Embedded::open("/proc/redrive/nowhere").unwrap_err(),
    ];
    // A user who may write everywhere cannot be refused; a file in place of a store's directory stops everyone.
    let embedded = Embedded::open(dir.path().join("store")).unwrap();
    std::fs::write(dir.path().join("store/orders"), "in the way").unwrap();
    errors.push(embedded.store("orders", StoreOptions::default()).unwrap_err());
    for error in errors {
        assert!(matches!(error, EngineError::Directory { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("choose another directory") && !text.contains("repair the disk"), "{text}");
    }
}

#[test]
fn the_memory_engine_calls_out_when_something_was_settled() {
    let mut memory = Memory::new(StoreOptions::default());
    let called = Arc::new(AtomicBool::new(false));
    let calls = Arc::clone(&called);
    memory.on_wake(Arc::new(move || calls.store(true, SeqCst)));
    memory.settle(Vec::new()).unwrap();
    assert!(called.load(SeqCst), "it is durable at the next poll");
}
