//! The dispatch machine on a virtual clock, with the memory engine and without a thread.

mod support;

use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::{CallId, Ended, Machine, Parked, Start};
use redrive::internal::engine::{Deliver, Event, Memory, NewMessage, Query, StoreOptions};
use redrive::{Failure, Message, Policy, Reason, Time};
use redrive_core::Random;
use support::message;

/// All parts of a run as values: a clock set by hand, fixed dice, handlers that answer on request.
struct World {
    engine: Memory,
    machine: Machine,
    now: Time,
    starts: Vec<Start>,
    parked: Vec<Parked>,
}

impl World {
    fn new(policy: Policy, concurrency: usize) -> Self {
        Self {
            engine: Memory::new(StoreOptions::default()),
            machine: Machine::new(Arc::new(policy), concurrency),
            now: Time::from_millis(1_000_000),
            starts: Vec::new(),
            parked: Vec::new(),
        }
    }

    fn ingest(&self, messages: impl IntoIterator<Item = Message>) {
        let batch: Vec<NewMessage> = messages.into_iter().map(Into::into).collect();
        drop(self.engine.ingest().unwrap().submit(batch, self.now));
    }

    /// One round, as the dispatch thread makes it. Returns the number of deliveries taken.
    fn round(&mut self) -> usize {
        let mut events = Vec::new();
        self.engine.poll(&mut events).unwrap();
        for ticket in events.into_iter().filter_map(Event::durable) {
            self.machine.durable(ticket, self.now, &mut self.parked);
        }
        let mut deliveries = Vec::new();
        let room = self.machine.room();
        if room > 0 {
            self.engine.take(self.now, room, &mut deliveries).unwrap();
        }
        let taken = deliveries.len();
        self.machine.taken(&mut deliveries, self.now, &mut self.starts);
        self.settle();
        taken
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

    /// Lets every handler answer and the clock jump from one due time to the next, until nothing is left.
    fn run(&mut self, mut handler: impl FnMut(&Message) -> Ended) {
        loop {
            let taken = self.round();
            for start in std::mem::take(&mut self.starts) {
                let ended = handler(&start.message);
                self.end(start.call, ended);
            }
            self.settle();
            if taken == 0 && self.machine.is_at_rest() {
                match self.machine.next_wake(self.engine.next_due()) {
                    Some(due) => self.now = self.now.max(due),
                    None => return,
                }
            }
        }
    }
}

fn tiers() -> Policy {
    Policy::tiers(["5s", "30s", "5m", "15m"]).jitter("none").build().unwrap()
}

#[test]
fn four_retries_happen_at_their_times_and_end_in_a_letter() {
    let mut world = World::new(tiers(), 10);
    world.ingest([message("a")]);
    world.run(|_| Ended::Failed(Failure::transient("503")));
    let letter = &world.engine.letters(None, None, 1).unwrap()[0];
    let at: Vec<u64> = letter.history.attempts().iter().map(|a| a.at.as_millis() / 1000 - 1000).collect();
    assert_eq!(at, [0, 5, 35, 335, 1235]);
    assert_eq!(letter.reason, Reason::MaxRetries);
    assert_eq!(world.parked.len(), 1);
}

#[test]
fn a_message_is_parked_for_the_hook_only_when_it_is_durable() {
    let mut world = World::new(tiers(), 10);
    world.ingest([message("a")]);
    world.round();
    let call = world.starts.remove(0).call;
    world.end(call, Ended::Failed(Failure::permanent("400")));
    world.settle();
    assert!(world.parked.is_empty() && !world.machine.is_at_rest());
    world.round();
    assert_eq!((world.parked.len(), world.machine.is_at_rest()), (1, true));
}

#[test]
fn room_is_what_the_permits_leave() {
    let mut world = World::new(tiers(), 3);
    world.ingest((0..10).map(|n| message(format!("m-{n}"))));
    assert_eq!((world.round(), world.machine.room()), (3, 0));
    assert_eq!(world.round(), 0);
    let call = world.starts[0].call;
    world.end(call, Ended::Done);
    assert_eq!((world.machine.room(), world.machine.running()), (1, 2));
}

/// A due time in the past means "at once": it must not count as decades of lateness.
#[test]
fn only_what_waited_for_its_time_can_be_late() {
    let mut world = World::new(tiers(), 8);
    let made = |id: &str| Message::builder(id).created(world.now).build().unwrap();
    let batch = [("past", 0), ("now", 1_000_000), ("later", 1_000_500)];
    let batch = batch.map(|(id, due)| NewMessage::from((made(id), Time::from_millis(due))));
    drop(world.engine.ingest().unwrap().submit(batch.into(), world.now));
    assert_eq!(world.round(), 2);
    let lateness = world.machine.figures(world.now).retry_lateness;
    assert_eq!((lateness.count(), lateness.max()), (0, None), "nothing waited");
    world.now = Time::from_millis(1_000_700);
    assert_eq!(world.round(), 1);
    let lateness = world.machine.figures(world.now).retry_lateness;
    assert_eq!((lateness.count(), (lateness.sum() * 1_000.0).round()), (1, 200.0));
}

#[test]
fn a_call_ends_once_even_if_it_reports_twice() {
    let mut world = World::new(tiers(), 1);
    world.ingest([message("a"), message("b")]);
    world.round();
    let first = world.starts.remove(0).call;
    world.end(first, Ended::Done);
    world.settle();
    world.round();
    assert_eq!(world.machine.running(), 1, "b has the slot of a now");
    world.end(first, Ended::Done);
    assert_eq!(world.machine.running(), 1, "and the late word of a does not end it");
}

#[test]
fn a_stopping_machine_takes_nothing_and_gives_up_what_does_not_end() {
    let mut world = World::new(tiers(), 2);
    world.ingest((0..5).map(|n| message(format!("m-{n}"))));
    world.round();
    world.machine.stop();
    assert_eq!((world.machine.room(), world.machine.next_wake(Some(world.now))), (0, None));
    let finished = world.starts.remove(0).call;
    world.end(finished, Ended::Done);
    assert_eq!(world.machine.give_up(), 1);
    world.settle();
    world.round();
    assert!(world.machine.is_at_rest());
    let counts = world.engine.counts();
    assert_eq!((counts.ready, counts.in_flight), (4, 0));
    let given_up = world.starts.remove(0).call;
    world.end(given_up, Ended::Done);
    assert!(world.machine.is_at_rest(), "its late end changes nothing");
}

#[test]
fn an_engine_that_hands_out_too_much_gets_it_back() {
    let mut world = World::new(tiers(), 1);
    world.ingest((0..3).map(|n| message(format!("m-{n}"))));
    let mut deliveries = Vec::new();
    world.engine.take(world.now, 3, &mut deliveries).unwrap();
    world.machine.taken(&mut deliveries, world.now, &mut world.starts);
    assert_eq!((world.starts.len(), world.machine.tally().released), (1, 2));
}

#[test]
fn a_deadline_that_passes_in_a_wait_ends_it_without_another_call() {
    let mut world = World::new(tiers(), 1);
    let deadline = world.now.plus(Duration::from_secs(20));
    world.ingest([Message::builder("a").created(world.now).deadline(deadline).build().unwrap()]);
    let mut calls = 0;
    world.run(|_| {
        calls += 1;
        Ended::Failed(Failure::transient("503"))
    });
    // The second retry would start after 35 s; this is decided when the second attempt fails.
    assert_eq!((calls, world.parked[0].reason), (2, Reason::TtlExceeded));
    assert!(world.now < deadline, "nothing was waited for in vain");
}
