//! What becomes of a message, by how its handler ends.

mod support;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use redrive::{
    Class, Failure, GuardSettings, MemoryStores, Message, Pipeline, Reason, Redrive, RunReport, VirtualClock,
};
use support::{at_rest, guarded, message, quick};

fn built(pipeline: Pipeline) -> Redrive {
    Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap()
}

/// Ingests the messages and runs until nothing is left to do.
async fn run_all(redrive: &Redrive, messages: Vec<Message>) -> RunReport {
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest(messages).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap()
}

async fn letters(redrive: &Redrive, messages: Vec<Message>) -> Vec<redrive::Letter> {
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest(messages).await.unwrap();
    let mut letters = Vec::new();
    let look = async {
        at_rest(&handle).await;
        letters = handle.letters(None, None, 100).await.unwrap();
    };
    guarded(redrive.run_until(look)).await.unwrap();
    letters
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

// S4-11: a malformed message used to burn the whole retry budget.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_a_crash_of_its_message_and_of_nothing_else() {
    async fn handler(message: &Message) -> Result<(), Failure> {
        match message.id() {
            "at once" => panic!("bad {}", "header"),
            "later" => {
                tokio::task::yield_now().await;
                panic!("bad trailer")
            }
            _ => Ok(()),
        }
    }
    let redrive = built(Pipeline::new("p").policy(quick(5).crash(2, "1h")).handler(handler));
    let mut messages: Vec<_> = (0..100).map(|n| message(format!("good {n}"))).collect();
    messages.extend([message("at once"), message("later")]);
    let letters = letters(&redrive, messages).await;
    assert_eq!(letters.len(), 2);
    for (letter, error) in letters.iter().zip(["bad header", "bad trailer"]) {
        assert_eq!(letter.reason, Reason::PoisonPill);
        let attempt = &letter.history.attempts()[0];
        assert_eq!(
            (attempt.class, attempt.error.as_str()),
            (Class::Crash, &*format!("the handler panicked: {error}"))
        );
    }
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

#[derive(Debug, thiserror::Error)]
#[error("card {card} was declined")]
struct Declined {
    card: u32,
    #[source]
    cause: std::io::Error,
}

// S4-6: the cause is matched by its type, not by its text.
#[tokio::test]
async fn the_hook_gets_the_typed_cause_and_the_letter_its_chain() {
    let handler = |_: Message| async {
        Err(Failure::permanent(Declined { card: 7, cause: std::io::Error::other("no funds") }))
    };
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let pipeline = Pipeline::new("p").handler_fn(handler).on_dead_letter(move |letter| {
        let declined = letter.failure.as_ref().and_then(|failure| failure.downcast_ref::<Declined>());
        hears.lock().unwrap().push((
            letter.message.id().to_owned(),
            declined.map(|d| d.card),
            letter.to_string(),
        ));
    });
    let letters = letters(&built(pipeline), vec![message("a")]).await;
    assert_eq!(letters[0].history.attempts()[0].error, "card 7 was declined: no funds");
    let text = "p: a is dead (permanent) after 1 attempts: card 7 was declined: no funds".to_owned();
    assert_eq!(*heard.lock().unwrap(), [("a".to_owned(), Some(7), text)]);
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

#[tokio::test]
async fn four_retries_over_twenty_minutes_pass_at_once_by_the_virtual_clock() {
    let policy = redrive::Policy::tiers(["5s", "30s", "5m", "15m"]);
    let handler = |_: Message| async { Err(Failure::transient("503")) };
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(VirtualClock::default())
        .pipeline(Pipeline::new("p").policy(policy).handler_fn(handler))
        .build()
        .unwrap();
    let letters = letters(&redrive, vec![message("a")]).await;
    let attempts = letters[0].history.attempts();
    assert_eq!(attempts.len(), 5);
    let waited = attempts[4].at.since(attempts[0].at);
    assert!(waited >= Duration::from_mins(10), "only {waited:?} of virtual time passed");
}
