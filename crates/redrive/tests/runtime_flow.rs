//! Which message starts when: key order, delays, deadlines, permits, and independence of other messages.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redrive::internal::engine::ReplayAnswer;
use redrive::{
    AfterDead, Clock, DeliveryOrder, Failure, LetterState, MemoryStores, Message, Pipeline, Reason, Redrive,
    Time, VirtualClock, WallClock,
};
use support::{HANG_GUARD, at_rest, guarded, keyed, message, quick, until};
use tokio::sync::Notify;

fn built(pipeline: Pipeline) -> Redrive {
    Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap()
}

/// Invariant 5, with failures drawn from message and attempt, so that a failing run can be repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_of_a_key_starts_before_the_earlier_one_is_terminal() {
    const KEYS: usize = 20;
    const PER_KEY: usize = 30;
    let tries: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let started: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
    let running: Arc<[AtomicUsize; KEYS]> = Arc::new(std::array::from_fn(|_| AtomicUsize::new(0)));
    let overlaps = Arc::new(AtomicUsize::new(0));
    let (counted, starts, runs, met) =
        (Arc::clone(&tries), Arc::clone(&started), Arc::clone(&running), Arc::clone(&overlaps));
    let handler = move |m: Message| {
        let (key, n) = m.id().split_once('-').map(|(k, n)| (k.parse().unwrap(), n.parse().unwrap())).unwrap();
        starts.lock().unwrap().push((key, n));
        met.fetch_add(runs[key].fetch_add(1, SeqCst), SeqCst);
        let nth = *counted.lock().unwrap().entry(m.id().to_owned()).and_modify(|n| *n += 1).or_insert(1);
        let runs = Arc::clone(&runs);
        async move {
            if n % 2 == 0 {
                tokio::task::yield_now().await;
            }
            runs[key].fetch_sub(1, SeqCst);
            match (key * 31 + n * 17 + nth * 7) % 5 {
                0 | 1 => Err(Failure::transient("503")),
                2 if n % 7 == 0 => Err(Failure::permanent("400")),
                _ => Ok(()),
            }
        }
    };
    let pipeline = Pipeline::new("p").policy(quick(10)).ordering(DeliveryOrder::Key).handler_fn(handler);
    let redrive = built(pipeline);
    let handle = redrive.pipeline("p").unwrap();
    let mixed =
        (0..PER_KEY).flat_map(|n| (0..KEYS).map(move |key| keyed(format!("{key}-{n}"), format!("k{key}"))));
    handle.ingest(mixed).await.unwrap();
    let report = guarded(redrive.run_until(at_rest(&handle))).await.unwrap();

    assert_eq!(report.total().succeeded + report.total().dead, (KEYS * PER_KEY) as u64);
    assert_eq!(overlaps.load(SeqCst), 0, "two of one key ran at once");
    let started = started.lock().unwrap();
    for key in 0..KEYS {
        let of_key: Vec<usize> = started.iter().filter(|(k, _)| *k == key).map(|(_, n)| *n).collect();
        assert!(of_key.is_sorted(), "key {key} started {of_key:?}");
    }
    let first_seen: Vec<usize> = started.iter().take(KEYS).map(|(key, _)| *key).collect();
    assert!(first_seen.iter().any(|key| *key != first_seen[0]), "other keys flow");
}

#[tokio::test]
async fn a_blocked_key_parks_its_followers_and_one_replay_releases_them_in_order() {
    let broken = Arc::new(AtomicBool::new(true));
    let delivered: Arc<Mutex<Vec<String>>> = Arc::default();
    let (is_broken, delivers) = (Arc::clone(&broken), Arc::clone(&delivered));
    let handler = move |m: Message| {
        let fails = m.id() == "a1" && is_broken.load(SeqCst);
        if !fails {
            delivers.lock().unwrap().push(m.id().to_owned());
        }
        async move { if fails { Err(Failure::permanent("422")) } else { Ok(()) } }
    };
    let pipeline =
        Pipeline::new("p").ordering(DeliveryOrder::Key).after_dead(AfterDead::BlockKey).handler_fn(handler);
    let redrive = built(pipeline);
    let handle = redrive.pipeline("p").unwrap();
    let messages = ["a1", "a2", "b1", "a3"].map(|id| keyed(id, &id[..1]));
    handle.ingest(messages).await.unwrap();
    let work = async {
        until(&handle, |c| c.letters_open == 3).await;
        let letters = handle.letters(Some(LetterState::Open), None, 10).await.unwrap();
        let reasons: Vec<_> = letters.iter().map(|l| (l.message.id().to_owned(), l.reason)).collect();
        assert_eq!(
            reasons,
            [
                ("a1".to_owned(), Reason::Permanent),
                ("a2".to_owned(), Reason::KeyBlocked),
                ("a3".to_owned(), Reason::KeyBlocked)
            ]
        );
        broken.store(false, SeqCst);
        let ids: Vec<u64> = letters.iter().map(|letter| letter.id).collect();
        assert_eq!(handle.replay(ids).await.unwrap(), [ReplayAnswer::Replayed; 3]);
        at_rest(&handle).await;
        assert_eq!(handle.letters(Some(LetterState::Succeeded), None, 10).await.unwrap().len(), 3);
    };
    guarded(redrive.run_until(work)).await.unwrap();
    assert_eq!(*delivered.lock().unwrap(), ["b1", "a1", "a2", "a3"]);
}

#[tokio::test]
async fn discarded_letters_stay_until_the_discard_is_taken_back() {
    let redrive = built(Pipeline::new("p").handler_fn(|_: Message| async { Err(Failure::gone("410")) }));
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest([message("a")]).await.unwrap();
    let work = async {
        until(&handle, |c| c.letters_open == 1).await;
        let id = handle.letters(None, None, 1).await.unwrap()[0].id;
        assert_eq!(handle.discard([id]).await.unwrap(), [true]);
        assert_eq!(handle.discard([id]).await.unwrap(), [false]);
        assert_eq!(handle.letter(id).await.unwrap().unwrap().state, LetterState::Discarded);
        assert_eq!(handle.undo([id]).await.unwrap(), [true]);
        assert_eq!(handle.counts().await.unwrap().letters_open, 1);
        assert!(handle.letter(id + 1).await.unwrap().is_none());
    };
    guarded(redrive.run_until(work)).await.unwrap();
}

#[tokio::test]
async fn a_delayed_message_is_never_early() {
    let seen: Arc<Mutex<Vec<Time>>> = Arc::default();
    let sees = Arc::clone(&seen);
    let handler = move |_: Message| {
        sees.lock().unwrap().push(WallClock.now());
        async { Ok(()) }
    };
    let redrive = built(Pipeline::new("p").handler_fn(handler));
    let handle = redrive.pipeline("p").unwrap();
    let due = WallClock.now().plus(Duration::from_millis(50));
    handle.ingest((0..20).map(|n| (message(format!("m-{n}")), due))).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 20);
    assert!(seen.iter().all(|at| *at >= due), "due {due:?}, seen {seen:?}");
}

#[tokio::test]
async fn an_expired_message_is_never_sent() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message| {
        counted.fetch_add(1, SeqCst);
        async { Ok(()) }
    };
    let clock = Arc::new(VirtualClock::default());
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(Arc::clone(&clock))
        .pipeline(Pipeline::new("p").policy(quick(3).ttl("1m")).handler_fn(handler))
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest([(message("too late"), clock.now().plus(Duration::from_mins(1)))]).await.unwrap();
    let mut letters = Vec::new();
    let work = async {
        until(&handle, |c| c.letters_open == 1).await;
        letters = handle.letters(None, None, 1).await.unwrap();
    };
    guarded(redrive.run_until(work)).await.unwrap();
    assert_eq!((letters[0].reason, letters[0].meta.attempts), (Reason::TtlExceeded, 0));
    assert!(letters[0].message.created() > Time::ZERO, "ingest fills in when it was made");
    assert_eq!(calls.load(SeqCst), 0);
}

#[tokio::test]
async fn a_slow_handler_does_not_hold_up_the_others() {
    let others = Arc::new(AtomicU32::new(0));
    let all_others = Arc::new(Notify::new());
    let (counted, done) = (Arc::clone(&others), Arc::clone(&all_others));
    let handler = move |m: Message| {
        let (counted, done) = (Arc::clone(&counted), Arc::clone(&done));
        async move {
            if m.id() == "slow" {
                done.notified().await;
            } else if counted.fetch_add(1, SeqCst) + 1 == 500 {
                done.notify_one();
            }
            Ok(())
        }
    };
    let redrive = built(Pipeline::new("p").concurrency(2).handler_fn(handler));
    let handle = redrive.pipeline("p").unwrap();
    let all = std::iter::once(message("slow")).chain((0..500).map(|n| message(format!("m-{n}"))));
    handle.ingest(all).await.unwrap();
    let report = guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    assert_eq!(report.total().succeeded, 501);
}

/// Runs one handler that blocks its thread until all others are done: if they waited for it, this would hang. Some of
/// the others wait for a timer, because a waiting task stays on the thread that started it.
async fn runs_beside_a_blocking_handler(blocks_after: Duration, others_wait: Duration) {
    let others = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&others);
    let handler = move |m: Message| {
        let counted = Arc::clone(&counted);
        async move {
            if m.id() == "blocks" {
                if !blocks_after.is_zero() {
                    tokio::time::sleep(blocks_after).await;
                }
                let blocked = Instant::now();
                while counted.load(SeqCst) < 200 {
                    assert!(blocked.elapsed() < HANG_GUARD, "the others wait");
                    std::thread::sleep(Duration::from_millis(1));
                }
                return Ok(());
            }
            if m.id().ends_with('7') {
                tokio::time::sleep(others_wait).await;
            }
            counted.fetch_add(1, SeqCst);
            Ok(())
        }
    };
    let redrive = built(Pipeline::new("p").concurrency(256).handler_fn(handler));
    let handle = redrive.pipeline("p").unwrap();
    let first = (0..20).map(|n| message(format!("m-{n}")));
    let rest = (20..200).map(|n| message(format!("m-{n}")));
    handle.ingest(first.chain([message("blocks")]).chain(rest)).await.unwrap();
    // Polling the counts from outside would keep the runtime awake by itself.
    let all_done = async {
        while others.load(SeqCst) < 200 {
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(50))).await.unwrap();
        }
        at_rest(&handle).await;
    };
    let report = guarded(redrive.run_until(all_done)).await.unwrap();
    assert_eq!(report.total().succeeded, 201);
}

// Regression: a runner that had yielded was stuck on the blocked thread, where no other thread could take it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_does_not_stop_the_others() {
    for _ in 0..10 {
        runs_beside_a_blocking_handler(Duration::ZERO, Duration::from_millis(1)).await;
    }
}

// Regression: the thread that drove the timers ran the blocking handler, while the other thread slept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_after_a_wait_does_not_stop_the_timers_of_others() {
    for _ in 0..5 {
        runs_beside_a_blocking_handler(Duration::from_millis(5), Duration::from_millis(30)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_handlers_run_than_there_are_permits() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
    let handler = move |m: Message| {
        let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
        async move {
            peak.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            if !m.id().ends_with('0') {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            now.fetch_sub(1, SeqCst);
            if m.id().ends_with('3') { Err(Failure::transient("503")) } else { Ok(()) }
        }
    };
    let redrive = built(Pipeline::new("p").policy(quick(2)).concurrency(7).handler_fn(handler));
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest((0..500).map(|n| message(format!("m-{n}")))).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    assert!((2..=7).contains(&most.load(SeqCst)), "{} ran at once", most.load(SeqCst));
}

#[tokio::test]
async fn a_paused_pipeline_takes_nothing_and_accepts_everything() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message| {
        counted.fetch_add(1, SeqCst);
        async { Ok(()) }
    };
    let redrive = built(Pipeline::new("p").handler_fn(handler));
    let handle = redrive.pipeline("p").unwrap();
    handle.pause().await.unwrap();
    let work = async {
        handle.ingest([message("a")]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((calls.load(SeqCst), handle.counts().await.unwrap().ready), (0, 1));
        handle.resume().await.unwrap();
        at_rest(&handle).await;
    };
    guarded(redrive.run_until(work)).await.unwrap();
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test]
async fn an_id_that_is_seen_twice_is_delivered_once() {
    let pipeline = Pipeline::new("p").dedup(Duration::from_mins(1)).handler_fn(|_: Message| async { Ok(()) });
    let redrive = built(pipeline);
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest([message("a"), message("a")]).await.unwrap();
    let report = guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    assert_eq!(report.total().succeeded, 1);
}
