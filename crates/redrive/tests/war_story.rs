//! The war story: 45,000 messages were held for hours, and their endpoint comes back at half of its capacity. Released
//! all at once they take it down again; through the ramp they do not.

mod support;

use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::{CallId, Ended, Machine, ProtectionSettings, Start};
use redrive::internal::engine::{Deliver, Event, Memory, NewMessage, StoreOptions};
use redrive::{Failure, Policy, Time};
use redrive_core::Random;
use support::message;

const HELD: u32 = 45_000;
const PERMITS: usize = 64;
/// How many calls at once the endpoint can take now; it used to be all permits.
const CAPACITY: usize = PERMITS / 2;
const CALL_MS: u64 = 50;
const STEP_MS: u64 = 10;
/// How long the endpoint stays down after an overload.
const DOWN_MS: u64 = 30_000;
const STARTED_MS: u64 = 1_800_000_000_000;

/// Calls beyond its capacity fail, and a second in which half of its calls fail takes it down.
#[derive(Debug, Default)]
struct Endpoint {
    running: usize,
    down_until: u64,
    second: u64,
    calls: u32,
    failed: u32,
    pushed_over: u32,
    peak: usize,
}

impl Endpoint {
    fn call(&mut self, now: u64) -> bool {
        if now / 1_000 != self.second {
            if self.calls >= 20 && self.failed * 2 >= self.calls && now >= self.down_until {
                self.pushed_over += 1;
                self.down_until = now + DOWN_MS;
            }
            (self.second, self.calls, self.failed) = (now / 1_000, 0, 0);
        }
        let is_up = now >= self.down_until;
        let fine = is_up && self.running < CAPACITY;
        self.running += 1;
        if is_up {
            self.calls += 1;
            self.failed += u32::from(!fine);
            self.peak = self.peak.max(self.running);
        }
        fine
    }
}

#[derive(Debug, Default)]
struct Outcome {
    pushed_over: u32,
    calls: u64,
    failed: u64,
    succeeded: u64,
    dead: u64,
    peak: usize,
    took_s: u64,
}

/// The endpoint is down when the first messages are sent and comes back after a minute.
fn play(protection: &ProtectionSettings, outage_gate: bool) -> Outcome {
    let policy = Policy::tiers(["5s", "30s", "5m"]).jitter("equal").outage_gate(outage_gate).build().unwrap();
    let mut engine = Memory::new(StoreOptions::default());
    let mut machine = Machine::protected(Arc::new(policy), PERMITS, protection);
    let batch = (0..HELD).map(|n| NewMessage::from(message(format!("m-{n}")))).collect();
    drop(engine.ingest().unwrap().submit(batch, Time::from_millis(STARTED_MS)));
    let mut endpoint = Endpoint { down_until: 60_000, ..Endpoint::default() };
    let mut calls: Vec<(u64, CallId, bool)> = Vec::new();
    let (mut outcome, mut dice) = (Outcome::default(), 1_u64);
    let mut ms = 0;
    while machine.tally().succeeded + machine.tally().dead < u64::from(HELD) {
        let now = Time::from_millis(STARTED_MS + ms);
        let ended: Vec<_> = calls.extract_if(.., |(ends, ..)| *ends <= ms).collect();
        for (_, call, fine) in ended {
            endpoint.running -= 1;
            outcome.failed += u64::from(!fine);
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let ended = if fine { Ended::Done } else { Ended::Failed(Failure::transient("503")) };
            machine.ended(call, ended, now, Random(dice));
        }
        let mut events = Vec::new();
        engine.poll(&mut events).unwrap();
        for ticket in events.into_iter().filter_map(Event::durable) {
            machine.durable(ticket, now, &mut Vec::new());
        }
        let (mut starts, mut deliveries): (Vec<Start>, _) = (Vec::new(), Vec::new());
        machine.tick(now);
        machine.restart_due(now, &mut starts);
        engine.take(now, machine.room(), &mut deliveries).unwrap();
        machine.taken(&mut deliveries, now, &mut starts);
        for start in starts {
            outcome.calls += 1;
            calls.push((ms + CALL_MS, start.call, endpoint.call(ms)));
        }
        if let Some(batch) = machine.batch() {
            let len = batch.len();
            let ticket = engine.settle(batch).unwrap();
            machine.submitted(ticket, len, now);
        }
        ms += STEP_MS;
        assert!(ms < 24 * 3_600_000, "it never ends: {:?} {endpoint:?}", machine.tally());
    }
    let (tally, Endpoint { pushed_over, peak, .. }) = (machine.tally(), endpoint);
    let (succeeded, dead, took_s) = (tally.succeeded, tally.dead, ms / 1_000);
    Outcome { pushed_over, succeeded, dead, peak, took_s, ..outcome }
}

#[test]
fn forty_five_thousand_held_messages_do_not_take_their_endpoint_down_again() {
    let before = play(&ProtectionSettings::off(), false);
    let after = play(&ProtectionSettings::default(), true);
    println!("before {before:?}\nafter  {after:?}");
    assert!(before.pushed_over >= 2, "{before:?}");
    assert!(before.failed > 2 * u64::from(HELD), "{before:?}");

    assert_eq!((after.pushed_over, after.dead), (0, 0), "{after:?}");
    assert_eq!(after.succeeded, u64::from(HELD));
    assert!(after.peak <= PERMITS, "{after:?}");
    // Beyond the calls needed to notice the outage and to find the limit, hardly any fail.
    assert!(after.failed < u64::from(HELD) / 5, "{after:?}");
    assert!(Duration::from_secs(after.took_s) < Duration::from_mins(10), "{after:?}");
}
