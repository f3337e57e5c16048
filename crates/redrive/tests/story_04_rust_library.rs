//! Story 4, a Rust service uses the library: a test for each line of its acceptance criteria.
//!
//! "The example compiles in CI", and does what it says, has a second test: `story_04_payments.rs` in redrive-postgres.
//! No test asserts wall-clock time: the hang guard shows that four retries over 20 minutes pass at once.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::internal::engine::Query;
use redrive::{
    BreakerSettings, Class, Embedded, Failure, MemoryStores, Message, Pipeline, Policy, Reason, Redrive,
    VirtualClock,
};
use support::{guarded, letters, message, quick, until};

// "the example in the README is this file and compiles in CI"
#[test]
fn the_readme_shows_an_example_that_is_compiled() {
    let example = include_str!("../examples/shortest.rs");
    assert!(include_str!("../../../README.md").contains(&format!("```rust\n{example}```")));
}

// "a panic in `charge` becomes class `crash` and the process lives"
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
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .pipeline(Pipeline::new("p").policy(quick(5).crash(2, "1h")).handler(handler))
        .build()
        .unwrap();
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

// "`run_until` returns within the drain time with 10,000 messages waiting" S4-8, S4-12: a plain sleep in a retry loop
// delayed the shutdown by the longest backoff.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiting_messages_do_not_delay_the_end() {
    let stores = MemoryStores::new();
    let policy = Policy::fixed("1h").retries(3);
    let handler = |_: Message| async { Err(Failure::transient("503")) };
    let redrive = Redrive::builder()
        .engine(stores.clone())
        .drain(Duration::from_hours(1))
        .pipeline(Pipeline::new("p").policy(policy).breaker(BreakerSettings::off()).handler_fn(handler))
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest((0..10_000).map(|n| message(format!("m-{n}")))).await.unwrap();
    let report = guarded(redrive.run_until(until(&handle, |c| c.delayed == 10_000))).await.unwrap();
    assert_eq!((report.total().retried, report.total().interrupted), (10_000, 0));
    assert_eq!(stores.store("p").unwrap().counts().delayed, 10_000);
}

// "a test with `Memory` engine and virtual time runs four retries in < 10 ms of real time"
#[tokio::test]
async fn four_retries_over_twenty_minutes_pass_at_once_by_the_virtual_clock() {
    let policy = Policy::tiers(["5s", "30s", "5m", "15m"]);
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

#[derive(Debug, thiserror::Error)]
#[error("card {card} was declined")]
struct Declined {
    card: u32,
    #[source]
    cause: std::io::Error,
}

// "the dead letter's error downcasts to the user's type in process and prints its chain on disk" S4-6: the cause is
// matched by type, not by text.
#[tokio::test]
async fn the_hook_gets_the_typed_cause_and_the_letter_on_disk_its_chain() {
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
    let dir = tempfile::tempdir().unwrap();
    let opened = |pipeline| {
        let engine = Embedded::open(dir.path()).unwrap();
        Redrive::builder().engine(engine).pipeline(pipeline).build().unwrap()
    };
    letters(&opened(pipeline), vec![message("a")]).await;
    // Another process finds the letter with the whole error chain, as text.
    let next = opened(Pipeline::new("p").handler_fn(|_: Message| async { Ok(()) }));
    let found = next.pipeline("p").unwrap().letters(None, None, 100).await.unwrap();
    assert_eq!(found[0].history.attempts()[0].error, "card 7 was declined: no funds");
    let text = "p: a is dead (permanent) after 1 attempts: card 7 was declined: no funds".to_owned();
    assert_eq!(*heard.lock().unwrap(), [("a".to_owned(), Some(7), text)]);
}
