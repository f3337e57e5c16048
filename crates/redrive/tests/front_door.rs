//! What users of the library write: their own backoff, typed payloads, and jitter they rely on.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use redrive::messages::MessageQuery;
use redrive::{
    BreakerSettings, Call, Embedded, FailedAttempt, Failure, FailureKind, GuardSettings, Json, Letter,
    MemoryStores, Message, PendingState, Pipeline, Policy, Reason, Redrive, Stores, VirtualClock,
};
use redrive_core::PolicyBuilder;
use support::{guarded, letters, message, until};

/// An error type of the user's downstream.
#[derive(Debug, thiserror::Error)]
#[error("closed until {hours} h from now")]
struct ShopClosed {
    hours: u64,
}

/// A pipeline in which everything may fail without triggering any protection.
fn unprotected(name: &str, policy: PolicyBuilder) -> Pipeline {
    Pipeline::new(name)
        .breaker(BreakerSettings::off())
        .guard(GuardSettings::off())
        .policy(policy.outage_gate(false))
}

fn waits(letter: &Letter) -> Vec<Duration> {
    let at: Vec<_> = letter.history.attempts().iter().map(|attempt| attempt.at).collect();
    at.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

async fn a_backoff_knows_message_class_retry_after_and_error(stores: impl Stores + 'static) {
    let backoff = |failed: &FailedAttempt<'_>| {
        let closed = failed.failure.downcast_ref::<ShopClosed>();
        match (failed.message.id(), closed) {
            (_, Some(closed)) => Some(Duration::from_hours(closed.hours)),
            ("patient", _) => Some(Duration::from_mins(10) * failed.retry),
            // The downstream asks for more than this, and its wish counts.
            ("limited", _) => {
                assert_eq!(failed.retry_after(), Some(Duration::from_hours(1)));
                Some(Duration::from_secs(1))
            }
            ("panics", _) => panic!("a bug of the user"),
            _ => None,
        }
    };
    let pipeline = unprotected("p", Policy::fixed("1m").retries(2).jitter("none")).backoff(backoff);
    let pipeline = pipeline.handler(async |message: &Message| match message.id() {
        "closed" => Err(Failure::transient(ShopClosed { hours: 3 })),
        "limited" => Err(Failure::rate_limited(Duration::from_hours(1), "429")),
        _ => Err(Failure::transient("503").of_kind(FailureKind::Status(503))),
    });
    let redrive = Redrive::builder().engine(stores).clock(VirtualClock::default()).pipeline(pipeline);
    let ids = ["closed", "patient", "limited", "panics", "plain"];
    let letters = letters(&redrive.build().unwrap(), ids.map(message).to_vec()).await;
    let minutes = |id: &str| {
        let letter = letters.iter().find(|letter| letter.message.id() == id).unwrap();
        assert_eq!(letter.reason, Reason::MaxRetries, "the policy still says how often");
        waits(letter).iter().map(|wait| wait.as_secs() / 60).collect::<Vec<_>>()
    };
    assert_eq!(minutes("closed"), [180, 180]);
    assert_eq!(minutes("patient"), [10, 20]);
    assert!(minutes("limited").iter().all(|wait| (60..=66).contains(wait)), "Retry-After is the least");
    assert_eq!(minutes("panics"), [1, 1], "left to the schedule");
    assert_eq!(minutes("plain"), [1, 1]);
}

#[tokio::test]
async fn a_backoff_knows_message_class_retry_after_and_error_in_memory() {
    a_backoff_knows_message_class_retry_after_and_error(MemoryStores::new()).await;
}

#[tokio::test]
async fn a_backoff_knows_message_class_retry_after_and_error_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    a_backoff_knows_message_class_retry_after_and_error(Embedded::open(dir.path()).unwrap()).await;
}

#[derive(serde::Deserialize)]
struct Order {
    amount: u64,
}

#[tokio::test]
async fn a_payload_that_does_not_parse_is_dead_at_once_and_says_where() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let pipeline = unprotected("p", Policy::fixed("1m").retries(5)).json_handler(
        move |order: Json<Order>, call: Call| {
            assert_eq!((order.amount, call.attempt), (5, 1));
            counted.fetch_add(1, SeqCst);
            async { Ok(()) }
        },
    );
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let order = |id: &str, payload: &str| Message::builder(id).payload(payload.to_owned()).build().unwrap();
    let messages = vec![order("good", r#"{"amount":5}"#), order("bad", r#"{"amount":"five"}"#)];
    let letters = letters(&redrive, messages).await;
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.message.id(), letter.reason), ("bad", Reason::Permanent));
    let attempts = letter.history.attempts();
    let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!(attempt.code.as_deref(), Some("bad_payload"));
    assert!(attempt.error.starts_with("the payload cannot be read at `amount`: invalid type"), "{attempt:?}");
    assert_eq!(calls.load(SeqCst), 1);
}

/// With a constant random source, all retries would be due at the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_pipeline_spreads_its_retries() {
    const MESSAGES: u64 = 200;
    let pipeline = unprotected("p", Policy::fixed("1h").retries(1).jitter("full"))
        .handler(async |_: &Message| Err::<(), _>(Failure::transient("503")));
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest((0..MESSAGES).map(|n| message(format!("m-{n}"))).collect::<Vec<_>>()).await.unwrap();
    let mut delays = Vec::new();
    let look = async {
        // Messages that drew a very short delay may be dead already.
        until(&handle, |c| c.delayed + c.letters_open == MESSAGES && c.in_flight == 0).await;
        let query = MessageQuery { state: Some(PendingState::Delayed), filter: None };
        let page = query.page(&handle, None, MESSAGES as usize).await.unwrap();
        for listed in page.messages {
            let failed = listed.found.history.attempts().pop().unwrap().at;
            delays.push(listed.found.due.unwrap().since(failed).as_secs());
        }
    };
    guarded(redrive.run_until(look)).await.unwrap();
    assert!(delays.len() as u64 > MESSAGES - 10, "{}", delays.len());
    let quarters: BTreeSet<u64> = delays.iter().map(|seconds| seconds / 900).collect();
    assert_eq!(quarters, BTreeSet::from([0, 1, 2, 3]), "{delays:?}");
    let distinct: BTreeSet<&u64> = delays.iter().collect();
    assert!(distinct.len() > 150, "{delays:?}");
}
