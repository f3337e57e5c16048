//! The profiles for push by name, from the first call to the last, in virtual time: what fails for good is given up after
//! as many attempts as the profile says, Retry-After is followed, and the rule "503 above 20 % over five minutes" pauses
//! dispatch and lets it go on.

mod support;

use std::sync::Arc;
use std::time::Duration;

use redrive::dispatch::{Machine, ProtectionSettings};
use redrive::engine::StoreOptions;
use redrive::{BreakerSettings, Message, Policy, Reason};
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

/// As the pipeline takes them in: with the deadline of the profile.
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
        // The others are served, so the message is at fault and not the service.
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
        // The profile for APNs workers spreads upwards by a tenth.
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

/// S1-44: three of ten answers are 503, which the fast window lets pass.
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
