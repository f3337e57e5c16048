//! The push profiles by name, from the first call to the last, in virtual time: permanent failures are given up after
//! as many attempts as the profile says, Retry-After is obeyed, and the rule "503 above 20 % over five minutes" pauses
//! and resumes dispatch.

mod support;

use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::routes::Router;
use redrive::internal::dispatch::{Machine, ProtectionSettings};
use redrive::internal::engine::StoreOptions;
use redrive::{BreakerSettings, Endpoint, Message, Policy, Reason};
use redrive_core::breaker::BreakerState;
use redrive_core::profiles;
use support::service::{Answer, Called, Service};

const PROFILES: [&str; 4] = ["push", "push-critical", "push-campaign", "apns-worker"];

fn service(profile: &str) -> Service {
    let policy = Policy::profile(profile).build().unwrap();
    let breaker = BreakerSettings::of_profile(profiles::find(profile).unwrap());
    let settings = ProtectionSettings { breaker, ..ProtectionSettings::default() };
    Service::of(Machine::protected(Arc::new(policy), 64, &settings), StoreOptions::default())
}

/// Ingests as the pipeline does: with the deadline of the profile.
fn ingest(service: &Service, profile: &str, ids: impl IntoIterator<Item = String>) {
    let deadline = Policy::profile(profile).build().unwrap().deadline(service.now);
    let message = |id: String| {
        let message = Message::builder(id).created(service.now);
        match deadline {
            Some(deadline) => message.deadline(deadline).build().unwrap(),
            None => message.build().unwrap(),
        }
    };
    service.ingest_messages(ids.into_iter().map(message));
}

fn finish(service: &mut Service, mut answer: impl FnMut(&Called, u64) -> Answer) {
    while !service.is_done() {
        service.run(Duration::from_secs(1), &mut answer);
        assert!(service.since_start() < Duration::from_hours(30), "it never ends");
    }
    service.run(Duration::from_secs(1), &mut answer);
}

#[test]
fn a_push_that_never_succeeds_is_given_up_after_the_attempts_of_its_profile() {
    for (profile, attempts) in PROFILES.into_iter().zip([6, 4, 8, 4]) {
        let mut service = service(profile);
        // The other messages succeed, so this message is at fault and not the service.
        ingest(&service, profile, (0..200).map(|n| format!("good-{n}")).chain(["bad".to_owned()]));
        let mut steady = 0;
        while service.parked.is_empty() {
            ingest(&service, profile, [format!("steady-{steady}")]);
            steady += 1;
            let answer =
                |called: &Called, _| if called.id == "bad" { Answer::Status(500) } else { Answer::Done };
            service.run(Duration::from_millis(500), answer);
            assert!(service.since_start() < Duration::from_hours(1), "{profile}");
        }
        let calls = service.calls.iter().filter(|called| called.id == "bad").count();
        assert_eq!(calls, attempts, "{profile}");
        assert_eq!(service.reasons().into_iter().collect::<Vec<_>>(), [(Reason::MaxRetries, 1)], "{profile}");
    }
}

#[test]
fn retry_after_is_the_wait_itself_neither_capped_nor_added_to_and_beyond_the_deadline_it_is_the_end() {
    for profile in PROFILES {
        let mut service = service(profile);
        ingest(&service, profile, ["limited".to_owned()]);
        let wait = Duration::from_secs(150);
        finish(&mut service, |called, _| if called.attempt == 1 { Answer::Busy(wait) } else { Answer::Done });
        let [first, second] = service.calls.as_slice() else { panic!("{profile}: {:?}", service.calls) };
        let waited = second.at.saturating_sub(first.at);
        // The profile for APNs workers adds up to a tenth of jitter.
        assert!(waited >= wait && waited < wait.mul_f64(1.11), "{profile}: {waited:?}");
        assert_eq!(service.machine.tally().succeeded, 1);
    }
    for (profile, ttl) in [("push", 1), ("push-campaign", 24)] {
        let mut service = service(profile);
        ingest(&service, profile, ["limited".to_owned()]);
        let wait = Duration::from_hours(ttl) + Duration::from_mins(1);
        finish(&mut service, |_, _| Answer::Busy(wait));
        assert_eq!(service.calls.len(), 1, "{profile}");
        assert_eq!(
            service.reasons().into_iter().collect::<Vec<_>>(),
            [(Reason::TtlExceeded, 1)],
            "{profile}"
        );
        assert!(service.since_start() < Duration::from_mins(1), "{profile}: at once");
    }
}

/// S1-44: three of ten answers are 503, which is below the threshold of the fast window.
#[test]
fn a_fifth_of_503_over_five_minutes_pauses_dispatch_which_goes_on_once_the_service_is_well() {
    for profile in PROFILES {
        let mut service = service(profile);
        let mut brought = 0;
        let mut bring = |service: &mut Service| {
            ingest(service, profile, (brought..brought + 2).map(|n| format!("m-{n}")));
            brought += 2;
        };
        let is_open =
            |service: &mut Service| service.machine.health(service.now).breaker.state != BreakerState::Closed;
        let sick = |_: &Called, dice: u64| if dice % 10 < 3 { Answer::Status(503) } else { Answer::Done };
        while !is_open(&mut service) {
            bring(&mut service);
            service.run(Duration::from_millis(100), sick);
            assert!(service.since_start() < Duration::from_mins(10), "{profile}: it never paused");
        }
        let paused = service.since_start();
        assert!(paused >= Duration::from_mins(5), "{profile}: {paused:?} is not five minutes");
        let (calls, until) = (service.calls.len(), paused + Duration::from_secs(20));
        while service.since_start() < until {
            bring(&mut service);
            service.run(Duration::from_millis(100), sick);
        }
        assert_eq!(service.calls.len(), calls, "{profile}: nothing is sent before the cooldown is over");
        finish(&mut service, |_, _| Answer::Done);
        assert!(!is_open(&mut service), "{profile}");
        assert_eq!(service.machine.tally().succeeded + service.parked.len() as u64, brought, "{profile}");
    }
}

/// Regression: messages for purged endpoints, which become letters without a call, counted as answers of a healthy
/// service.
#[test]
fn letters_without_a_call_neither_hide_that_a_service_is_down_nor_close_its_breaker() {
    let mut service = service("push");
    let answer = |called: &Called, _| {
        if called.id.starts_with("purged") { Answer::Uncalled } else { Answer::Status(503) }
    };
    let is_open =
        |service: &mut Service| service.machine.health(service.now).breaker.state != BreakerState::Closed;
    let purged = |from: usize| (from..from + 90).map(|n| format!("purged-{n}"));
    ingest(&service, "push", (0..30).map(|n| format!("m-{n}")).chain(purged(0)));
    service.run(Duration::from_secs(5), answer);
    assert!(is_open(&mut service), "every call has failed");
    // Past several cooldowns, the probes find only messages for purged endpoints.
    for round in 1..20 {
        ingest(&service, "push", purged(round * 100));
        service.run(Duration::from_secs(10), |called: &Called, dice| answer(called, dice));
        assert!(is_open(&mut service), "nobody has heard of the service since");
    }
}

/// Two push services; the first letter of a message's id is its origin.
fn two_services(profile: &str) -> Service {
    let policy = Policy::profile(profile).build().unwrap();
    let breaker = BreakerSettings::of_profile(profiles::find(profile).unwrap());
    let settings = ProtectionSettings { breaker, ..ProtectionSettings::default() };
    let of = |message: &Message| {
        let (service, number) = message.id().split_once('-')?;
        let (origin, number) = (u64::from(service.as_bytes()[0]), number.parse::<u64>().ok()?);
        Some(Endpoint { origin, endpoint: origin * 1_000 + number % 500 })
    };
    let router = Router::new(5, None, of).one_service(true);
    let machine = Machine::protected(Arc::new(policy), 64, &settings).routed(router, &settings);
    Service::of(machine, StoreOptions::default())
}

fn origins_paused(service: &mut Service) -> u64 {
    service.machine.figures(service.now).health.endpoints.map_or(0, |endpoints| endpoints.origins)
}

/// S1-44 for Web Push: each push service is judged on its own, because a failing one says nothing about the others.
#[test]
fn a_push_service_with_a_fifth_of_503_is_paused_alone_and_goes_on_once_it_is_well() {
    for profile in ["push", "push-critical", "push-campaign"] {
        let mut service = two_services(profile);
        let mut brought = 0;
        let mut bring = |service: &mut Service| {
            ingest(service, profile, ["a", "b"].map(|to| format!("{to}-{brought}")));
            brought += 1;
        };
        let sick = |called: &Called, dice: u64| {
            if called.id.starts_with('a') && dice % 10 < 3 { Answer::Status(503) } else { Answer::Done }
        };
        while origins_paused(&mut service) == 0 {
            bring(&mut service);
            service.run(Duration::from_millis(50), sick);
            assert!(service.since_start() < Duration::from_mins(10), "{profile}: it never paused");
        }
        let paused = service.since_start();
        assert!(paused >= Duration::from_mins(5), "{profile}: {paused:?} is not five minutes");
        let calls = |service: &Service, to: char| {
            service.calls.iter().filter(|called| called.id.starts_with(to)).count()
        };
        let (before_a, before_b) = (calls(&service, 'a'), calls(&service, 'b'));
        while service.since_start() < paused + Duration::from_secs(20) {
            bring(&mut service);
            service.run(Duration::from_millis(50), sick);
        }
        assert_eq!(calls(&service, 'a'), before_a, "{profile}: nothing is sent before the cooldown is over");
        assert!(calls(&service, 'b') >= before_b + 300, "{profile}: the other service is served");
        let state = service.machine.health(service.now).breaker.state;
        assert_eq!(state, BreakerState::Closed, "{profile}: the pipeline goes on");
        finish(&mut service, |_, _| Answer::Done);
        assert_eq!(origins_paused(&mut service), 0, "{profile}");
        assert_eq!(service.machine.tally().succeeded + service.parked.len() as u64, 2 * brought, "{profile}");
    }
}

/// A push service that does not answer at all is paused within seconds, and meanwhile no message uses up an attempt.
#[test]
fn a_push_service_that_is_down_is_paused_at_once_and_the_others_are_not() {
    let mut service = two_services("push");
    ingest(&service, "push", (0..200).flat_map(|n| [format!("a-{n}"), format!("b-{n}")]));
    let down = |called: &Called, _| {
        if called.id.starts_with('a') { Answer::Status(503) } else { Answer::Done }
    };
    service.run(Duration::from_secs(2), down);
    assert_eq!(origins_paused(&mut service), 1);
    assert_eq!(service.machine.tally().succeeded, 200, "all of the other service");
    let calls = service.calls.iter().filter(|called| called.id.starts_with('a')).count();
    assert!(calls < 100, "{calls} of 200: the rest waits");
    finish(&mut service, |_, _| Answer::Done);
    assert_eq!(service.machine.tally().succeeded, 400);
}
