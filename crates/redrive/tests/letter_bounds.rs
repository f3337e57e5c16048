//! Every accepted message can become a dead letter: the largest message, the longest error, the longest history.

mod support;

use proptest::prelude::*;
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

/// A message of the given sizes, and the failure that its handler returns.
#[derive(Clone, Debug)]
struct Sized {
    id: usize,
    key: Option<usize>,
    tenant: Option<usize>,
    headers: Vec<(usize, usize)>,
    payload: Option<usize>,
    error: String,
}

fn any_sized() -> impl Strategy<Value = Sized> {
    let up_to = |max: usize| prop_oneof![3 => 0..=64.min(max), 1 => 0..=max, 1 => Just(max)];
    let unit = prop::sample::select(vec![
        "é",
        "x",
        "世",
        "\u{0}",
        "\"\\",
        "\n",
        "  at com.example.Orders.load(O.java:7)\n",
    ]);
    let error = (unit, 0..20_000_usize).prop_map(|(unit, times)| unit.repeat(times));
    let headers = prop::collection::vec((1..40_usize, 0..limits::HEADERS_BYTES_MAX / 10), 0..8);
    (
        up_to(limits::ID_BYTES_MAX - 8),
        prop::option::of(up_to(limits::KEY_BYTES_MAX)),
        prop::option::of(up_to(limits::TENANT_BYTES_MAX)),
        headers,
        prop::option::of(up_to(limits::PAYLOAD_BYTES_MAX)),
        error,
    )
        .prop_map(|(id, key, tenant, headers, payload, error)| Sized {
            id,
            key,
            tenant,
            headers,
            payload,
            error,
        })
}

fn made(number: usize, sized: &Sized) -> Message {
    let mut builder = Message::builder(format!("{number:08}{}", "i".repeat(sized.id)));
    if let Some(key) = sized.key {
        builder = builder.key("k".repeat(key));
    }
    if let Some(tenant) = sized.tenant {
        builder = builder.tenant("t".repeat(tenant));
    }
    for (name, value) in &sized.headers {
        builder = builder.header("h".repeat(*name), "v".repeat(*value));
    }
    if let Some(payload) = sized.payload {
        builder = builder.payload(vec![b'x'; payload]);
    }
    builder.build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every accepted message fits as a dead letter, whatever its failures were, and dies once.
    #[test]
    fn any_message_that_was_accepted_fits_as_a_dead_letter(all in prop::collection::vec(any_sized(), 1..12)) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let texts: Vec<String> = all.iter().map(|sized| sized.error.clone()).collect();
            let handler = move |message: Message| {
                let text = texts[message.id()[..8].parse::<usize>().unwrap()].clone();
                async move { Err::<(), _>(Failure::transient(text.clone()).with_code(&text)) }
            };
            let pipeline = Pipeline::new("orders").policy(quick(9).outage_gate(false)).handler_fn(handler);
            let pipeline = pipeline.guard(GuardSettings::off()).breaker(BreakerSettings::off());
            let engine = Embedded::open(dir.path()).unwrap();
            let redrive = Redrive::builder().engine(engine).pipeline(pipeline).build().unwrap();
            let handle = redrive.pipeline("orders").unwrap();
            let messages: Vec<Message> = all.iter().enumerate().map(|(n, sized)| made(n, sized)).collect();
            for message in &messages {
                handle.ingest([message.clone()]).await.unwrap();
            }
            let count = messages.len() as u64;
            let at_rest = until(&handle, |counts| counts.letters_open == count && counts.pending() == 0);
            guarded(redrive.run_until(at_rest)).await.unwrap();
            drop((redrive, handle));

            // After a restart they are complete, each with its first and latest attempts.
            let engine = Embedded::open(dir.path()).unwrap();
            let idle = Pipeline::new("orders").handler_fn(|_: Message| async { Ok(()) });
            let redrive = Redrive::builder().engine(engine).pipeline(idle).build().unwrap();
            let handle = redrive.pipeline("orders").unwrap();
            let letters = handle.letters(None, None, 100).await.unwrap();
            assert_eq!(letters.len() as u64, count);
            for (letter, message) in letters.iter().zip(&messages) {
                assert_eq!(letter.message.wire().len(), message.wire().len());
                assert_eq!(letter.message.payload(), message.payload());
                let attempts = letter.history.attempts();
                assert_eq!((letter.meta.attempts, attempts[0].number), (10, 1));
                assert_eq!(attempts.last().unwrap().number, 10);
            }
        });
    }
}
