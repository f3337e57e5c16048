//! What the happy path costs, in instructions: a fixed amount of work without a clock, a thread or a disk, to be counted by
//! `scripts/instructions.sh`. Two runs of different length differ by the work alone.
//!
//! The script also builds this file with an older version of the library; the lines it changes for that are marked.

use std::sync::Arc;

use redrive::internal::dispatch::{Ended, Machine, Start};
use redrive::internal::engine::{Deliver, Event, Memory, NewMessage, StoreOptions};
use redrive::{Class, Message, Policy, Time};
use redrive_core::{Budget, Health, Meta, Outcome, Random, decide};

const STARTED_MS: u64 = 1_800_000_000_000;
const PERMITS: usize = 64;

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next().unwrap_or_else(|| "dispatch".to_owned());
    let times: u64 = args.next().and_then(|times| times.parse().ok()).unwrap_or(1_000);
    let policy = Policy::tiers(["5s", "30s", "5m"]).build().expect("a good policy");
    let came = match case.as_str() {
        "decide-done" => decide_all(&policy, &Outcome::Done, times),
        "decide-retry" => {
            let failed = Outcome::failed(Class::Transient);
            decide_all(&policy, &failed, times)
        }
        "views" => views(policy, times), // not before the health layer
        "dispatch" => dispatch(policy, times),
        other => panic!("{other} is none of decide-done, decide-retry, views and dispatch"),
    };
    println!("{case} × {times} → {came}; scripts/instructions.sh counts what it takes");
}

fn decide_all(policy: &Policy, outcome: &Outcome, times: u64) -> u64 {
    let meta = Meta { created: Time::from_millis(STARTED_MS), ..Meta::default() };
    let decide_one = |n: u64| {
        let now = Time::from_millis(STARTED_MS + n);
        decide(policy, &meta, outcome, &Health::Healthy, &Budget::Unlimited, now, Random(n << 40))
    };
    for n in 0..times {
        std::hint::black_box(decide_one(n));
    }
    times
}

/// What a decision is told of breaker, pulse and budget.
fn views(policy: Policy, times: u64) -> u64 {
    let mut machine = Machine::new(Arc::new(policy), PERMITS);
    (0..times).map(|n| std::hint::black_box(machine.views(Time::from_millis(STARTED_MS + n)))).count() as u64
} // end of views

/// Messages through machine and memory engine: taken, started, good, settled, durable.
fn dispatch(policy: Policy, times: u64) -> u64 {
    let mut engine = Memory::new(StoreOptions::default());
    let mut machine = Machine::new(Arc::new(policy), PERMITS);
    let mut now = Time::from_millis(STARTED_MS);
    let message = |n: u64| Message::builder(format!("m-{n}")).created(now).build().expect("a good message");
    let batch: Vec<NewMessage> = (0..times).map(|n| message(n).into()).collect();
    drop(engine.ingest().expect("it takes messages").submit(batch, now));
    let (mut events, mut deliveries) = (Vec::new(), Vec::new());
    let (mut starts, mut parked): (Vec<Start>, _) = (Vec::new(), Vec::new());
    while machine.tally().succeeded < times {
        now = Time::from_millis(now.as_millis() + 1);
        engine.poll(&mut events).expect("memory does not fail");
        for event in events.drain(..) {
            if let Event::Durable(ticket) = event {
                machine.durable(ticket, now, &mut parked);
            }
        }
        machine.tick(now); // not before the health layer
        engine.take(now, machine.room(), &mut deliveries).expect("memory does not fail");
        machine.taken(&mut deliveries, now, &mut starts);
        for start in starts.drain(..) {
            machine.ended(start.call, Ended::Done, now, Random(0));
        }
        if let Some(batch) = machine.batch() {
            let len = batch.len();
            let ticket = engine.settle(batch).expect("memory does not fail");
            machine.submitted(ticket, len, now);
        }
    }
    machine.tally().succeeded
}
