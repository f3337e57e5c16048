//! The outcome of a message, by how its handler ends.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use redrive::{Class, Failure, GuardSettings, MemoryStores, Message, Pipeline, Reason, Redrive, RunReport};
use support::{at_rest, guarded, letters, message, quick};

fn built(pipeline: Pipeline) -> Redrive {
    Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap()
}

/// Ingests the messages and runs until nothing is left to do.
async fn run_all(redrive: &Redrive, messages: Vec<Message>) -> RunReport {
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest(messages).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap()
}

async fn fine(_: &Message) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_handled_once() {
    let redrive = built(Pipeline::new("p").handler(fine));
    let report = run_all(&redrive, (0..5_000).map(|n| message(format!("m-{n}"))).collect()).await;
    assert_eq!((report.total().succeeded, report.total().dead, report.total().retried), (5_000, 0, 0));
}

#[tokio::test]
async fn a_runtime_with_one_thread_will_do() {
    let handler = |_: Message| async {
        tokio::task::yield_now().await;
        Ok(())
    };
    let redrive = built(Pipeline::new("p").handler_fn(handler));
    let report = run_all(&redrive, (0..100).map(|n| message(format!("m-{n}"))).collect()).await;
    assert_eq!(report.total().succeeded, 100);
}

#[tokio::test]
async fn a_transient_failure_is_retried_until_it_succeeds() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message| {
        let call = counted.fetch_add(1, SeqCst);
        async move { if call < 2 { Err(Failure::transient("503")) } else { Ok(()) } }
    };
    let redrive = built(Pipeline::new("p").policy(quick(3)).handler_fn(handler));
    let report = run_all(&redrive, vec![message("a")]).await;
    assert_eq!((report.total().succeeded, report.total().retried), (1, 2));
    assert_eq!(calls.load(SeqCst), 3);
}

#[tokio::test]
async fn a_used_up_budget_ends_in_a_letter_with_every_attempt() {
    let handler = |_: Message| async { Err(Failure::transient("503")) };
    let redrive = built(Pipeline::new("p").policy(quick(2)).handler_fn(handler));
    let letters = letters(&redrive, vec![message("a")]).await;
    assert_eq!(letters[0].reason, Reason::MaxRetries);
    let attempts: Vec<_> = letters[0].history.attempts().iter().map(|a| (a.number, a.counted)).collect();
    assert_eq!(attempts, [(1, true), (2, true), (3, true)]);
    assert_eq!(letters[0].meta.attempts, 3);
}

// S4-11, regression: a malformed message used up the whole retry budget.
#[tokio::test]
async fn a_permanent_failure_is_a_letter_at_once() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message| {
        counted.fetch_add(1, SeqCst);
        async { Err(Failure::permanent("400")) }
    };
    let redrive = built(Pipeline::new("p").policy(quick(5)).handler_fn(handler));
    let letters = letters(&redrive, vec![message("a")]).await;
    assert_eq!((letters[0].reason, calls.load(SeqCst)), (Reason::Permanent, 1));
}

#[tokio::test]
async fn a_timeout_is_transient_and_its_effect_unknown() {
    let handler = |_: Message| std::future::pending();
    let redrive = built(Pipeline::new("p").policy(quick(1)).timeout("5ms").handler_fn(handler));
    let letters = letters(&redrive, vec![message("a")]).await;
    let attempt = &letters[0].history.attempts()[0];
    assert_eq!((attempt.class, attempt.ambiguous), (Class::Transient, true));
    assert_eq!(attempt.error, "the handler timed out after 5 ms");
}

#[tokio::test]
async fn every_letter_of_a_flood_reaches_a_slow_hook_before_the_run_ends() {
    let heard = Arc::new(AtomicU32::new(0));
    let hears = Arc::clone(&heard);
    let pipeline = Pipeline::new("p")
        .guard(GuardSettings::off())
        .handler_fn(|_: Message| async { Err(Failure::gone("410")) })
        .on_dead_letter(move |_| {
            hears.fetch_add(1, SeqCst);
        });
    letters(&built(pipeline), (0..5_000).map(|n| message(format!("m-{n}"))).collect()).await;
    assert_eq!(heard.load(SeqCst), 5_000);
}
