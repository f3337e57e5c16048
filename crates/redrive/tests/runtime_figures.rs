//! The figures of a pipeline: before, during and after a run.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use redrive::{
    Class, Clock, Embedded, Failure, Figures, LetterState, MemoryStores, Message, Pipeline, PipelineHandle,
    Policy, Reason, Redrive, Stores, VirtualClock,
};
use support::{at_rest, guarded, message, until};

fn policy() -> redrive_core::PolicyBuilder {
    Policy::tiers(["5s", "30s"]).jitter("none")
}

fn built(stores: impl Stores + 'static, clock: &Arc<VirtualClock>, pipeline: Pipeline) -> Redrive {
    Redrive::builder().engine(stores).clock(Arc::clone(clock)).pipeline(pipeline).build().unwrap()
}

/// Waits until the figures are as wanted; they are published, not computed on request.
async fn shown(handle: &PipelineHandle, wanted: impl Fn(&Figures) -> bool) -> Figures {
    loop {
        let figures = handle.figures();
        if wanted(&figures) {
            return figures;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// `ok-…` succeed, `slow-…` succeed at the second attempt, `bad-…` fail each time, `gone-…` fail permanently.
fn by_name(m: &Message, attempt_is_late: bool) -> Result<(), Failure> {
    match m.id().split('-').next() {
        Some("ok") => Ok(()),
        Some("slow") if attempt_is_late => Ok(()),
        Some("gone") => Err(Failure::gone("410")),
        _ => Err(Failure::transient("503")),
    }
}

struct ByName;

impl redrive::Sink for ByName {
    fn deliver(&self, call: redrive::Call) -> redrive::Delivery<'_> {
        Box::pin(async move { by_name(&call.message, call.attempt > 1) })
    }
}

async fn everything_is_counted(stores: impl Stores + 'static) {
    let clock = Arc::new(VirtualClock::default());
    let redrive = built(stores, &clock, Pipeline::new("p").policy(policy()).sink(ByName));
    let handle = redrive.pipeline("p").unwrap();
    let made = clock.now();
    let ids = ["ok-1", "ok-2", "slow-1", "bad-1", "gone-1"];
    handle.ingest(ids.map(message)).await.unwrap();

    let before = handle.figures();
    assert_eq!((before.pending.ready, before.consumed, before.succeeded), (5, 0, 0));
    assert_eq!((before.oldest_pending, before.oldest_letter), (Some(made), None));

    let work = async {
        at_rest(&handle).await;
        let figures = shown(&handle, |f| f.succeeded == 3 && f.pending.letters_open == 2).await;
        assert_eq!((figures.oldest_pending, figures.running), (None, 0));
    };
    guarded(redrive.run_until(work)).await.unwrap();

    let after = handle.figures();
    assert_eq!((after.consumed, after.succeeded, after.dead.total()), (5, 3, 2));
    assert_eq!((after.dead.get(Reason::Gone), after.dead.get(Reason::MaxRetries)), (1, 1));
    assert_eq!(
        (after.attempts.ok, after.attempts.get(Class::Transient), after.attempts.get(Class::Gone)),
        (3, 4, 1)
    );
    assert_eq!(after.attempts.total(), 8);
    let tiers: Vec<_> = after.retries.iter().map(|tier| (&*tier.tier, tier.retries)).collect();
    assert_eq!((tiers, after.retried()), (vec![("5s", 2), ("30s", 1)], 3));
    let per_message: Vec<_> = after.attempts_per_message.buckets().take(3).collect();
    assert_eq!(per_message, [(1.0, 3), (2.0, 4), (3.0, 5)], "once per terminal message");
    let retried = after.retried_ended;
    assert_eq!((retried.succeeded, retried.dead), (1, 1), "gone-1 was called once");
    assert_eq!(after.retry_lateness.count(), 3, "one per retry");
    assert_eq!(after.retry_lateness.max(), Some(0.0), "the virtual clock is never late");
    assert_eq!(after.stall.count(), 5, "one per message");
    assert_eq!(after.end_to_end.count(), 3);
    assert!((after.end_to_end.max().unwrap() - 5.0).abs() < 0.001, "the slow one took 5 s of its clock");
    assert_eq!((after.settle_duration.count(), after.schedule_write.count()), (8, 3));
    assert!(after.schedule_write.sum() > 0.0);
    let letters = after.letters();
    assert_eq!(letters[0], (LetterState::Open, 2));
    assert!(after.oldest_letter.is_some_and(|at| at >= made), "{:?}", after.oldest_letter);
}

#[tokio::test]
async fn everything_is_counted_in_memory() {
    Box::pin(everything_is_counted(MemoryStores::new())).await;
}

#[tokio::test]
async fn everything_is_counted_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    Box::pin(everything_is_counted(Embedded::open(dir.path()).unwrap())).await;
}

#[tokio::test]
async fn letters_are_counted_by_state_and_a_restart_still_knows_them() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(dir.path()).unwrap();
    let clock = Arc::new(VirtualClock::default());
    let healed = Arc::new(AtomicBool::new(false));
    let pipeline = || {
        let healed = Arc::clone(&healed);
        let handler = move |_: Message| {
            let ok = healed.load(SeqCst);
            async move { if ok { Ok(()) } else { Err(Failure::permanent("400")) } }
        };
        Pipeline::new("p").handler_fn(handler)
    };
    let first = built(embedded.clone(), &clock, pipeline());
    let handle = first.pipeline("p").unwrap();
    handle.ingest((0..4).map(|n| message(format!("m-{n}")))).await.unwrap();
    let work = async {
        until(&handle, |c| c.letters_open == 4).await;
        let ids: Vec<u64> = handle.letters(None, None, 9).await.unwrap().iter().map(|l| l.id).collect();
        handle.discard([ids[0]]).await.unwrap();
        healed.store(true, SeqCst);
        handle.replay([ids[1]]).await.unwrap();
        until(&handle, |c| c.letters_succeeded == 1).await;
        handle.pause().await.unwrap();
        handle.replay([ids[2]]).await.unwrap();
        let paused = shown(&handle, |f| f.paused && f.pending.letters_replaying == 1).await;
        assert!(handle.is_paused());
        assert_eq!(
            (paused.pending.held, paused.pending.delayed),
            (1, 0),
            "what waits behind a closed gate is held"
        );
    };
    guarded(first.run_until(work)).await.unwrap();
    let expected = [
        (LetterState::Open, 1),
        (LetterState::Replaying, 1),
        (LetterState::Succeeded, 1),
        (LetterState::Discarded, 1),
        (LetterState::Erased, 0),
    ];
    assert_eq!(handle.figures().letters(), expected);
    let oldest = handle.figures().oldest_letter;
    assert!(oldest.is_some());
    drop((first, handle));

    let second = built(embedded.clone(), &clock, pipeline());
    let handle = second.pipeline("p").unwrap();
    assert_eq!(handle.figures().letters(), expected);
    assert_eq!((handle.figures().oldest_letter, handle.is_paused()), (oldest, false));
}

/// A clock that stands still instead of jumping over waits.
struct Still(Arc<VirtualClock>);

impl Clock for Still {
    fn now(&self) -> redrive::Time {
        self.0.now()
    }
}

#[tokio::test]
async fn deferrals_are_retries_that_are_held() {
    let clock = Arc::new(VirtualClock::default());
    let stuck = |_: Message| async { Err(Failure::credential("401")) };
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(Still(Arc::clone(&clock)))
        .pipeline(Pipeline::new("p").policy(policy()).handler_fn(stuck))
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest([message("a"), message("b")]).await.unwrap();
    let work = async {
        let figures = shown(&handle, |f| f.deferred == 2 && f.pending.held == 2).await;
        assert_eq!((figures.pending.delayed, figures.retried()), (0, 2));
        assert_eq!(figures.attempts.get(Class::Credential), 2);
        assert_eq!(figures.dead.total(), 0);
    };
    guarded(redrive.run_until(work)).await.unwrap();
}

/// A message that never ends takes the only permit; those behind it have had no attempt, so no histogram shows them.
#[tokio::test]
async fn what_cannot_start_shows_for_how_long_it_has_waited() {
    let dir = tempfile::tempdir().unwrap();
    stalls(MemoryStores::new()).await;
    stalls(Embedded::open(dir.path()).unwrap()).await;
}

async fn stalls(stores: impl Stores + 'static) {
    let clock = Arc::new(VirtualClock::default());
    let blocked = |message: Message| async move {
        match message.id() {
            "stuck" => std::future::pending().await,
            _ => Ok(()),
        }
    };
    let pipeline = Pipeline::new("p").concurrency(1).handler_fn(blocked);
    let redrive = Redrive::builder()
        .engine(stores)
        .clock(Arc::clone(&clock))
        .drain(Duration::from_millis(10))
        .pipeline(pipeline)
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    let stalled = async {
        handle.ingest([message("good")]).await.unwrap();
        shown(&handle, |f| f.succeeded == 1 && f.stalled_for == Duration::ZERO).await;
        handle.ingest([message("stuck")]).await.unwrap();
        shown(&handle, |f| f.running == 1).await;
        handle.ingest([message("behind")]).await.unwrap();
        for waited in [30, 90] {
            clock.advance(Duration::from_secs(if waited == 30 { 30 } else { 60 }));
            shown(&handle, |f| f.stalled_for.as_secs() == waited).await;
        }
    };
    guarded(redrive.run_until(stalled)).await.unwrap();
}

#[tokio::test]
async fn a_call_that_is_given_up_is_a_repeat() {
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&begun);
    let handler = move |_: Message| {
        begins.notify_one();
        std::future::pending()
    };
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .drain(Duration::from_millis(10))
        .pipeline(Pipeline::new("p").handler_fn(handler))
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest([message("a")]).await.unwrap();
    let running = async {
        begun.notified().await;
        let figures = shown(&handle, |f| f.running == 1).await;
        assert_eq!(figures.pending.in_flight, 1);
        assert!(figures.oldest_pending.is_some(), "also what runs is pending");
    };
    guarded(redrive.run_until(running)).await.unwrap();
    let after = handle.figures();
    assert_eq!((after.repeats, after.consumed, after.attempts.total()), (1, 0, 0));
}
