//! The counts that a pipeline shows: each pending message is in exactly one of ready, delayed, held, `key_wait` and in
//! flight, whatever operators and the sink do.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use redrive::internal::engine::conformance::Rng;
use redrive::messages::MessageQuery;
use redrive::{
    BreakerSettings, Clock, DeliveryOrder, Embedded, Failure, Figures, GuardSettings, MemoryStores, Message,
    PendingState, Pipeline, PipelineHandle, Policy, Redrive, Stores, Time,
};
use support::{guarded, message};

/// A clock that only moves when it is set.
#[derive(Clone)]
struct Still(Arc<AtomicU64>);

impl Clock for Still {
    fn now(&self) -> Time {
        Time::from_millis(self.0.load(SeqCst))
    }
}

const CONCURRENCY: u32 = 4;

/// Fails every time, in the way that the first letter of the id says.
fn by_id(m: &Message) -> Result<(), Failure> {
    match m.id().as_bytes()[0] {
        b'd' => Err(Failure::credential("401")),
        b'r' => Err(Failure::transient("503")),
        b'p' => Err(Failure::permanent("422")),
        _ => Ok(()),
    }
}

fn by_state(figures: &Figures) -> [(PendingState, u64); 5] {
    let counts = figures.pending;
    [
        (PendingState::Ready, counts.ready),
        (PendingState::Held, counts.held),
        (PendingState::Delayed, counts.delayed),
        (PendingState::KeyWait, counts.key_wait),
        (PendingState::InFlight, counts.in_flight),
    ]
}

async fn listed(handle: &PipelineHandle) -> BTreeMap<PendingState, u64> {
    let (mut found, mut at) = (BTreeMap::new(), None);
    loop {
        let page = MessageQuery::default().page(handle, at, 50).await.unwrap();
        page.messages.iter().for_each(|listed| *found.entry(listed.state).or_default() += 1);
        at = page.next;
        if at.is_none() {
            return found;
        }
    }
}

/// Waits until all is at rest and the shown counts agree with the listing and with the number of accepted messages.
async fn compare(handle: &PipelineHandle, accepted: u64) {
    loop {
        let figures = handle.figures();
        let counts = handle.counts().await.unwrap();
        let ended = figures.succeeded + figures.pending.letters_open;
        let shown: BTreeMap<_, _> = by_state(&figures).into_iter().filter(|(_, count)| *count > 0).collect();
        let at_rest = counts.in_flight == 0 && figures.pending.pending() == counts.pending();
        if at_rest && figures.pending.pending() + ended == accepted && listed(handle).await == shown {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn numbers_add_up(stores: impl Stores + 'static, seed: u64) {
    let clock = Still(Arc::new(AtomicU64::new(1_000_000_000)));
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["5s", "30s", "5m"]).jitter("full").outage_gate(false))
        .ordering(if seed.is_multiple_of(2) { DeliveryOrder::Key } else { DeliveryOrder::None })
        .breaker(BreakerSettings::off())
        .guard(GuardSettings::off())
        .concurrency(CONCURRENCY)
        .handler_fn(|m: Message| async move { by_id(&m) });
    let redrive = Redrive::builder().engine(stores).clock(clock.clone()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let work = async {
        let mut rng = Rng::new(seed);
        let (mut accepted, mut paused) = (0_u64, false);
        for _ in 0..60 {
            match rng.below(10) {
                0..4 => {
                    let due = rng.chance(30).then(|| handle.now().plus(Duration::from_secs(rng.below(60))));
                    let word = rng.pick(&["d", "d", "r", "r", "p", "ok"]);
                    let mut new = Message::builder(format!("{word}-{accepted}"));
                    if rng.chance(60) {
                        new = new.key(format!("k-{}", rng.below(3)));
                    }
                    let new = new.build().unwrap();
                    match due {
                        Some(due) => handle.ingest([(new, due)]).await.unwrap(),
                        None => handle.ingest([new]).await.unwrap(),
                    };
                    accepted += 1;
                }
                4..7 => drop(clock.0.fetch_add(rng.pick(&[10, 700, 5_000, 40_000]), SeqCst)),
                7 => {
                    paused = !paused;
                    if paused { handle.pause().await.unwrap() } else { handle.resume().await.unwrap() }
                }
                _ => {
                    let page = MessageQuery::default().page(&handle, None, 50).await.unwrap();
                    if !page.messages.is_empty() {
                        let id = page.messages[rng.below(page.messages.len() as u64) as usize]
                            .message()
                            .id()
                            .to_owned();
                        // Messages that run or wait for their key are refused; the counts must add up all the same.
                        let _ = if rng.chance(50) {
                            handle.cancel(&id).await
                        } else {
                            handle.retry_now(&id).await
                        };
                    }
                }
            }
            let figures = handle.figures();
            assert!(figures.pending.in_flight <= u64::from(CONCURRENCY), "{:?}", figures.pending);
            assert!(figures.pending.pending() <= accepted, "{:?}", figures.pending);
            compare(&handle, accepted).await;
        }
    };
    let ran = tokio::time::timeout(Duration::from_mins(5), redrive.run_until(work)).await;
    ran.unwrap_or_else(|_| panic!("seed {seed}: the numbers never add up: {:?}", handle.figures().pending))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_add_up_in_memory() {
    for seed in 0..12 {
        numbers_add_up(MemoryStores::new(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_add_up_on_disk() {
    for seed in 100..106 {
        let dir = tempfile::tempdir().unwrap();
        numbers_add_up(Embedded::open(dir.path()).unwrap(), seed).await;
    }
}

/// Regression: `in flight 28` was shown with `concurrency = 16`, because deliveries whose verdict was being written
/// counted.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_flight_holds_a_permit() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = Pipeline::new("orders").concurrency(CONCURRENCY).handler_fn(|_: Message| async { Ok(()) });
    let redrive =
        Redrive::builder().engine(Embedded::open(dir.path()).unwrap()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (looker, ends) = (handle.clone(), Arc::clone(&done));
    let looking = tokio::task::spawn_blocking(move || {
        let mut most = 0;
        while !ends.load(SeqCst) {
            most = most.max(looker.figures().pending.in_flight);
        }
        most
    });
    let work = async {
        for part in 0..20 {
            handle.ingest((0..5_000).map(|n| message(format!("m-{part}-{n}")))).await.unwrap();
        }
        while handle.figures().succeeded < 100_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    guarded(redrive.run_until(work)).await.unwrap();
    done.store(true, SeqCst);
    let most = looking.await.unwrap();
    assert!(most <= u64::from(CONCURRENCY), "{most} were in flight with {CONCURRENCY} permits");
}

/// Regression: `held 509` was shown with 472 pending. Each deferral was counted until its second had passed, even if
/// the message was deferred several times in it, or had been tried again long ago.
#[tokio::test]
async fn no_more_is_held_than_is_pending() {
    let clock = Still(Arc::new(AtomicU64::new(1_000_000_000)));
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["5s"]).jitter("none").outage_gate(false))
        .breaker(BreakerSettings::off())
        .guard(GuardSettings::off())
        .handler_fn(|_: Message| async { Err(Failure::reconnect("the connection was closed")) });
    let stores = MemoryStores::new();
    let redrive = Redrive::builder().engine(stores).clock(clock).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    handle.ingest((0..20).map(|n| message(format!("m-{n}")))).await.unwrap();
    let work = async {
        // Three uncounted calls at once over new connections, then a retry that counts.
        let figures = loop {
            let figures = handle.figures();
            if figures.deferred == 60 && figures.pending.delayed == 20 {
                break figures;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert_eq!((figures.pending.held, figures.pending.pending()), (0, 20));
    };
    guarded(redrive.run_until(work)).await.unwrap();
}
