//! Receivers that close the connection while they handle a message. That is no evidence against this process, so only
//! their own endpoint is affected, for a few seconds at most; and a message that kills its receiver is found.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use redrive::internal::dispatch::routes::Router;
use redrive::internal::dispatch::{Machine, ProtectionSettings};
use redrive::internal::engine::StoreOptions;
use redrive::{
    Call, Delivery, Endpoint, Failure, MemoryStores, Message, Pipeline, Policy, Reason, Redrive, Sink,
};
use redrive_core::endpoints::WaitReason;
use redrive_core::{Class, FailureKind, GuardSettings};
use support::service::{Answer, Called, STEP, Service};
use support::{at_rest, guarded, message};
use tokio::sync::Notify;

const PERMITS: usize = 16;

fn one_endpoint() -> ProtectionSettings {
    ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() }
}

fn policy() -> Policy {
    Policy::tiers(["1s", "2s", "4s"]).jitter("none").build().unwrap()
}

/// A sink that answers everything but `bad`, which it holds until told to go on and then breaks off.
#[derive(Clone, Default)]
struct Moody {
    calls: Arc<AtomicUsize>,
    go_on: Arc<Notify>,
}

impl Sink for Moody {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            if call.message.id() != "bad" {
                return Ok(());
            }
            self.calls.fetch_add(1, SeqCst);
            self.go_on.notified().await;
            Err(Failure::transient("connection reset").of_kind(FailureKind::Reset).ambiguous())
        })
    }
}

/// Regression: a receiver that waited and then broke off stopped the whole process before its exclusive run.
#[tokio::test]
async fn a_receiver_that_waits_and_breaks_off_holds_up_no_other_pipeline() {
    let (moody, healthy) = (Moody::default(), Moody::default());
    let hooks =
        Pipeline::new("hooks").policy(Policy::fixed("1ms").retries(5).jitter("none")).sink(moody.clone());
    let other = Pipeline::new("other").policy(Policy::fixed("1ms").jitter("none")).sink(healthy);
    let redrive =
        Redrive::builder().engine(MemoryStores::new()).pipeline(hooks).pipeline(other).build().unwrap();
    let (hooks, other) = (redrive.pipeline("hooks").unwrap(), redrive.pipeline("other").unwrap());
    let story = async {
        hooks.ingest([message("bad")]).await.unwrap();
        for run in 1..=3 {
            while moody.calls.load(SeqCst) < run {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            other.ingest([message(format!("other-{run}"))]).await.unwrap();
            at_rest(&other).await;
            if run < 3 {
                // The receiver answers another message in between, so this message is to blame.
                moody.go_on.notify_one();
                while hooks.figures().attempts.get(Class::Transient) < run as u64 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                hooks.ingest([message(format!("fine-{run}"))]).await.unwrap();
                while hooks.figures().succeeded < run as u64 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        moody.go_on.notify_one();
        at_rest(&hooks).await;
    };
    guarded(redrive.run_until(story)).await.unwrap();
    assert_eq!(other.figures().succeeded, 3);
    assert_eq!((hooks.figures().dead.get(Reason::PoisonPill), moody.calls.load(SeqCst)), (1, 3));
}

/// The longest time between calls of these messages, and the sum of all gaps above 200 ms.
fn gaps(service: &Service, id: &str, from: Duration) -> (Duration, Duration) {
    let begun: Vec<Duration> = service
        .calls
        .iter()
        .filter(|called| called.id.starts_with(id) && called.at >= from)
        .map(|called| called.at)
        .collect();
    let gaps = begun.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    let long = gaps.filter(|gap| *gap > Duration::from_millis(200));
    long.fold((Duration::ZERO, Duration::ZERO), |(most, all), gap| (most.max(gap), all + gap))
}

/// Six messages whose receiver waits for 8 s and breaks off, among others that it answers.
#[test]
fn others_at_the_same_place_wait_for_seconds_and_a_tenth_of_the_time_at_most() {
    let mut service = Service::new(policy(), PERMITS, &one_endpoint());
    let late = Answer::After(Duration::from_secs(8), Box::new(Answer::Reset));
    let mut answer =
        |called: &Called, _| if called.id.starts_with("bad") { late.clone() } else { Answer::Done };
    service.ingest((0..6).map(|n| format!("bad-{n}")));
    let (span, mut brought) = (Duration::from_mins(10), 0);
    while service.since_start() < span {
        service.ingest([format!("m-{brought}")]);
        brought += 1;
        service.run(Duration::from_millis(20), &mut answer);
    }
    service.run(Duration::from_mins(30), &mut answer);
    let (longest, in_all) = gaps(&service, "m-", Duration::ZERO);
    println!("nobody was answered for {longest:?} at most, {in_all:?} of {span:?} in all");
    assert!(longest <= Duration::from_secs(6), "{longest:?}");
    assert!(in_all <= span / 10 + Duration::from_secs(5), "{in_all:?}");
    assert_eq!(service.machine.tally().succeeded, brought, "{:?}", service.reasons());
    assert_eq!(service.reasons().values().sum::<usize>(), 6, "{:?}", service.reasons());
    assert_eq!(service.machine.health(service.now).suspects, 0);
}

/// One customer's receiver breaks off again and again; messages to all others do not wait for it.
#[test]
fn with_an_endpoint_per_message_nobody_else_waits() {
    let of = |message: &Message| {
        let customer = message.id().split('-').next().unwrap_or_default();
        let number = customer.bytes().fold(7, |all, byte| all * 31 + u64::from(byte));
        Some(Endpoint { origin: number, endpoint: number })
    };
    let settings = ProtectionSettings { guard: GuardSettings::off(), ..ProtectionSettings::default() };
    let machine = Machine::protected(Arc::new(policy()), PERMITS, &settings)
        .routed(Router::new(5, None, of), &settings);
    let mut service = Service::of(machine, StoreOptions::default());
    let mut answer = |called: &Called, _| match called.id.as_str() {
        id if id.starts_with("bad-pill") => {
            Answer::After(Duration::from_millis(800), Box::new(Answer::Reset))
        }
        _ => Answer::Done,
    };
    let (mut brought, mut isolated) = (0_u64, 0);
    while service.since_start() < Duration::from_mins(2) {
        let shown = service.machine.figures(service.now).health.endpoints.unwrap();
        isolated += shown.waits.iter().filter(|wait| wait.why == WaitReason::Isolation).count();
        if brought < 500 && brought.is_multiple_of(100) {
            service.ingest([format!("bad-pill{brought}")]);
        }
        service.ingest([format!("bad-{brought}"), format!("fine-{brought}"), format!("good-{brought}")]);
        brought += 1;
        service.run(Duration::from_millis(20), &mut answer);
    }
    assert!(isolated > 0, "an endpoint that was reserved for one message is shown as waiting");
    for id in ["fine", "good"] {
        assert_eq!(gaps(&service, id, Duration::ZERO), (Duration::ZERO, Duration::ZERO), "{id}");
    }
    assert_eq!(service.machine.tally().succeeded, 3 * brought, "{:?}", service.reasons());
    let reasons = service.reasons();
    assert_eq!(reasons.values().sum::<usize>(), 5, "{reasons:?}");
    assert!(service.parked.iter().all(|parked| parked.message.id().starts_with("bad-pill")));
    assert!(reasons[&Reason::PoisonPill] > 0, "{reasons:?}");
}

/// A network that drops three connections in a hundred, which is no evidence against any message.
#[test]
fn random_resets_stall_nothing_quarantine_nothing_and_do_not_flood_the_log() {
    for (per_second, seed) in [(500, 1), (500, 2), (50, 3), (5, 4)] {
        let mut service = Service::new(policy(), PERMITS, &one_endpoint()).with_seed(seed);
        let mut answer = |_: &Called, dice: u64| if dice % 100 < 3 { Answer::Reset } else { Answer::Done };
        let (span, mut brought) = (Duration::from_mins(5), 0_u64);
        while service.since_start() < span {
            let wanted = service.since_start().as_millis() as u64 * per_second / 1_000;
            service.ingest((brought..wanted).map(|n| format!("m-{n}")));
            brought = wanted.max(brought);
            service.run(STEP, &mut answer);
        }
        service.run(Duration::from_mins(20), &mut answer);
        assert_eq!(service.machine.tally().succeeded, brought, "{:?}", service.reasons());
        assert!(service.parked.is_empty(), "{:?}", service.reasons());
        let (longest, _) = gaps(&service, "m-", Duration::ZERO);
        // One message per 200 ms leaves gaps by itself, so ten intervals are allowed there.
        let bound = Duration::from_millis((10_000 / per_second).max(1_000));
        assert!(longest < bound, "{per_second}/s: nothing for {longest:?}");
        let lines = service.log_lines();
        let resets = service.calls.len() as u64 - brought;
        println!(
            "{per_second}/s: {brought} messages, {resets} resets, {} lines, longest gap {longest:?}",
            lines.len()
        );
        assert!(lines.len() <= 4 * 7, "{} lines: {lines:#?}", lines.len());
        assert!(
            lines.iter().all(|line| line.starts_with("the receiver closed the connection")),
            "{lines:#?}"
        );
    }
}

/// A service that one message kills, at every rate: it dies three times, and no other message suffers.
#[test]
fn a_message_that_kills_its_receiver_is_found_by_three_deaths() {
    for per_second in [2, 20, 200] {
        let mut service = Service::new(policy(), PERMITS, &one_endpoint());
        // Late enough that the breaker has seen other messages.
        let pill = format!("m-{}", 12 * per_second);
        let dies = Answer::Dies(Duration::from_millis(300));
        let mut answer = |called: &Called, _| if called.id == pill { dies.clone() } else { Answer::Done };
        let (mut brought, span) = (0_u64, Duration::from_mins(1));
        while service.since_start() < span {
            let wanted = service.since_start().as_millis() as u64 * per_second / 1_000;
            service.ingest((brought..wanted).map(|n| format!("m-{n}")));
            brought = wanted.max(brought);
            service.run(STEP, &mut answer);
        }
        service.run(Duration::from_mins(10), &mut answer);
        assert_eq!(service.reasons(), BTreeMap::from([(Reason::PoisonPill, 1)]), "{per_second}/s");
        assert_eq!((service.deaths(), service.calls_for(&pill).len()), (3, 3), "{per_second}/s");
        let lines = service.log_lines();
        let told = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(
            told(&format!("the receiver closed the connection while handling {pill} (1 of 3)")),
            "{lines:#?}"
        );
        assert!(told(&format!("{pill} dead-lettered: poison_pill")), "{lines:#?}");
        assert!(!told("clean stop"), "{lines:#?}");
    }
}
