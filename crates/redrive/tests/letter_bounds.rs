//! Whatever was accepted can become a dead letter: the largest message, the longest error, the longest story.

mod support;

use redrive::{BreakerSettings, Embedded, Failure, GuardSettings, LetterState, Message, Pipeline, Redrive};
use redrive_core::message::limits;
use support::{guarded, quick, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_message_dies_with_the_longest_story_and_comes_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let handler = |_: Message| async { Err::<(), _>(Failure::transient("é".repeat(100_000))) };
    let pipeline = Pipeline::new("orders").policy(quick(12).outage_gate(false)).handler_fn(handler);
    let pipeline = pipeline.guard(GuardSettings::off()).breaker(BreakerSettings::off());
    let engine = Embedded::open(dir.path()).unwrap();
    let redrive = Redrive::builder().engine(engine).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let largest = Message::builder("i".repeat(limits::ID_BYTES_MAX))
        .key("k".repeat(limits::KEY_BYTES_MAX))
        .tenant("t".repeat(limits::TENANT_BYTES_MAX))
        .header("h", "v".repeat(limits::HEADERS_BYTES_MAX / 2))
        .payload(vec![b'x'; limits::PAYLOAD_BYTES_MAX])
        .build()
        .unwrap();
    handle.ingest([largest.clone()]).await.unwrap();
    let running = tokio::spawn({
        let redrive = redrive.clone();
        async move { redrive.run_until(std::future::pending::<()>()).await }
    });
    guarded(until(&handle, |counts| counts.letters_open == 1)).await;
    let letter = handle.letters(Some(LetterState::Open), None, 1).await.unwrap().remove(0);
    assert_eq!(letter.message.payload(), largest.payload());
    assert_eq!(letter.message.id(), largest.id());
    let attempts = letter.history.attempts();
    assert_eq!((attempts[0].number, attempts.last().unwrap().number), (1, 13), "the first and the latest");
    assert!(attempts.iter().all(|attempt| attempt.error.ends_with('…')), "what was cut says so");
    running.abort();
}
