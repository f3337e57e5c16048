//! No shipped profile dead-letters messages because of an outage, whatever its schedule, budget and mode; and with a
//! healthy sink the retry budget holds.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::{Machine, ProtectionSettings};
use redrive::internal::engine::{AfterDead, DeliveryOrder, StoreOptions};
use redrive::{
    BreakerSettings, Embedded, Failure, MemoryStores, Message, Pipeline, Policy, Reason, Redrive,
    VirtualClock,
};
use redrive_core::forecast::Shares;
use redrive_core::forecast_budget::BudgetForecast;
use redrive_core::profiles::{self, Profile};
use support::service::{Answer, Called, STARTED, Service};
use support::{at_rest, guarded, message};

const PERMITS: usize = 64;
/// The sink is never down.
const NO_OUTAGE: Answer = Answer::Done;
/// How long the sink is healthy before the outage.
const BEFORE: Duration = Duration::from_secs(15);

struct Outage {
    length: Duration,
    per_second: u32,
    answer: Answer,
    /// The percentage of messages that fail at first while the sink is healthy.
    fail_percent: u64,
    store: StoreOptions,
}

/// Ingests messages steadily, with an outage in between. Returns the number of messages.
fn play(policy: Policy, breaker: BreakerSettings, outage: &Outage) -> (Service, u64) {
    let settings = ProtectionSettings { breaker, one_endpoint: true, ..ProtectionSettings::default() };
    let machine = Machine::protected(Arc::new(policy), PERMITS, &settings);
    let mut service = Service::of(machine, outage.store.clone());
    let away = BEFORE..BEFORE + outage.length;
    let mut answer = |called: &Called, dice: u64| match away.contains(&called.at) {
        true if outage.answer != NO_OUTAGE => outage.answer.clone(),
        _ if called.attempt == 1 && dice % 100 < outage.fail_percent => Answer::Status(500),
        _ => Answer::Done,
    };
    let mut brought = 0;
    while service.since_start() < away.end + Duration::from_secs(30) {
        let now = service.now;
        let wanted = service.since_start().as_millis() as u64 * u64::from(outage.per_second) / 1_000;
        let messages = (brought..wanted).map(|n| {
            Message::builder(format!("m-{n}")).created(now).key(format!("k-{}", n % 1_000)).build().unwrap()
        });
        service.ingest_messages(messages);
        brought = brought.max(wanted);
        service.run(Duration::from_millis(100), &mut answer);
    }
    while !service.is_done() {
        service.run(Duration::from_mins(1), &mut answer);
        assert!(service.since_start() < Duration::from_hours(30), "it never ends");
    }
    service.run(Duration::from_secs(1), &mut answer);
    (service, brought)
}

fn resolved(profile: &Profile) -> (Policy, BreakerSettings) {
    (Policy::profile(profile.name).build().unwrap(), BreakerSettings::of_profile(profile))
}

/// The letters by reason, without expired messages, whose deadline an outage does not move.
fn letters(service: &Service) -> BTreeMap<Reason, usize> {
    let mut reasons = service.reasons();
    reasons.remove(&Reason::TtlExceeded);
    reasons
}

#[test]
fn no_shipped_profile_dead_letters_for_an_outage() {
    for profile in &profiles::ALL {
        for (seconds, per_second) in [(20, 100), (60, 100), (60, 1), (600, 20)] {
            for answer in [Answer::Status(503), Answer::Refused] {
                let (length, store) = (Duration::from_secs(seconds), StoreOptions::default());
                let outage = Outage { length, per_second, answer: answer.clone(), fail_percent: 0, store };
                let (policy, breaker) = resolved(profile);
                let ttl = policy.ttl();
                let (service, brought) = play(policy, breaker, &outage);
                let what = format!("{}, {length:?} of {answer:?} at {per_second}/s", profile.name);
                assert_eq!(letters(&service), BTreeMap::new(), "{what}");
                let expired = service.parked.len() as u64;
                assert!(expired == 0 || ttl.is_some_and(|ttl| ttl < length), "{what}: {expired} expired");
                assert_eq!(service.machine.tally().succeeded + expired, brought, "{what}");
                println!("{what}: {} calls for {brought} messages, {expired} expired", service.calls.len());
            }
        }
    }
}

/// Too few messages for the breaker, over too long a time for two failures in a row to mean something, with the process
/// being killed again and again.
#[test]
fn a_handful_of_messages_survives_an_outage_of_hours_and_restarts_in_it() {
    let policies = [
        ("default", Policy::default()),
        ("1s, 3s", Policy::tiers(["1s", "3s"]).build().unwrap()),
        ("5s, 70s", Policy::tiers(["5s", "70s"]).build().unwrap()),
    ];
    let settings = ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() };
    for (name, policy) in policies {
        let policy = Arc::new(policy);
        for restart_every in [None, Some(Duration::from_secs(17)), Some(Duration::from_mins(7))] {
            let machine = || Machine::protected(Arc::clone(&policy), PERMITS, &settings);
            let mut service = Service::of(machine(), StoreOptions::default());
            let away = Duration::from_mins(2)..Duration::from_hours(3);
            let mut answer = |called: &Called, _| {
                if away.contains(&called.at) { Answer::Status(503) } else { Answer::Done }
            };
            service.ingest((0..3).map(|n| format!("before-{n}")));
            service.run(away.start, &mut answer);
            let mut restarted = service.since_start();
            for n in 0..8 {
                service.ingest([format!("m-{n}")]);
                service.run(Duration::from_secs(3), &mut answer);
            }
            while service.since_start() < away.end || !service.is_done() {
                service.run(Duration::from_secs(1), &mut answer);
                let is_due = restart_every.is_some_and(|every| service.since_start() >= restarted + every);
                if is_due && service.is_idle() {
                    restarted = service.since_start();
                    service.restart(machine());
                }
                assert!(service.since_start() < Duration::from_hours(40), "it never ends");
            }
            let what = format!("{name}, restarted every {restart_every:?}");
            assert_eq!(service.reasons(), BTreeMap::new(), "{what}");
            println!("{what}: {} calls for 11 messages", service.calls.len());
        }
    }
}

/// A letter would have made letters of its followers as well.
#[test]
fn nor_does_a_blocked_key_grow_from_it() {
    let store = StoreOptions {
        ordering: DeliveryOrder::Key,
        after_dead: AfterDead::BlockKey,
        ..StoreOptions::default()
    };
    let (policy, breaker) = resolved(profiles::find("payments").unwrap());
    let length = Duration::from_secs(20);
    let outage = Outage { length, per_second: 100, answer: Answer::Status(503), fail_percent: 0, store };
    let (service, brought) = play(policy, breaker, &outage);
    assert_eq!((service.reasons(), service.machine.tally().succeeded), (BTreeMap::new(), brought));
}

/// More messages fail than the budget allows, so it is already empty when the outage begins unnoticed.
#[test]
fn a_budget_that_was_empty_before_makes_no_letters_of_the_outage() {
    for answer in [Answer::Status(503), Answer::Refused] {
        let (policy, breaker) = resolved(profiles::find("payments").unwrap());
        let (length, store) = (Duration::from_mins(1), StoreOptions::default());
        let outage = Outage { length, per_second: 100, answer, fail_percent: 15, store };
        let (service, _) = play(policy, breaker, &outage);
        let away = STARTED.plus(BEFORE)..STARTED.plus(BEFORE + length);
        let of = |away: &std::ops::Range<redrive::Time>| {
            let first = |parked: &&redrive::internal::dispatch::Parked| {
                away.contains(&parked.meta.first_failed.unwrap())
            };
            service.parked.iter().filter(first).map(|parked| parked.reason).collect::<Vec<_>>()
        };
        let before = of(&(STARTED..away.start));
        assert!(before.len() > 30, "the budget must be empty for this: {}", before.len());
        assert!(before.iter().all(|reason| *reason == Reason::BudgetExhausted), "{before:?}");
        assert_eq!(of(&away), [], "{answer:?}", answer = outage.answer);
    }
}

/// `check` forecasts the use of the budget: with a healthy sink, its forecast is right.
#[test]
fn what_is_forecast_of_the_budget_is_what_happens() {
    for (name, per_second) in [("payments", 50), ("payments", 5), ("emails", 50)] {
        let profile = profiles::find(name).unwrap();
        let (policy, breaker) = resolved(profile);
        let shares = Shares { transient: 0.15, failing_twice: 0.0, poison: 0.0 };
        let forecast = BudgetForecast::of(&policy, shares, f64::from(per_second));
        let (length, store) = (Duration::from_mins(5), StoreOptions::default());
        let outage = Outage { length, per_second, answer: NO_OUTAGE, fail_percent: 15, store };
        let (service, brought) = play(policy, breaker, &outage);
        let dead = service.parked.len() as f64 / brought as f64;
        let expected = forecast.map_or(0.0, |forecast| forecast.dead);
        assert!((dead - expected).abs() < 0.02, "{name} at {per_second}/s: {dead}, forecast {expected}");
        println!("{name} at {per_second}/s: {dead:.3} dead, forecast {expected:.3}");
    }
}

/// S3-34, S3-37: with a healthy sink, messages beyond the budget are dead-lettered without a retry.
async fn past_the_budget(redrive: Redrive) {
    let payments = redrive.pipeline("payments").unwrap();
    // One in four fails: more than the budget allows, but less than an outage.
    let bad = |n: u32| if n.is_multiple_of(4) { format!("bad-{n}") } else { format!("good-{n}") };
    payments.ingest((0..80).map(|n| message(bad(n))).collect::<Vec<_>>()).await.unwrap();
    guarded(redrive.run_until(at_rest(&payments))).await.unwrap();
    let figures = payments.figures();
    let (exhausted, used_up) =
        (figures.dead.get(Reason::BudgetExhausted), figures.dead.get(Reason::MaxRetries));
    assert_eq!((figures.succeeded, exhausted, used_up), (60, 15, 5), "five retries a minute, and no more");
    assert_eq!(figures.attempts.total(), 60 + 20 + 5 + 5);
}

fn payments() -> Pipeline {
    let policy = Policy::profile("payments").retries_per_minute(5).jitter("none");
    Pipeline::new("payments").policy(policy).concurrency(1).handler(async |message: &Message| {
        if message.id().starts_with("bad") { Err(Failure::transient("500")) } else { Ok(()) }
    })
}

#[tokio::test]
async fn a_running_pipeline_keeps_to_its_retry_budget_in_memory() {
    let redrive = Redrive::builder().engine(MemoryStores::new()).clock(VirtualClock::default());
    past_the_budget(redrive.pipeline(payments()).build().unwrap()).await;
}

#[tokio::test]
async fn a_running_pipeline_keeps_to_its_retry_budget_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let redrive =
        Redrive::builder().engine(Embedded::open(dir.path()).unwrap()).clock(VirtualClock::default());
    past_the_budget(redrive.pipeline(payments()).build().unwrap()).await;
}
