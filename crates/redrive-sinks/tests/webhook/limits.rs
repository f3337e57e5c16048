//! Limits by endpoint, tenant or key on a virtual clock: the sink reports the unit of a message, the dispatch machine
//! enforces the limits. Rate, breaker, and the release of held messages after an outage.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::routes::Router;
use redrive::internal::dispatch::{CallId, Ended, EndpointFigures, Machine, ProtectionSettings, Start};
use redrive::internal::engine::{Deliver as _, Delivery, Event, Memory, NewMessage, StoreOptions};
use redrive::{Failure, FailureKind, GuardSettings, Message, Policy, Sink as _, Time};
use redrive_core::endpoints::{Unit, WaitReason};
use redrive_core::{Random, SplitMix64};
use redrive_sinks::WebhookOptions;
use redrive_sinks::webhook::LimitBy;

use crate::server::{sink, to};

const STARTED: Time = Time::from_millis(1_800_000_000_000);
const STEP: Duration = Duration::from_millis(10);
const CALL: Duration = Duration::from_millis(50);
const PER_UNIT: usize = 5;

struct Running {
    ends: Time,
    call: CallId,
    who: String,
    is_good: bool,
}

/// One receiver behind one URL, and customers with messages for it.
struct World {
    engine: Memory,
    machine: Machine,
    now: Time,
    running: Vec<Running>,
    /// Started calls, by customer.
    calls: HashMap<String, Vec<Time>>,
    /// The highest concurrency, by customer.
    most: HashMap<String, usize>,
    /// How many messages were considered in each second since the start, by customer.
    looked_at: HashMap<String, BTreeMap<u64, u64>>,
    dice: SplitMix64,
}

fn options(limit_by: LimitBy) -> WebhookOptions {
    let hash_key = Some("the key of these tests".into());
    WebhookOptions { limit_by, hash_key, ..to("http://gateway.example/hooks") }
}

impl World {
    fn new(options: WebhookOptions, permits: usize) -> Self {
        let sink = Arc::new(sink(options));
        let settings = ProtectionSettings { guard: GuardSettings::off(), ..ProtectionSettings::default() };
        let policy = Policy::tiers(["5s", "30s", "5m"]).jitter("equal").build().unwrap();
        let (limit, rate) = (sink.per_endpoint().unwrap(), sink.per_endpoint_rate());
        let numbering = sink.numbering();
        let limit_by = sink.limit_by();
        let router = Router::new(limit, rate, move |message| sink.endpoint(message));
        let router = router.numbered(numbering).limiting_by(limit_by);
        let machine = Machine::protected(Arc::new(policy), permits, &settings).routed(router, &settings);
        Self {
            engine: Memory::new(StoreOptions::default()),
            machine,
            now: STARTED,
            running: Vec::new(),
            calls: HashMap::new(),
            most: HashMap::new(),
            looked_at: HashMap::new(),
            // A random seed, as in production.
            dice: SplitMix64::new(RandomState::new().hash_one(0)),
        }
    }

    fn bring(&self, who: &str, count: usize) {
        let message = |n: usize| {
            let id = format!("{who}-{}-{n}", self.now.as_millis());
            let message = Message::builder(id).payload("{}").tenant(who).key(who.as_bytes().to_vec());
            NewMessage::from(message.created(self.now).build().unwrap())
        };
        drop(self.engine.ingest().unwrap().submit((0..count).map(message).collect(), self.now));
    }

    fn second(&self) -> u64 {
        self.now.since(STARTED).as_secs()
    }

    /// Continues for `span`; `is_good` decides about a customer's call.
    fn run(&mut self, span: Duration, is_good: impl Fn(&str, usize) -> bool) {
        let until = self.now.plus(span);
        while self.now < until {
            while self.round(&is_good) {}
            let ends = self.running.iter().map(|call| call.ends);
            let due = self.machine.next_wake(self.engine.next_due());
            let next = ends.chain(due).fold(until, Time::min);
            self.now = next.max(self.now.plus(STEP)).min(until);
        }
    }

    /// One round; returns whether anything happened.
    fn round(&mut self, is_good: &impl Fn(&str, usize) -> bool) -> bool {
        let now = self.now;
        let ended: Vec<Running> = self.running.extract_if(.., |call| call.ends <= now).collect();
        let mut happened = !ended.is_empty();
        for Running { call, is_good, .. } in ended {
            let failed = || Failure::transient("503").of_kind(FailureKind::Status(503));
            let ended = if is_good { Ended::Done } else { Ended::Failed(failed()) };
            self.machine.ended(call, ended, now, Random(self.dice.draw()));
        }
        let mut events = Vec::new();
        self.engine.poll(&mut events).unwrap();
        for ticket in events.into_iter().filter_map(Event::durable) {
            self.machine.durable(ticket, now, &mut Vec::new());
        }
        self.machine.tick(now);
        let (mut starts, mut deliveries): (Vec<Start>, Vec<Delivery>) = (Vec::new(), Vec::new());
        self.machine.restart_due(now, &mut starts);
        self.engine.take(now, self.machine.room(), &mut deliveries).unwrap();
        happened |= !deliveries.is_empty();
        for delivery in &deliveries {
            let (who, second) = (delivery.message.tenant().unwrap().to_owned(), self.second());
            *self.looked_at.entry(who).or_default().entry(second).or_default() += 1;
        }
        self.machine.taken(&mut deliveries, now, &mut starts);
        happened |= !starts.is_empty();
        for start in starts {
            let who = start.message.tenant().unwrap().to_owned();
            self.calls.entry(who.clone()).or_default().push(now);
            let beside = self.running.iter().filter(|call| call.who == who).count();
            let most = self.most.entry(who.clone()).or_default();
            *most = (*most).max(beside + 1);
            let is_good = is_good(&who, beside);
            self.running.push(Running { ends: now.plus(CALL), call: start.call, who, is_good });
        }
        if let Some(batch) = self.machine.batch() {
            happened = true;
            let len = batch.len();
            let ticket = self.engine.settle(batch).unwrap();
            self.machine.submitted(ticket, len, now);
        }
        happened
    }

    fn calls_of(&self, who: &str) -> &[Time] {
        self.calls.get(who).map_or(&[], Vec::as_slice)
    }

    fn endpoints(&mut self) -> EndpointFigures {
        self.machine.figures(self.now).health.endpoints.unwrap()
    }
}

#[test]
fn a_rate_holds_for_each_tenant_or_key_behind_one_url() {
    for limit_by in [LimitBy::Tenant, LimitBy::Key] {
        let options = WebhookOptions { per_endpoint_rate: Some(10.0), ..options(limit_by) };
        let mut world = World::new(options, 64);
        world.bring("crowded", 100);
        (0..20).for_each(|n| world.bring(&format!("other{n}"), 1));
        world.run(Duration::from_secs(2), |_, _| true);
        let soon = |at: &Time| at.since(STARTED) < Duration::from_millis(500);
        assert!((0..20).all(|n| world.calls_of(&format!("other{n}")).iter().all(soon)), "{limit_by:?}");
        assert!((0..20).all(|n| world.calls_of(&format!("other{n}")).len() == 1), "{limit_by:?}");
        let [wait] = &world.endpoints().waits[..] else { panic!("{limit_by:?}: {:?}", world.endpoints()) };
        assert_eq!((wait.unit, wait.why), (Unit::Endpoint, WaitReason::Rate), "{limit_by:?}");

        world.run(Duration::from_secs(30), |_, _| true);
        let calls = world.calls_of("crowded");
        assert_eq!(calls.len(), 100, "{limit_by:?}");
        for (first, at) in calls.iter().enumerate() {
            let within =
                calls[first..].iter().take_while(|other| other.since(*at) < Duration::from_secs(1)).count();
            assert!(within <= 12, "{limit_by:?}: {within} calls within a second at 10/s");
        }
        assert_eq!(world.endpoints().waiting, 0, "{limit_by:?}: nobody waits any more");
    }
}

#[test]
fn a_breaker_opens_for_one_tenant_or_key_and_its_neighbours_at_the_same_url_are_served() {
    for limit_by in [LimitBy::Tenant, LimitBy::Key] {
        let mut world = World::new(options(limit_by), 64);
        world.bring("broken", 200);
        (0..20).for_each(|n| world.bring(&format!("other{n}"), 10));
        world.run(Duration::from_secs(20), |who, _| who != "broken");
        assert!((0..20).all(|n| world.calls_of(&format!("other{n}")).len() == 10), "{limit_by:?}");
        let calls = world.calls_of("broken").len();
        assert!((20..=30).contains(&calls), "{limit_by:?}: {calls} calls, and then none");
        let shown = world.endpoints();
        let [wait] = &shown.waits[..] else { panic!("{limit_by:?}: {shown:?}") };
        assert_eq!((wait.unit, wait.why), (Unit::Endpoint, WaitReason::Breaker), "{limit_by:?}");
        assert_eq!((shown.endpoints, shown.origins, shown.waiting), (1, 0, 1), "{limit_by:?}");
        assert_eq!(wait.unit.name(shown.limit_by), limit_by.name());
        assert!(wait.until.is_some_and(|until| until > world.now), "{limit_by:?}");
    }
}

#[test]
fn a_customer_whose_calls_are_slow_is_shown_as_waiting_for_a_place() {
    for limit_by in [LimitBy::Tenant, LimitBy::Key] {
        let mut world = World::new(options(limit_by), 64);
        world.bring("slow", 40);
        world.run(STEP, |_, _| true);
        let shown = world.endpoints();
        let [wait] = &shown.waits[..] else { panic!("{limit_by:?}: {shown:?}") };
        assert_eq!((wait.why, wait.until), (WaitReason::Concurrency, None), "{limit_by:?}");
        assert_eq!(wait.queued, 40 - PER_UNIT as u64, "{limit_by:?}");
    }
}

/// A real incident: a customer has 45,000 messages when its receiver comes back. Released at one instant they would
/// come back at one instant, again and again; so their release is spread, and its concurrency limited. With a constant
/// random source this fails.
#[test]
fn what_was_held_for_one_customer_comes_back_spread_out_and_pushes_nobody_over() {
    for (limit_by, held) in [(LimitBy::Tenant, 45_000), (LimitBy::Key, 5_000)] {
        let mut world = World::new(options(limit_by), 64);
        world.bring("acme", held);
        let outage = Duration::from_mins(30);
        // Other customers keep sending.
        let others = |world: &World| (0..10).for_each(|n| world.bring(&format!("other{n}"), 1));
        while world.now.since(STARTED) < outage {
            others(&world);
            world.run(Duration::from_secs(30), |who, _| who != "acme");
        }
        let (probes, back) = (world.calls_of("acme").len(), world.second());
        assert!(probes < 100, "{limit_by:?}: {probes} calls while it was down");
        // The receiver can take as many concurrent calls as configured.
        while world.calls_of("acme").len() < probes + held && world.second() < back + 7_200 {
            others(&world);
            world.run(Duration::from_secs(30), |who, beside| who != "acme" || beside < PER_UNIT);
        }
        let delivered = world.calls_of("acme").len() - probes;
        assert_eq!(delivered, held, "{limit_by:?}: each was sent once");
        assert_eq!(world.machine.tally().dead, 0, "{limit_by:?}");
        assert_eq!(world.most["acme"], PER_UNIT, "{limit_by:?}");

        // The release after the outage: no second contains more than a few percent of it.
        let after = || world.looked_at["acme"].iter().filter(|(second, _)| **second >= back);
        let most = after().map(|(_, count)| *count).max().unwrap();
        let share = most as f64 / held as f64;
        let seconds = after().count();
        println!(
            "{limit_by:?}: at most {most} of {held} messages came back within a second, over {seconds} seconds"
        );
        assert!(share < 0.05, "{limit_by:?}: {most} of {held} messages came back within one second");
        assert!(seconds >= 60, "{limit_by:?}: all came back within {seconds} seconds");
        for other in 0..10 {
            let name = format!("other{other}");
            let calls = world.calls_of(&name).len() as u64;
            assert_eq!(calls, world.second() / 30, "{limit_by:?}: {name} was held up");
        }
    }
}
