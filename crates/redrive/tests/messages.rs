//! Listing, making due and cancelling waiting messages through a pipeline's handle, on the memory and the embedded
//! engine.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::letters::Filter;
use redrive::messages::{Cursor, MessagePage, MessageQuery, SteerError};
use redrive::{
    BreakerOrder, BreakerSettings, Clock, DeliveryOrder, Embedded, Failure, GuardSettings, LetterState,
    MemoryStores, Message, MessagePhase, Mode, PendingState, Pipeline, PipelineHandle, Policy, Reason,
    Redrive, Stores, Time, VirtualClock, messages,
};
use support::{guarded, keyed, message, until};
use tokio::sync::Notify;

/// A clock that only moves when it is set.
struct Still(Arc<VirtualClock>);

impl Clock for Still {
    fn now(&self) -> Time {
        self.0.now()
    }
}

/// Holds calls until it is opened.
#[derive(Clone, Default)]
struct CallGate {
    open: Arc<AtomicBool>,
    opened: Arc<Notify>,
    waiting: Arc<AtomicUsize>,
}

impl CallGate {
    async fn pass(&self) {
        self.waiting.fetch_add(1, SeqCst);
        while !self.open.load(SeqCst) {
            let _ = tokio::time::timeout(Duration::from_millis(5), self.opened.notified()).await;
        }
        self.waiting.fetch_sub(1, SeqCst);
    }

    fn open(&self) {
        self.open.store(true, SeqCst);
        self.opened.notify_waiters();
    }
}

/// `run-…` waits at the gate, `retry-…` and `defer-…` fail accordingly, anything else succeeds.
fn pipeline(gate: &CallGate) -> Pipeline {
    let gate = gate.clone();
    let handler = move |m: Message| {
        let gate = gate.clone();
        async move {
            match m.id().split('-').next() {
                Some("run") => {
                    gate.pass().await;
                    Ok(())
                }
                Some("retry") => Err(Failure::transient("503 Service Unavailable")),
                Some("defer") => Err(Failure::credential("401 Unauthorized")),
                _ => Ok(()),
            }
        }
    };
    Pipeline::new("orders")
        .policy(Policy::tiers(["1h", "2h"]).jitter("none").outage_gate(false))
        .ordering(DeliveryOrder::Key)
        .dedup(Duration::from_hours(24))
        .breaker(BreakerSettings::off())
        .guard(GuardSettings::off())
        .concurrency(2)
        .handler_fn(handler)
}

fn built(
    stores: impl Stores + 'static,
    clock: &Arc<VirtualClock>,
    pipeline: Pipeline,
) -> (Redrive, PipelineHandle) {
    let clock = Still(Arc::clone(clock));
    let redrive = Redrive::builder().engine(stores).clock(clock).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    (redrive, handle)
}

/// All pending messages by state, read in pages of `page`.
async fn listed(
    handle: &PipelineHandle,
    query: &MessageQuery,
    page: usize,
) -> BTreeMap<PendingState, Vec<String>> {
    let mut found: BTreeMap<PendingState, Vec<String>> = BTreeMap::new();
    let mut at: Option<Cursor> = None;
    loop {
        let MessagePage { messages, next, .. } = query.page(handle, at, page).await.unwrap();
        assert!(messages.len() <= page);
        for listed in messages {
            found.entry(listed.state).or_default().push(listed.message().id().to_owned());
        }
        // The cursor goes through its text form, as in the API.
        at = next.map(|next| next.to_string().parse().unwrap());
        if at.is_none() {
            found.values_mut().for_each(|ids| ids.sort_unstable());
            return found;
        }
    }
}

async fn in_state(handle: &PipelineHandle, state: PendingState) -> Vec<String> {
    let query = MessageQuery { state: Some(state), filter: None };
    listed(handle, &query, 3).await.remove(&state).unwrap_or_default()
}

/// Two run, two wait behind one of them for their key, two are retried, one is deferred, one came with a delay, two
/// are ready.
async fn one_of_each(handle: &PipelineHandle, gate: &CallGate) {
    handle.ingest(["retry-1", "retry-2", "defer-1"].map(message)).await.unwrap();
    until(handle, |c| c.delayed == 2 && c.held == 1).await;
    handle.ingest_in(Duration::from_hours(5), [message("later-1")]).await.unwrap();
    handle.ingest([keyed("run-1", "k"), message("run-2")]).await.unwrap();
    while gate.waiting.load(SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    handle
        .ingest([keyed("behind-1", "k"), keyed("behind-2", "k"), message("ready-1"), message("ready-2")])
        .await
        .unwrap();
}

async fn every_message_is_listed_in_its_state(stores: impl Stores + 'static) {
    let (clock, gate) = (Arc::new(VirtualClock::default()), CallGate::default());
    let (redrive, handle) = built(stores, &clock, pipeline(&gate));
    let work = async {
        one_of_each(&handle, &gate).await;
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        for page in [1, 2, 100] {
            let all = listed(&handle, &MessageQuery::default(), page).await;
            let expected = BTreeMap::from([
                (PendingState::Ready, ids(&["behind-1", "behind-2", "ready-1", "ready-2"])),
                (PendingState::Held, ids(&["defer-1"])),
                (PendingState::Delayed, ids(&["later-1", "retry-1", "retry-2"])),
                (PendingState::InFlight, ids(&["run-1", "run-2"])),
            ]);
            assert_eq!(all, expected, "page {page}");
        }
        let filtered = |text: &str| MessageQuery { state: None, filter: Some(Filter::parse(text).unwrap()) };
        let found = listed(&handle, &filtered("class:transient attempts:1 error:\"503 service\""), 7).await;
        assert_eq!(found, BTreeMap::from([(PendingState::Delayed, ids(&["retry-1", "retry-2"]))]));
        let found = listed(&handle, &filtered("key:k -id:run-1"), 7).await;
        assert_eq!(found.into_values().flatten().collect::<Vec<_>>(), ["behind-1", "behind-2"]);

        // One permit is free: messages behind their key are looked at, and wait for it from then on.
        handle.cancel("ready-1").await.unwrap();
        assert_eq!(in_state(&handle, PendingState::Ready).await, ["behind-1", "behind-2", "ready-2"]);

        // While paused nothing may start, so all messages are held; those that wait for their key still do.
        handle.pause().await.unwrap();
        let figures = loop {
            let figures = handle.figures();
            if figures.paused {
                break figures;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let counts = figures.pending;
        assert_eq!((counts.ready, counts.delayed, counts.held, counts.in_flight), (0, 0, 7, 2), "{counts:?}");
        assert_eq!(in_state(&handle, PendingState::Held).await.len(), 7);
        assert!(in_state(&handle, PendingState::Delayed).await.is_empty());
        gate.open();
    };
    Box::pin(guarded(redrive.run_until(work))).await.unwrap();
}

#[tokio::test]
async fn every_message_is_listed_in_its_state_in_memory() {
    Box::pin(every_message_is_listed_in_its_state(MemoryStores::new())).await;
}

#[tokio::test]
async fn every_message_is_listed_in_its_state_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    Box::pin(every_message_is_listed_in_its_state(Embedded::open(dir.path()).unwrap())).await;
}

async fn a_message_that_waits_is_made_due_or_cancelled(stores: impl Stores + 'static) {
    let (clock, gate) = (Arc::new(VirtualClock::default()), CallGate::default());
    let parked = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&parked);
    let pipeline = pipeline(&gate).concurrency(3);
    let pipeline = pipeline
        .on_dead_letter(move |dead| told.lock().unwrap().push((dead.message.id().to_owned(), dead.reason)));
    let (redrive, handle) = built(stores, &clock, pipeline);
    let work = async {
        one_of_each(&handle, &gate).await;
        until(&handle, |c| c.ready == 0 && c.key_wait == 2).await;

        // Made due: the second attempt is made at once, and the third is two hours away.
        handle.retry_now("retry-1").await.unwrap();
        loop {
            let shown = handle.message("retry-1").await.unwrap().unwrap();
            if shown.attempts == 2 && shown.state == MessagePhase::Delayed {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        handle.retry_now("later-1").await.unwrap();
        let later = async || handle.message("later-1").await.unwrap().unwrap().state;
        while later().await != MessagePhase::Succeeded {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        // Whatever a message waits for, cancelling it makes a letter with its history and notifies listeners.
        for id in ["retry-2", "defer-1", "behind-1"] {
            handle.cancel(id).await.unwrap();
            let shown = handle.message(id).await.unwrap().unwrap();
            assert_eq!((shown.state, shown.reason), (MessagePhase::Dead, Some(Reason::Cancelled)), "{id}");
        }
        let letter = handle.letters(Some(LetterState::Open), None, 1).await.unwrap().remove(0);
        assert_eq!((letter.message.id(), letter.meta.attempts, letter.meta.deferred), ("retry-2", 1, false));
        assert_eq!(letter.history.attempts().len(), 1, "what it went through is kept");
        while parked.lock().unwrap().len() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(parked.lock().unwrap().iter().all(|(_, reason)| *reason == Reason::Cancelled));

        // Impossible requests are refused with the reason.
        let refused = handle.cancel("run-1").await.unwrap_err();
        assert!(matches!(refused, SteerError::InFlight { .. }), "{refused}");
        let refused = handle.retry_now("behind-2").await.unwrap_err();
        assert!(matches!(refused, SteerError::KeyWait { .. }), "{refused}");
        let refused = handle.cancel("retry-2").await.unwrap_err();
        assert_eq!(refused.to_string(), "message `retry-2` is not pending: it is dead as letter orders/1");
        let refused = handle.cancel("nobody").await.unwrap_err();
        assert!(matches!(refused, SteerError::NotFound { .. }), "{refused}");

        // The line moves on past the cancelled message.
        gate.open();
        let behind = async || handle.message("behind-2").await.unwrap().unwrap().state;
        while behind().await != MessagePhase::Succeeded {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // A cancelled letter is replayed like any other.
        handle.replay([letter.id]).await.unwrap();
        until(&handle, |c| c.letters_replaying == 1).await;
    };
    guarded(redrive.run_until(work)).await.unwrap();
}

#[tokio::test]
async fn a_message_that_waits_is_made_due_or_cancelled_in_memory() {
    a_message_that_waits_is_made_due_or_cancelled(MemoryStores::new()).await;
}

#[tokio::test]
async fn a_message_that_waits_is_made_due_or_cancelled_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    a_message_that_waits_is_made_due_or_cancelled(Embedded::open(dir.path()).unwrap()).await;
}

/// Before a run, without remembered ids, by the number that a listing shows, and across a restart.
#[tokio::test]
async fn a_message_is_cancelled_by_its_number_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let plain = || Pipeline::new("orders").handler_fn(|_: Message| async { Ok(()) });
    let (redrive, handle) = built(Embedded::open(dir.path()).unwrap(), &clock, plain());
    handle.ingest([message("a"), message("b")]).await.unwrap();
    handle.ingest_in(Duration::from_hours(24 * 365), [message("far")]).await.unwrap();
    let found = messages::message(&handle, "far").await.unwrap().unwrap();
    assert_eq!((found.state, found.id.as_str()), (MessagePhase::Delayed, "far"));
    handle.cancel("orders/2").await.unwrap();
    handle.cancel("b").await.unwrap();
    drop((redrive, handle));

    let (redrive, handle) = built(Embedded::open(dir.path()).unwrap(), &clock, plain());
    let letters = handle.letters(None, None, 9).await.unwrap();
    let letters: Vec<_> = letters.iter().map(|letter| (letter.message.id(), letter.reason)).collect();
    assert_eq!(letters, [("b", Reason::Cancelled), ("far", Reason::Cancelled)]);
    guarded(redrive.run_until(until(&handle, |c| c.pending() == 0))).await.unwrap();
    assert_eq!(handle.figures().succeeded, 1);
}

#[tokio::test]
async fn nothing_is_due_in_more_than_a_year() {
    let clock = Arc::new(VirtualClock::default());
    let plain = Pipeline::new("orders").handler_fn(|_: Message| async { Ok(()) });
    let (_redrive, handle) = built(MemoryStores::new(), &clock, plain);
    let year = Duration::from_hours(24 * 365);
    let refused = handle.ingest_in(year + Duration::from_millis(1), [message("far")]).await.unwrap_err();
    assert!(refused.to_string().contains("`far` is due in more than 365 days"), "{refused}");
    handle.ingest_in(year, [message("near")]).await.unwrap();
    assert_eq!(handle.counts().await.unwrap().pending(), 1);
}

/// In blocking mode a message that waits in place holds its permit; it is made due or cancelled in place.
#[tokio::test]
async fn a_call_that_waits_in_place_is_steered() {
    let clock = Arc::new(VirtualClock::default());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message| {
        counted.fetch_add(1, SeqCst);
        async { Err(Failure::transient("503")) }
    };
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["1h", "2h"]).jitter("none").mode(Mode::Blocking).outage_gate(false))
        .breaker(BreakerSettings::off())
        .concurrency(1)
        .handler_fn(handler);
    let (redrive, handle) = built(MemoryStores::new(), &clock, pipeline);
    handle.ingest([message("a")]).await.unwrap();
    let work = async {
        let waits = async |calls_made: usize| {
            while calls.load(SeqCst) < calls_made || handle.figures().waiting_in_place == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        waits(1).await;
        assert_eq!(in_state(&handle, PendingState::InFlight).await, ["a"]);
        // By number, because ids are not remembered here.
        handle.retry_now("orders/0").await.unwrap();
        waits(2).await;
        handle.cancel("a").await.unwrap();
        let letters = handle.letters(None, None, 9).await.unwrap();
        assert_eq!((letters[0].reason, letters[0].meta.attempts), (Reason::Cancelled, 2));
    };
    guarded(redrive.run_until(work)).await.unwrap();
}

/// A breaker that is open for hours can be probed at once, or closed by hand.
#[tokio::test]
async fn a_breaker_is_probed_now_and_closed_by_hand() {
    let clock = Arc::new(VirtualClock::default());
    let healed = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicUsize::new(0));
    let (well, counted) = (Arc::clone(&healed), Arc::clone(&calls));
    let handler = move |_: Message| {
        counted.fetch_add(1, SeqCst);
        let well = well.load(SeqCst);
        async move { if well { Ok(()) } else { Err(Failure::transient("503")) } }
    };
    let mut breaker = BreakerSettings::default();
    breaker.fast.min = 4;
    (breaker.cooldown, breaker.cooldown_max) = (Duration::from_hours(1), Duration::from_hours(1));
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["1s"]).jitter("none"))
        .breaker(breaker)
        .guard(GuardSettings::off())
        .concurrency(4)
        .handler_fn(handler);
    let (redrive, handle) = built(MemoryStores::new(), &clock, pipeline);
    handle.ingest((0..40).map(|n| message(format!("m-{n}")))).await.unwrap();
    let work = async {
        let state = || handle.figures().health.breaker.state.name();
        while state() != "open" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let before = calls.load(SeqCst);
        let answer = handle.order_breaker(BreakerOrder::Probe).await.unwrap();
        assert_eq!(answer.was.name(), "open");
        // The probes fail, so it opens again.
        while calls.load(SeqCst) == before || state() != "open" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        healed.store(true, SeqCst);
        handle.order_breaker(BreakerOrder::Close).await.unwrap();
        // The failed messages wait for their due times, because the clock stands still; the others are sent at once.
        while handle.figures().succeeded == 0
            || handle.figures().pending.waiting() > handle.figures().pending.delayed
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let history = handle.figures().health.history;
        assert!(
            history.iter().any(|entry| entry.change.to_string().starts_with("▼ breaker closed by hand")),
            "{history:?}"
        );
        assert_eq!(handle.order_breaker(BreakerOrder::Close).await.unwrap().was.name(), "closed");
    };
    guarded(redrive.run_until(work)).await.unwrap();
}
