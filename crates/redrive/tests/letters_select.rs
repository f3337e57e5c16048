//! Messages by id, and selections of letters, through a pipeline's handle.

mod support;

use std::time::Duration;

use redrive::internal::engine::letter::SCAN_BYTES;
use redrive::internal::letters::select::{PAGE_BYTES, PAGE_MAX, letter_id, resolve};
use redrive::letters::{Filter, SelectError, Selection};
use redrive::{
    BreakerSettings, DeliveryOrder, Embedded, Failure, FailureKind, GuardSettings, HandleError, Letter,
    LetterState, MemoryStores, Message, MessagePhase, Pipeline, PipelineHandle, Reason, Redrive, Stores,
    Time, VirtualClock,
};
use support::{at_rest, guarded, keyed, message, quick, until};
use tokio::sync::Notify;

/// Fails as the id says: `p` permanently, `t` transiently each time, anything else never.
fn by_id(m: &Message) -> Result<(), Failure> {
    match m.id().as_bytes()[0] {
        b'p' => Err(Failure::permanent("422 no such currency").of_kind(FailureKind::Status(422))),
        b't' => Err(Failure::transient("503 Service Unavailable").of_kind(FailureKind::Status(503))),
        _ => Ok(()),
    }
}

fn built(stores: impl Stores + 'static, pipeline: Pipeline) -> (Redrive, PipelineHandle) {
    let redrive = Redrive::builder().engine(stores).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    (redrive, handle)
}

fn orders() -> Pipeline {
    // Nearly every message dies here, on purpose.
    let policy = quick(0).outage_gate(false);
    let orders = Pipeline::new("orders").breaker(BreakerSettings::off()).guard(GuardSettings::off());
    orders.policy(policy).handler_fn(|m: Message| async move { by_id(&m) })
}

/// A pipeline with letters 0 to `count`, every second one a `t`.
async fn with_letters(
    stores: impl Stores + 'static,
    pipeline: Pipeline,
    count: usize,
) -> (Redrive, PipelineHandle) {
    let (redrive, handle) = built(stores, pipeline);
    let ids = (0..count).map(|n| message(format!("{}-{n}", if n % 2 == 0 { "p" } else { "t" })));
    handle.ingest(ids).await.unwrap();
    let running = redrive.clone();
    let done = handle.clone();
    tokio::spawn(async move { running.run_until(std::future::pending::<()>()).await });
    guarded(until(&done, |c| c.letters_open == count as u64)).await;
    (redrive, handle)
}

async fn state_of(handle: &PipelineHandle, id: &str) -> MessagePhase {
    handle.message(id).await.unwrap().expect("it is known").state
}

async fn every_state_is_seen(stores: impl Stores + 'static) {
    let started = std::sync::Arc::new(Notify::new());
    let (go_on, starts) = (std::sync::Arc::new(Notify::new()), std::sync::Arc::clone(&started));
    let release = std::sync::Arc::clone(&go_on);
    let handler = move |m: Message| {
        let (go_on, started) = (std::sync::Arc::clone(&go_on), std::sync::Arc::clone(&starts));
        async move {
            if m.id() == "slow" {
                started.notify_one();
                go_on.notified().await;
            }
            by_id(&m)
        }
    };
    let policy = redrive::Policy::fixed("1h").retries(2).jitter("none");
    let pipeline = Pipeline::new("orders")
        .policy(policy)
        .ordering(DeliveryOrder::Key)
        .dedup(Duration::from_hours(24))
        .handler_fn(handler);
    let (redrive, handle) = built(stores, pipeline);
    let far = Time::from_millis(handle.now().as_millis() + 7_200_000);
    handle
        .ingest([keyed("slow", "k"), keyed("behind", "k"), message("p-1"), message("t-1"), message("good")])
        .await
        .unwrap();
    handle.ingest([(message("later"), far)]).await.unwrap();
    let deadline = Time::from_millis(handle.now().as_millis() + 60_000);
    let with_deadline = Message::builder("waits").deadline(deadline).build().unwrap();
    // The pipeline is not running yet.
    assert_eq!(state_of(&handle, "good").await, MessagePhase::Ready);
    assert_eq!(handle.message("nobody").await.unwrap(), None);

    let running = redrive.clone();
    let run = tokio::spawn(async move { running.run_until(std::future::pending::<()>()).await });
    guarded(started.notified()).await;
    guarded(until(&handle, |c| c.letters_open == 1 && c.delayed == 2 && c.key_wait == 1)).await;
    assert_eq!(state_of(&handle, "slow").await, MessagePhase::InFlight);
    assert_eq!(state_of(&handle, "behind").await, MessagePhase::KeyWait);
    assert_eq!(state_of(&handle, "good").await, MessagePhase::Succeeded);
    let later = handle.message("later").await.unwrap().unwrap();
    assert_eq!((later.state, later.due, later.attempts), (MessagePhase::Delayed, Some(far), 0));
    let retried = handle.message("t-1").await.unwrap().unwrap();
    assert_eq!((retried.state, retried.attempts, retried.letter), (MessagePhase::Delayed, 1, None));
    assert!(retried.due.is_some_and(|due| due > handle.now()));
    assert_eq!(retried.history[0].error, "503 Service Unavailable");
    let dead = handle.message("p-1").await.unwrap().unwrap();
    assert_eq!((dead.state, dead.reason), (MessagePhase::Dead, Some(Reason::Permanent)));
    let letter = dead.letter.unwrap();
    assert_eq!(dead.history[0].error, "422 no such currency");

    handle.pause().await.unwrap();
    handle.ingest([with_deadline]).await.unwrap();
    let waits = handle.message("waits").await.unwrap().unwrap();
    assert_eq!((waits.state, waits.deadline), (MessagePhase::Ready, Some(deadline)));
    handle.discard([letter]).await.unwrap();
    assert_eq!(state_of(&handle, "p-1").await, MessagePhase::Discarded);
    handle.undo([letter]).await.unwrap();
    handle.replay([letter]).await.unwrap();
    assert_eq!(state_of(&handle, "p-1").await, MessagePhase::Replaying);
    handle.resume().await.unwrap();
    release.notify_one();
    guarded(async {
        while state_of(&handle, "behind").await != MessagePhase::Succeeded {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    run.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_seen_in_every_state_in_memory() {
    every_state_is_seen(MemoryStores::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_seen_in_every_state_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    every_state_is_seen(Embedded::open(dir.path()).unwrap()).await;
}

#[tokio::test]
async fn a_pipeline_without_a_window_says_that_it_does_not_remember_ids() {
    let (_redrive, handle) = built(MemoryStores::new(), orders());
    handle.ingest([message("p-1")]).await.unwrap();
    let error = handle.message("p-1").await.unwrap_err();
    assert!(matches!(&error, HandleError::NotRemembered(name) if name == "orders"));
    assert!(error.to_string().contains("set `dedup` to a window"), "{error}");
}

/// Waiting messages are found after a restart, with and without the index.
#[tokio::test]
async fn a_message_is_found_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = || {
        let policy = redrive::Policy::fixed("1h").retries(2).jitter("none");
        Pipeline::new("orders")
            .policy(policy)
            .dedup(Duration::from_hours(24))
            .handler_fn(|m: Message| async move { by_id(&m) })
    };
    let first = {
        let (redrive, handle) = built(Embedded::open(dir.path()).unwrap(), pipeline());
        handle.ingest([message("t-1"), message("p-2"), message("good")]).await.unwrap();
        let run =
            redrive.run_until(until(&handle, |c| c.delayed == 1 && c.letters_open == 1 && c.ready == 0));
        let mut seen = Vec::new();
        guarded(run).await.unwrap();
        drop((redrive, handle));
        let (_redrive, handle) = built(Embedded::open(dir.path()).unwrap(), pipeline());
        for id in ["t-1", "p-2", "good"] {
            seen.push(handle.message(id).await.unwrap());
        }
        seen
    };
    let phases: Vec<_> = first.iter().flatten().map(|message| message.state).collect();
    assert_eq!(phases, [MessagePhase::Delayed, MessagePhase::Dead, MessagePhase::Succeeded]);

    std::fs::remove_dir_all(dir.path().join("orders/index")).unwrap();
    let (_redrive, handle) = built(Embedded::open(dir.path()).unwrap(), pipeline());
    for (id, before) in ["t-1", "p-2", "good"].into_iter().zip(first) {
        assert_eq!(handle.message(id).await.unwrap(), before, "{id}");
    }
}

/// An index from a time when ids were not remembered does not know the places of messages, so it is rebuilt.
#[tokio::test]
async fn a_window_that_is_set_later_knows_what_was_accepted_before() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (redrive, handle) = built(Embedded::open(dir.path()).unwrap(), orders());
        let far = Time::from_millis(handle.now().as_millis() + 7_200_000);
        handle.ingest([(message("later"), far)]).await.unwrap();
        guarded(redrive.run_until(until(&handle, |c| c.delayed == 1))).await.unwrap();
    }
    let embedded = Embedded::open(dir.path()).unwrap();
    let (_redrive, handle) = built(embedded.clone(), orders().dedup(Duration::from_hours(24)));
    assert!(embedded.report("orders").unwrap().rebuilt.unwrap().contains("ids were not tracked before"));
    assert_eq!(state_of(&handle, "later").await, MessagePhase::Delayed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selection_is_paged_without_gaps_or_repeats() {
    let (_redrive, handle) = with_letters(MemoryStores::new(), orders(), 200).await;
    let selection = Selection { filter: Some(Filter::parse("status:503").unwrap()), ..Selection::default() };
    let (mut seen, mut after, mut scanned) = (Vec::new(), None, 0);
    loop {
        let page = selection.page(&handle, after, 7).await.unwrap();
        assert!(page.letters.len() <= 7);
        seen.extend(page.letters.iter().map(|letter| letter.id));
        scanned += page.scanned;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..200).filter(|n| n % 2 == 1).collect::<Vec<u64>>());
    assert_eq!(scanned, 200);
    assert_eq!(selection.freeze(&handle).await.unwrap(), seen);
    assert_eq!(Selection::all(LetterState::Open).freeze(&handle).await.unwrap().len(), 200);
    assert!(Selection::all(LetterState::Discarded).freeze(&handle).await.unwrap().is_empty());
    assert_eq!(selection.page(&handle, None, usize::MAX).await.unwrap().letters.len(), 100.min(PAGE_MAX));
}

/// Regression: a search for one id among 200,000 letters read all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_by_id_on_disk_looks_at_the_letters_of_that_id_only() {
    let dir = tempfile::tempdir().unwrap();
    let (redrive, handle) = built(Embedded::open(dir.path()).unwrap(), orders());
    let ids = (0..200).map(|n| message(format!("{}-{n}", if n % 2 == 0 { "p" } else { "t" })));
    handle.ingest(ids).await.unwrap();
    guarded(redrive.run_until(until(&handle, |c| c.letters_open == 200))).await.unwrap();
    drop((redrive, handle));
    for rebuilt in [false, true] {
        if rebuilt {
            std::fs::remove_dir_all(dir.path().join("orders/index")).unwrap();
        }
        let (_redrive, handle) = built(Embedded::open(dir.path()).unwrap(), orders());
        for (filter, expected, scanned) in [
            ("id:p-8", &[8][..], 1),
            ("id:p-8,t-3,nobody", &[3, 8], 2),
            ("id:p-8,t-3 status:422", &[8], 2),
            ("id:nobody", &[], 0),
        ] {
            let selection = Selection { filter: Filter::parse(filter).ok(), ..Selection::default() };
            let page = selection.page(&handle, None, 10).await.unwrap();
            let found: Vec<u64> = page.letters.iter().map(|letter| letter.id).collect();
            assert_eq!((&found[..], page.scanned, page.next), (expected, scanned, None), "{filter}");
            assert_eq!(selection.freeze(&handle).await.unwrap(), expected, "{filter}");
        }
        let all_but = Selection { filter: Filter::parse("-id:p-8").ok(), ..Selection::default() };
        assert_eq!(all_but.freeze(&handle).await.unwrap().len(), 199);
        assert_eq!(resolve(&handle, &["t-3".to_owned()]).await.unwrap(), [3]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_are_named_by_number_with_pipeline_or_by_message() {
    for dedup in [None, Some(Duration::from_hours(1))] {
        let pipeline = match dedup {
            Some(window) => orders().dedup(window),
            None => orders(),
        };
        let (_redrive, handle) = with_letters(MemoryStores::new(), pipeline, 10).await;
        let named = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        let ids = named(&["p-8", "3", "orders/5", "t-3", &letter_id("orders", 1)]);
        assert_eq!(resolve(&handle, &ids).await.unwrap(), [1, 3, 5, 8]);
        for wrong in ["99", "orders/99", "other/3", "nobody"] {
            let error = resolve(&handle, &named(&["3", wrong])).await.unwrap_err();
            assert_eq!(error.to_string(), format!("there is no letter `{wrong}` in pipeline `orders`"));
        }
        let chosen =
            Selection { ids: Some(ids), filter: Filter::parse("status:422").ok(), ..Selection::default() };
        assert_eq!(chosen.freeze(&handle).await.unwrap(), [8]);
    }
}

/// Ids are often numbers, like those of letters: no action may hit the wrong letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_also_the_id_of_another_letters_message_is_refused() {
    for dedup in [None, Some(Duration::from_hours(1))] {
        let pipeline = Pipeline::new("orders").policy(quick(0));
        let pipeline = pipeline.handler_fn(|_: Message| async { Err(Failure::permanent("422")) });
        let pipeline = dedup.into_iter().fold(pipeline, Pipeline::dedup);
        let (redrive, handle) = built(MemoryStores::new(), pipeline);
        // Letters 0 to 3. Letter 1 has the message `2`, letter 3 the message `3`.
        handle.ingest(["7", "2", "orders/0", "3"].map(message)).await.unwrap();
        let running = redrive.clone();
        tokio::spawn(async move { running.run_until(std::future::pending::<()>()).await });
        guarded(until(&handle, |c| c.letters_open == 4)).await;

        let named = async |id: &str| resolve(&handle, &[id.to_owned()]).await;
        let error = named("2").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "`2` names two letters: `orders/2`, and `orders/1`, which is the letter of message `2`"
        );
        let both = Selection { ids: Some(vec!["orders/3".into(), "2".into()]), ..Selection::default() };
        let error = both.freeze(&handle).await.unwrap_err();
        assert!(matches!(error, SelectError::Ambiguous { by_message, .. } if by_message == "orders/1"));
        assert_eq!(named("orders/2").await.unwrap(), [2], "a full id is always the letter");
        assert_eq!(named("orders/0").await.unwrap(), [0], "also if a message is called so");
        assert_eq!(named("7").await.unwrap(), [0], "a message");
        assert_eq!(named("3").await.unwrap(), [3], "both, and the same letter");
        assert_eq!(named("1").await.unwrap(), [1], "a number that no message has");
    }
}

/// A payload may have 32 MiB: a page of a thousand letters must not hold all payloads in memory.
async fn large_letters_are_read_in_small_pieces(stores: impl Stores + 'static) {
    const MIB: usize = 1 << 20;
    let (redrive, handle) = built(stores, orders());
    let large = |n: u32| {
        let builder = Message::builder(format!("p-{n}")).key(vec![1]).header("x", vec![2]).tenant("acme");
        builder.payload(format!(r#"{{"a":"b","c":"{}"}}"#, "x".repeat(MIB))).build().unwrap()
    };
    for from in [0, 10, 20] {
        handle.ingest((from..from + 10).map(large)).await.unwrap();
    }
    let running = redrive.clone();
    let run = tokio::spawn(async move { running.run_until(std::future::pending::<()>()).await });
    guarded(until(&handle, |c| c.letters_open == 30)).await;

    let piece = handle.scan_letters(None, None, 64, 1_024).await.unwrap();
    let sizes: Vec<usize> = piece.letters.iter().map(Letter::size).collect();
    assert!(sizes.len() <= 8 && sizes.iter().sum::<usize>() >= SCAN_BYTES, "{sizes:?}");
    assert_eq!((piece.next, piece.scanned), (Some(sizes.len() as u64 - 1), sizes.len() as u64));

    let named = (0..30).map(|n| letter_id("orders", n)).collect();
    let all = Selection::all(LetterState::Open);
    for selection in [all.clone(), Selection { ids: Some(named), ..all }] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = selection.page(&handle, after, 1_000).await.unwrap();
            assert!(page.letters.iter().map(Letter::size).sum::<usize>() < PAGE_BYTES + SCAN_BYTES + 2 * MIB);
            assert!(page.letters.iter().all(|letter| letter.message.payload().unwrap().len() > MIB));
            seen.extend(page.letters.iter().map(|letter| letter.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, (0..30).collect::<Vec<u64>>());
        assert_eq!(selection.freeze(&handle).await.unwrap(), seen);

        let page = selection.page_without_payloads(&handle, None, 1_000).await.unwrap();
        assert_eq!((page.letters.len(), page.next), (30, None), "what is left of them is small");
        for letter in &page.letters {
            let message = &letter.message;
            assert_eq!((message.payload(), message.tenant()), (None, Some("acme")));
            assert_eq!((message.key(), message.headers().count()), (Some(&[1][..]), 1));
            assert!(message.created() > Time::ZERO && letter.size() < 1_000);
            assert_eq!(letter.history.attempts()[0].error, "422 no such currency");
        }
    }
    let filter = Some(Filter::parse("payload.a:b").unwrap());
    let seen = Selection { filter, ..Selection::default() }.page_without_payloads(&handle, None, 5).await;
    assert_eq!(seen.unwrap().letters.len(), 5, "the filter sees payloads all the same");
    run.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_letters_are_read_in_small_pieces_in_memory() {
    large_letters_are_read_in_small_pieces(MemoryStores::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_letters_are_read_in_small_pieces_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    large_letters_are_read_in_small_pieces(Embedded::open(dir.path()).unwrap()).await;
}

#[tokio::test]
async fn to_select_nothing_is_an_error_and_not_everything() {
    let (_redrive, handle) = built(MemoryStores::new(), orders());
    let nothing = Selection { state: Some(LetterState::Open), ..Selection::default() };
    assert!(matches!(nothing.freeze(&handle).await, Err(SelectError::Empty)));
    assert!(nothing.page(&handle, None, 10).await.unwrap().letters.is_empty(), "looking needs no selection");
}

#[tokio::test]
async fn since_takes_letters_that_died_at_that_time_or_later() {
    let clock = std::sync::Arc::new(VirtualClock::default());
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(std::sync::Arc::clone(&clock))
        .pipeline(orders())
        .build()
        .unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let late = Time::from_millis(handle.now().as_millis() + 60_000);
    handle.ingest([message("p-1")]).await.unwrap();
    handle.ingest([(message("p-2"), late)]).await.unwrap();
    guarded(redrive.run_until(async {
        until(&handle, |c| c.letters_open == 2).await;
        let since = |since| Selection { since: Some(since), ..Selection::default() };
        assert_eq!(since(late).freeze(&handle).await.unwrap(), [1]);
        assert_eq!(since(Time::ZERO).freeze(&handle).await.unwrap(), [0, 1]);
        assert!(since(Time::MAX).freeze(&handle).await.unwrap().is_empty());
        at_rest(&handle).await;
    }))
    .await
    .unwrap();
}
