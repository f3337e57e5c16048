//! Letters that are requeued while the service is down: the breaker notices, although none of them is new.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::internal::dispatch::ProtectionSettings;
use redrive::internal::engine::letter::ReplayTarget;
use redrive::internal::engine::{KeepLetters, Query, ReplayJob};
use redrive::{LetterState, Policy};
use redrive_core::breaker::BreakerState;
use support::service::{Answer, Called, Service};

const LETTERS: usize = 472;
const PERMITS: usize = 16;

fn service() -> Service {
    let policy = Policy::tiers(["1s", "2s", "4s"]).jitter("equal").build().unwrap();
    let settings = ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() };
    let mut service = Service::new(
        policy,
        PERMITS,
        &ProtectionSettings { guard: redrive_core::GuardSettings::off(), ..settings },
    );
    service.ingest((0..LETTERS).map(|n| format!("m-{n}")));
    service.run(Duration::from_mins(1), |_: &Called, _| Answer::Status(422));
    assert_eq!(service.parked.len(), LETTERS);
    service
}

fn replay(service: &mut Service) {
    let letters = service.engine.letters(Some(LetterState::Open), None, LETTERS).unwrap();
    let ids: Vec<u64> = letters.iter().map(|letter| letter.id).collect();
    let now = service.now;
    let job = ReplayJob { id: 1, due: now, force: false, target: ReplayTarget::default() };
    service.engine.replay(&job, &ids, now.into()).unwrap();
}

#[test]
fn replays_into_a_dead_service_cost_what_it_takes_to_notice_it() {
    for answer in [Answer::Status(503), Answer::Refused, Answer::Reset] {
        let mut service = service();
        replay(&mut service);
        let before = service.calls.len();
        service.run(Duration::from_mins(10), |_: &Called, _| answer.clone());
        let calls = service.calls.len() - before;
        let breaker = service.machine.health(service.now).breaker;
        assert_ne!(breaker.state, BreakerState::Closed, "{answer:?}");
        // The calls that open it, those in flight at that time, and the probes.
        let most = 20 + PERMITS + breaker.probes as usize;
        assert!(calls <= most, "{calls} calls for {answer:?}, {most} at most");
        println!("{answer:?}: {calls} calls in 10 minutes, {} of them probes", breaker.probes);
        service.run(Duration::from_mins(30), |_: &Called, _| Answer::Done);
        assert_eq!(service.machine.tally().succeeded, LETTERS as u64);
    }
}

/// All remaining messages are retries whose first attempts failed long ago.
#[test]
fn retries_alone_open_it_where_nobody_can_be_reached() {
    let policy = Policy::tiers(["20s", "40s", "1m"]).jitter("none").build().unwrap();
    let settings = ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() };
    let mut service = Service::new(policy, PERMITS, &settings);
    // Four in ten fail at first, which is less than an outage.
    let mut number = 0;
    service.ingest((0..1_000).map(|n| format!("m-{n}")));
    service.run(Duration::from_secs(15), |_: &Called, _| {
        number += 1;
        if number % 10 < 4 { Answer::Status(500) } else { Answer::Done }
    });
    let before = service.calls.len();
    assert_eq!((before, service.machine.tally().succeeded), (1_000, 600));
    service.run(Duration::from_mins(5), |_: &Called, _| Answer::Refused);
    let breaker = service.machine.health(service.now).breaker;
    assert_ne!(breaker.state, BreakerState::Closed);
    let (calls, most) = (service.calls.len() - before, 20 + PERMITS + breaker.probes as usize);
    assert!(calls <= most, "{calls} calls, {most} at most");
    service.run(Duration::from_mins(30), |_: &Called, _| Answer::Done);
    assert_eq!((service.reasons(), service.machine.tally().succeeded), (BTreeMap::new(), 1_000));
}

/// Too few letters for the breaker: the sign is that nothing has succeeded since they failed again.
#[test]
fn letters_that_are_replayed_into_an_outage_are_held_and_do_not_die_again() {
    let policy = Policy::tiers(["1s", "2s", "4s"]).jitter("none").build().unwrap();
    let mut service = Service::new(policy, PERMITS, &ProtectionSettings::default());
    service.ingest((0..6).map(|n| format!("m-{n}")));
    service.run(Duration::from_mins(1), |_: &Called, _| Answer::Status(422));
    assert_eq!(service.parked.len(), 6);
    service.ingest((0..3).map(|n| format!("good-{n}")));
    service.run(Duration::from_mins(1), |_: &Called, _| Answer::Done);
    replay(&mut service);
    service.run(Duration::from_mins(10), |_: &Called, _| Answer::Status(503));
    assert_eq!(service.parked.len(), 6, "none has died again");
    service.run(Duration::from_hours(1), |_: &Called, _| Answer::Done);
    assert_eq!(service.machine.tally().succeeded, 9);
}
