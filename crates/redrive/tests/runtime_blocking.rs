//! Blocking mode: a failed call waits in place, keeping its permit, its place in line and its history.

mod support;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::internal::dispatch::{CallId, Ended, Machine, Parked, Start};
use redrive::internal::engine::conformance::Rng;
use redrive::internal::engine::{
    Deliver, Engine, Event, Memory, NewMessage, Query, StoreOptions, TakeGate, Verdict,
};
use redrive::{
    Call, Delivery, DeliveryOrder, Embedded, Failure, LetterState, MemoryStores, Message, Mode, Pipeline,
    Policy, Reason, Redrive, Sink, Time, VirtualClock,
};
use redrive_core::Random;
use support::{at_rest, guarded, keyed, message, until};

fn policy() -> Policy {
    Policy::tiers(["5s", "30s", "5m"]).jitter("none").mode(Mode::Blocking).build().unwrap()
}

fn failed() -> Ended {
    Ended::Failed(Failure::transient("503"))
}

/// A machine on an engine, with a clock set by hand.
struct World<E> {
    engine: E,
    machine: Machine,
    now: Time,
    starts: Vec<Start>,
    parked: Vec<Parked>,
}

impl<E: Engine> World<E> {
    fn new(engine: E, policy: Policy, concurrency: usize) -> Self {
        let machine = Machine::new(Arc::new(policy), concurrency);
        let now = Time::from_millis(1_000_000);
        Self { engine, machine, now, starts: Vec::new(), parked: Vec::new() }
    }

    /// One round, as the dispatch thread makes it.
    fn round(&mut self) {
        self.settle();
        let mut events = Vec::new();
        self.engine.poll(&mut events).unwrap();
        for ticket in events.into_iter().filter_map(Event::durable) {
            self.machine.durable(ticket, self.now, &mut self.parked);
        }
        self.machine.restart_due(self.now, &mut self.starts);
        let mut deliveries = Vec::new();
        let room = self.machine.room();
        if room > 0 {
            self.engine.take(self.now, room, &mut deliveries).unwrap();
        }
        self.machine.taken(&mut deliveries, self.now, &mut self.starts);
        self.settle();
    }

    fn settle(&mut self) {
        if let Some(batch) = self.machine.batch() {
            let len = batch.len();
            let ticket = self.engine.settle(batch).unwrap();
            self.machine.submitted(ticket, len, self.now);
        }
    }

    fn end(&mut self, call: CallId, ended: Ended) {
        self.machine.ended(call, ended, self.now, Random(u64::MAX / 2));
    }

    fn later(&mut self, span: Duration) {
        self.now = self.now.plus(span);
    }

    fn started(&mut self) -> Vec<(String, u32, CallId)> {
        self.starts
            .drain(..)
            .map(|start| (start.message.id().to_owned(), start.attempt, start.call))
            .collect()
    }
}

fn memory(messages: impl IntoIterator<Item = Message>) -> Memory {
    let engine = Memory::new(StoreOptions::default());
    let batch: Vec<NewMessage> = messages.into_iter().map(Into::into).collect();
    drop(engine.ingest().unwrap().submit(batch, Time::from_millis(1_000_000)));
    engine
}

#[test]
fn a_failed_call_keeps_its_permit_until_it_is_terminal() {
    let mut world = World::new(memory([message("a"), message("b")]), policy(), 1);
    let mut calls = Vec::new();
    for wait in [0, 5, 30, 300] {
        world.later(Duration::from_secs(wait));
        if wait > 0 {
            assert_eq!(world.machine.next_wake(None), Some(world.now), "it wakes up for its next attempt");
        }
        world.round();
        let started = world.started();
        assert_eq!(started.len(), 1, "{started:?}");
        calls.push((started[0].0.clone(), started[0].1));
        world.end(started[0].2, failed());
        assert!(wait == 300 || world.machine.batch().is_none(), "nothing is written while it waits in place");
    }
    assert_eq!(calls, [1, 2, 3, 4].map(|n| ("a".to_owned(), n)), "attempts are bounded, b did not overtake");
    world.round();
    world.round();
    assert_eq!(world.started()[0].0, "b");
    let letter = &world.engine.letters(None, None, 1).unwrap()[0];
    assert_eq!((letter.reason, letter.meta.attempts), (Reason::MaxRetries, 4));
    let at: Vec<u64> = letter.history.attempts().iter().map(|a| a.at.as_millis() / 1000 - 1000).collect();
    assert_eq!(at, [0, 5, 35, 335], "its story is whole");
}

#[test]
fn the_end_of_a_run_interrupts_waits_and_forgets_no_attempt() {
    let mut world = World::new(memory([message("a"), message("b"), message("c")]), policy(), 2);
    world.round();
    for (_, _, call) in world.started() {
        world.end(call, failed());
    }
    assert_eq!((world.machine.running(), world.machine.waiting_in_place(), world.machine.room()), (0, 2, 0));
    world.machine.stop();
    let batch = world.machine.batch().expect("the waits are settled at once");
    let due = world.now.plus(Duration::from_secs(5));
    for settlement in &batch {
        assert!(
            matches!(settlement.verdict, Verdict::Retry { due: d, meta } if d == due && meta.attempts == 1)
        );
    }
    assert_eq!(world.engine.settle(batch).map(|_| world.machine.next_wake(None)).unwrap(), None);
    world.engine.close().unwrap();

    // The next process: a and b continue with their second attempt, again in place.
    world.engine.crash();
    let mut next = World::new(world.engine, policy(), 4);
    next.later(Duration::from_secs(5));
    let mut calls: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for _ in 0..20 {
        next.round();
        for (id, attempt, call) in next.started() {
            calls.entry(id).or_default().push(attempt);
            next.end(call, failed());
        }
        next.settle();
        if let Some(due) = next.machine.next_wake(next.engine.next_due()) {
            next.now = next.now.max(due);
        }
    }
    assert_eq!(calls["a"], [2, 3, 4], "a restart does not reset attempts");
    assert_eq!((&calls["b"], &calls["c"]), (&vec![2, 3, 4], &vec![1, 2, 3, 4]));
    let letters = next.engine.letters(None, None, 9).unwrap();
    assert!(letters.iter().all(|l| l.meta.attempts == 4 && l.history.attempts().len() == 4), "{letters:?}");
}

#[test]
fn a_call_that_is_given_up_keeps_the_attempts_before_it() {
    let mut world = World::new(memory([message("a")]), policy(), 1);
    world.round();
    let first = world.started()[0].2;
    world.end(first, failed());
    world.later(Duration::from_secs(5));
    world.round();
    assert_eq!(world.started()[0].1, 2);
    assert_eq!(world.machine.give_up(), 1);
    world.round();
    let mut out = Vec::new();
    world.engine.take(world.now, 1, &mut out).unwrap();
    assert_eq!(
        (out[0].meta.attempts, out[0].history.attempts().len()),
        (1, 1),
        "the given up call does not count"
    );
}

#[test]
fn a_late_answer_of_an_earlier_attempt_does_not_end_a_later_one() {
    let mut world = World::new(memory([message("a")]), policy(), 1);
    world.round();
    let first = world.started()[0].2;
    world.end(first, failed());
    world.end(first, Ended::Done);
    assert_eq!(world.machine.waiting_in_place(), 1, "it still waits");
    world.later(Duration::from_secs(5));
    world.round();
    world.end(first, Ended::Done);
    assert_eq!((world.machine.running(), world.machine.tally().succeeded), (1, 0));
}

#[test]
fn a_deadline_that_passes_in_place_ends_it_without_another_call() {
    let created = Time::from_millis(1_000_000);
    let deadline = created.plus(Duration::from_secs(20));
    let a = Message::builder("a").created(created).deadline(deadline).build().unwrap();
    let mut world = World::new(memory([a]), policy(), 1);
    world.round();
    let call = world.started()[0].2;
    world.end(call, failed());
    // The thread was delayed: the wait ended after 5 s, but the machine got no turn before the deadline.
    world.later(Duration::from_secs(25));
    world.round();
    world.round();
    assert!(world.started().is_empty());
    assert_eq!((world.parked[0].reason, world.parked[0].meta.attempts), (Reason::TtlExceeded, 1));
}

#[test]
fn a_pause_ends_waits_in_place_so_that_nothing_is_started_behind_it() {
    let mut world = World::new(memory([message("a"), message("b")]), policy(), 2);
    world.round();
    let calls = world.started();
    world.end(calls[0].2, failed());
    world.engine.gate(TakeGate::Shut);
    world.machine.gate(TakeGate::Shut);
    // A call that was running when the pause began and fails now does not wait in place either.
    world.end(calls[1].2, failed());
    world.later(Duration::from_mins(1));
    world.round();
    assert!(world.started().is_empty() && world.machine.waiting_in_place() == 0);
    world.engine.gate(TakeGate::Open);
    world.machine.gate(TakeGate::Open);
    world.round();
    assert_eq!(world.started().iter().map(|start| start.1).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn a_call_that_fails_after_the_word_to_stop_does_not_begin_a_wait() {
    let mut world = World::new(memory([message("a")]), policy(), 1);
    world.round();
    let call = world.started()[0].2;
    world.machine.stop();
    world.end(call, failed());
    assert_eq!(world.machine.waiting_in_place(), 0);
    world.round();
    world.round();
    assert!(world.machine.is_at_rest());
    assert_eq!(world.engine.counts().delayed, 1);
}

/// Any step may follow any other, across many short runs of the process; in all cases every message ends within its
/// attempts, key order is kept, and no more calls run than there are permits.
fn any_order_of_steps<E: Engine>(seed: u64, open: impl Fn() -> E) {
    const MESSAGES: u64 = 12;
    let mut rng = Rng::new(seed);
    let concurrency = 1 + rng.below(4) as usize;
    let mut world = World::new(open(), policy(), concurrency);
    let batch: Vec<NewMessage> =
        (0..MESSAGES).map(|n| keyed(format!("m-{n}"), format!("k{}", n % 3)).into()).collect();
    let accepted = world.engine.ingest().unwrap().submit(batch, world.now);
    accepted.blocking_recv().unwrap().unwrap();
    world.round();
    let mut running: Vec<(String, CallId)> = Vec::new();
    let mut failures: HashMap<String, u32> = HashMap::new();
    let mut over: HashSet<String> = HashSet::new();
    for step in 0..20_000 {
        assert!(step < 19_999, "seed {seed}: it does not end");
        match rng.below(100) {
            // The clock jumps to the next event, or falls short of it.
            0..30 => {
                let next = world.machine.next_wake(world.engine.next_due()).unwrap_or(world.now);
                let ahead = next.since(world.now).as_millis() as u64;
                world.later(Duration::from_millis(if rng.chance(20) { ahead / 2 } else { ahead }));
            }
            30..60 => world.round(),
            60..98 if !running.is_empty() => {
                let (id, call) = running.swap_remove(rng.below(running.len() as u64) as usize);
                if rng.chance(60) {
                    *failures.entry(id).or_default() += 1;
                    world.end(call, failed());
                } else {
                    over.insert(id);
                    world.end(call, Ended::Done);
                }
            }
            // An orderly shutdown; some calls had not started, the others are abandoned.
            98 => {
                world.machine.stop();
                for (_, call) in running.drain(..) {
                    if rng.chance(50) {
                        world.end(call, Ended::Unfinished);
                    }
                }
                world.machine.give_up();
                world.round();
                world.engine.close().unwrap();
                let now = world.now;
                drop(world);
                world = World::new(open(), policy(), concurrency);
                world.now = now;
            }
            _ => {}
        }
        for start in std::mem::take(&mut world.starts) {
            let id = start.message.id().to_owned();
            let before = failures.get(&id).copied().unwrap_or(0);
            assert_eq!(start.attempt, before + 1, "seed {seed}: {id} forgot attempts");
            assert!(start.attempt <= 4, "seed {seed}: {id} has attempt {}", start.attempt);
            let number = |id: &str| id[2..].parse::<u64>().unwrap();
            let earlier = (number(&id) % 3..number(&id)).step_by(3).map(|n| format!("m-{n}"));
            let dead = |id: &String| failures.get(id) == Some(&4);
            let ready = earlier.clone().all(|id| over.contains(&id) || dead(&id));
            assert!(ready, "seed {seed}: {id} overtook {:?}", earlier.collect::<Vec<_>>());
            running.push((id, start.call));
        }
        assert!(running.len() <= concurrency, "seed {seed}");
        assert_eq!(running.len(), world.machine.running(), "seed {seed}");
        let counts = world.engine.counts();
        if running.is_empty() && world.machine.waiting_in_place() == 0 && counts.pending() == 0 {
            break;
        }
    }
    let dead = failures.values().filter(|failures| **failures == 4).count();
    assert_eq!(over.len() + dead, MESSAGES as usize, "seed {seed}");
    assert_eq!(world.engine.counts().letters_open, dead as u64, "seed {seed}");
}

fn by_key() -> StoreOptions {
    StoreOptions { ordering: DeliveryOrder::Key, ..StoreOptions::default() }
}

#[test]
fn attempts_and_order_hold_over_restarts_in_memory() {
    for seed in 0..200 {
        let stores = Memory::new(by_key());
        any_order_of_steps(seed, || {
            stores.crash();
            stores.clone()
        });
    }
}

#[test]
fn attempts_and_order_hold_over_restarts_on_disk() {
    for seed in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(dir.path()).unwrap();
        any_order_of_steps(seed, || embedded.store("p", by_key()).unwrap());
    }
}

/// Fails as often as it is told, and records which attempts it saw.
struct Flaky {
    fails: u32,
    seen: Arc<Mutex<Vec<(String, u32, u32)>>>,
}

impl Sink for Flaky {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            assert_eq!(&*call.pipeline, "p");
            self.seen.lock().unwrap().push((call.message.id().to_owned(), call.attempt, call.replays));
            if call.attempt <= self.fails { Err(Failure::transient("503")) } else { Ok(()) }
        })
    }
}

#[tokio::test]
async fn the_worker_profile_retries_in_place() {
    let seen = Arc::default();
    let sink = Flaky { fails: 4, seen: Arc::clone(&seen) };
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(VirtualClock::default())
        .pipeline(Pipeline::new("p").policy(Policy::profile("worker")).concurrency(1).sink(sink))
        .build()
        .unwrap();
    let handle = redrive.pipeline("p").unwrap();
    assert_eq!(handle.mode(), Mode::Blocking);
    handle.ingest([message("a"), message("b")]).await.unwrap();
    let report = guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    assert_eq!((report.total().succeeded, report.total().retried), (2, 8));
    let calls: Vec<(String, u32, u32)> =
        ["a", "b"].iter().flat_map(|id| (1..=5).map(|n| ((*id).to_owned(), n, 0))).collect();
    assert_eq!(*seen.lock().unwrap(), calls, "b waits until a is through");
}

// S4-8 in blocking mode: long waits do not delay the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_in_place_does_not_delay_the_end_and_the_next_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let built = |policy: redrive_core::PolicyBuilder| {
        let calls = Arc::clone(&calls);
        let handler = move |_: Message| {
            calls.fetch_add(1, SeqCst);
            async { Err(Failure::transient("503")) }
        };
        let pipeline =
            Pipeline::new("p").policy(policy).mode(Mode::Blocking).concurrency(3).handler_fn(handler);
        Redrive::builder()
            .engine(Embedded::open(dir.path()).unwrap())
            .clock(Arc::new(ShiftedClock))
            .drain(Duration::from_hours(1))
            .pipeline(pipeline)
            .build()
            .unwrap()
    };
    let first = built(Policy::fixed("1h").retries(2).jitter("none"));
    let handle = first.pipeline("p").unwrap();
    handle.ingest((0..5).map(|n| message(format!("m-{n}")))).await.unwrap();
    let stop = async {
        while handle.figures().waiting_in_place < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let report = guarded(first.run_until(stop)).await.unwrap();
    assert_eq!((report.total().retried, report.total().interrupted), (3, 0));
    drop((first, handle));

    // Three have one attempt behind them, two have none: with three attempts allowed, 3·2 + 2·3 are left.
    let second = built(Policy::fixed("1ms").retries(2).jitter("none"));
    let handle = second.pipeline("p").unwrap();
    assert_eq!((handle.figures().pending.delayed, handle.figures().pending.ready), (3, 2));
    let before = calls.load(SeqCst);
    assert_eq!(before, 3);
    HOUR_LATER.store(3_600_000, SeqCst);
    let all_dead = async {
        until(&handle, |c| c.letters_open == 5).await;
        let letters = handle.letters(Some(LetterState::Open), None, 9).await.unwrap();
        assert!(letters.iter().all(|l| (l.meta.attempts, l.history.attempts().len()) == (3, 3)));
    };
    guarded(second.run_until(all_dead)).await.unwrap();
    assert_eq!(calls.load(SeqCst) - before, 12, "a restart does not reset attempts");
}

static HOUR_LATER: AtomicU32 = AtomicU32::new(0);

/// The wall clock, shifted by an hour on request.
struct ShiftedClock;

impl redrive::Clock for ShiftedClock {
    fn now(&self) -> Time {
        redrive::WallClock.now().plus(Duration::from_millis(u64::from(HOUR_LATER.load(SeqCst))))
    }
}
