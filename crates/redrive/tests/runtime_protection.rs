//! How long a gated sink holds messages, what a Retry-After may demand of all messages, and what survives the process:
//! the machine on a virtual clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::{CallId, Ended, Machine, Parked, ProtectionSettings, Start};
use redrive::internal::engine::{Deliver, Event, Memory, NewMessage, ReminderKind, StoreOptions};
use redrive::{Failure, Message, Policy, Reason, Time};
use redrive_core::breaker::BreakerState;
use redrive_core::{BreakerSettings, GuardSettings, Random};

const STARTED: Time = Time::from_millis(1_800_000_000_000);
const PERMITS: usize = 16;
const CALL: Duration = Duration::from_millis(10);

/// A sink that answers after [`CALL`], and a machine ticked at intervals.
struct World {
    engine: Memory,
    machine: Machine,
    policy: Arc<Policy>,
    settings: ProtectionSettings,
    now: Time,
    running: Vec<(Time, CallId)>,
    parked: Vec<Parked>,
    calls: Vec<(Time, String)>,
    dice: u64,
}

impl World {
    fn new(policy: Policy, settings: ProtectionSettings) -> Self {
        let policy = Arc::new(policy);
        Self {
            engine: Memory::new(StoreOptions::default()),
            machine: Machine::protected(Arc::clone(&policy), PERMITS, &settings),
            policy,
            settings,
            now: STARTED,
            running: Vec::new(),
            parked: Vec::new(),
            calls: Vec::new(),
            dice: 1,
        }
    }

    fn ingest(&self, messages: impl IntoIterator<Item = Message>) {
        let batch: Vec<NewMessage> = messages.into_iter().map(Into::into).collect();
        drop(self.engine.ingest().unwrap().submit(batch, self.now));
    }

    /// Runs for `span`, in steps, with a sink that answers like this.
    fn run(&mut self, span: Duration, step: Duration, answer: impl Fn(Time) -> Ended) {
        let until = self.now.plus(span);
        while self.now < until {
            self.round(&answer);
            self.now = self.now.plus(step);
        }
    }

    fn round(&mut self, answer: &impl Fn(Time) -> Ended) {
        let now = self.now;
        for (_, call) in self.running.extract_if(.., |(ends, _)| *ends <= now).collect::<Vec<_>>() {
            self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.machine.ended(call, answer(now), now, Random(self.dice));
        }
        let mut events = Vec::new();
        self.engine.poll(&mut events).unwrap();
        for ticket in events.into_iter().filter_map(Event::durable) {
            self.machine.durable(ticket, now, &mut self.parked);
        }
        self.machine.tick(now);
        let (mut starts, mut deliveries): (Vec<Start>, _) = (Vec::new(), Vec::new());
        self.machine.restart_due(now, &mut starts);
        self.engine.take(now, self.machine.room(), &mut deliveries).unwrap();
        self.machine.taken(&mut deliveries, now, &mut starts);
        for start in starts {
            self.calls.push((now, start.message.id().to_owned()));
            self.running.push((now.plus(CALL), start.call));
        }
        if let Some(batch) = self.machine.batch() {
            let len = batch.len();
            let ticket = self.engine.settle(batch).unwrap();
            self.machine.submitted(ticket, len, self.now);
        }
        if let Some(reminder) = self.machine.reminder(now) {
            self.engine.keep_reminder(ReminderKind::Health, &reminder).unwrap();
        }
    }

    /// The process dies, and a new one starts with what the engine has kept.
    fn die(&mut self) {
        self.engine.crash();
        self.running.clear();
        self.machine = Machine::protected(Arc::clone(&self.policy), PERMITS, &self.settings);
        self.machine.remember(&self.engine.reminder(ReminderKind::Health).unwrap());
    }

    fn is_open(&mut self) -> bool {
        self.machine.health(self.now).breaker.state != BreakerState::Closed
    }

    fn reasons(&self) -> BTreeMap<Reason, usize> {
        self.parked.iter().fold(BTreeMap::new(), |mut reasons, parked| {
            *reasons.entry(parked.reason).or_default() += 1;
            reasons
        })
    }
}

fn down(_: Time) -> Ended {
    Ended::Failed(Failure::transient("503"))
}

fn up(_: Time) -> Ended {
    Ended::Done
}

fn messages(ids: std::ops::Range<u32>) -> impl Iterator<Item = Message> {
    ids.map(|id| Message::builder(format!("m-{id}")).created(STARTED).build().unwrap())
}

fn tiers(hold_max: &str) -> Policy {
    Policy::tiers(["5s", "30s"]).jitter("none").hold_max(hold_max).build().unwrap()
}

/// The sink never comes back: messages that were never sent end too, because they were held too long, not exhausted.
#[test]
fn nothing_waits_for_a_closed_sink_for_longer_than_hold_max() {
    let mut world = World::new(tiers("2h"), ProtectionSettings::default());
    world.ingest(messages(0..500));
    world.run(Duration::from_mins(1), CALL, down);
    assert!(world.is_open());
    let sent = world.calls.len();
    assert!(sent <= 20 + 2 * PERMITS + 5, "{sent} calls until it was open");
    world.run(Duration::from_mins(110), Duration::from_secs(1), down);
    assert_eq!(world.reasons(), BTreeMap::new(), "not before their time");
    world.run(Duration::from_mins(30), Duration::from_millis(100), down);
    assert_eq!(world.reasons(), BTreeMap::from([(Reason::HoldExpired, 500)]));
    let never_sent: Vec<_> = world.parked.iter().filter(|parked| parked.meta.attempts == 0).collect();
    assert!(never_sent.len() > 300, "{}", never_sent.len());
    for parked in never_sent {
        let held = Duration::from_millis(parked.meta.held_ms);
        assert!(held > Duration::from_hours(2) && held < Duration::from_mins(131), "{parked:?}");
    }
}

/// A deadline ends a held message as well, and the rest is delivered, however long it was held.
#[test]
fn a_deadline_ends_it_earlier_and_a_sink_that_is_back_gets_the_rest() {
    let mut world = World::new(tiers("1h"), ProtectionSettings::default());
    world.ingest(messages(0..100));
    world.run(Duration::from_mins(1), CALL, down);
    let deadline = STARTED.plus(Duration::from_mins(10));
    let hurried =
        (100..120).map(|id| Message::builder(format!("m-{id}")).created(STARTED).deadline(deadline));
    world.ingest(hurried.map(|builder| builder.build().unwrap()));
    world.run(Duration::from_mins(30), Duration::from_secs(1), down);
    // Messages behind others with later deadlines are not looked at before their turn; none is sent past its
    // deadline.
    world.run(Duration::from_mins(20), Duration::from_millis(10), up);
    assert_eq!(world.reasons().keys().copied().collect::<Vec<_>>(), [Reason::TtlExceeded]);
    assert_eq!(world.machine.tally().succeeded, 100);
    assert!(world.parked.iter().all(|parked| parked.meta.held_ms > 0), "{:?}", world.parked);
}

/// A Retry-After for one message holds for all messages to the same endpoint, and afterwards they are not sent all at
/// once.
#[test]
fn a_retry_after_holds_for_all_messages_of_one_endpoint() {
    let settings = ProtectionSettings {
        breaker: BreakerSettings::off(),
        guard: GuardSettings::off(),
        one_endpoint: true,
        many_endpoints: false,
    };
    let busy = |_| Ended::Failed(Failure::rate_limited(Duration::from_mins(1), "429"));
    let mut world = World::new(tiers("1h"), settings.clone());
    world.ingest(messages(0..200));
    world.run(Duration::from_secs(30), CALL, busy);
    assert_eq!(world.calls.len(), PERMITS, "those that were under way");
    assert_eq!(
        world.machine.health(world.now).wait.map(|wait| wait.until),
        Some(STARTED.plus(CALL + Duration::from_mins(1)))
    );
    world.run(Duration::from_secs(31), CALL, up);
    let (before, after): (Vec<_>, Vec<_>) =
        world.calls.iter().skip(PERMITS).partition(|(at, _)| *at < STARTED.plus(Duration::from_mins(1)));
    assert!(before.is_empty() && !after.is_empty(), "{before:?}");
    let first = after[0].0;
    assert_eq!(after.iter().filter(|(at, _)| *at == first).count(), 5, "few at first");

    let mut apart = World::new(tiers("1h"), ProtectionSettings { one_endpoint: false, ..settings });
    apart.ingest(messages(0..200));
    apart.run(Duration::from_secs(1), CALL, busy);
    assert_eq!(apart.calls.len(), 200, "a handler's messages may go to different places");
}

/// A sink that sends Retry-After forever does not end the wait of any message; `hold_max` does.
#[test]
fn a_sink_that_asks_for_patience_for_ever_is_not_waited_for_for_ever() {
    let settings = ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() };
    let mut world = World::new(tiers("2h"), settings);
    world.ingest(messages(0..300));
    let busy = |_| Ended::Failed(Failure::rate_limited(Duration::from_mins(50), "429"));
    world.run(Duration::from_hours(4), Duration::from_secs(1), busy);
    assert_eq!(world.reasons().values().sum::<usize>(), 300, "{:?}", world.reasons());
    assert!(world.reasons()[&Reason::HoldExpired] > 200, "{:?}", world.reasons());
}

/// Ten processes die one after the other while the sink is down. They keep the state of the breaker: only probes are
/// sent.
#[test]
fn a_breaker_that_was_open_is_open_after_a_restart() {
    let mut world = World::new(tiers("24h"), ProtectionSettings::default());
    world.ingest(messages(0..400));
    world.run(Duration::from_secs(10), CALL, down);
    assert!(world.is_open());
    let (calls, since) = (world.calls.len(), world.machine.health(world.now).breaker.since);
    for _ in 0..10 {
        world.die();
        assert!(world.is_open());
        world.run(Duration::from_secs(2), CALL, down);
    }
    assert_eq!(world.calls.len(), calls, "within its cooldown nothing is sent");
    assert_eq!(world.machine.health(world.now).breaker.since, since);
    world.run(Duration::from_mins(10), Duration::from_millis(100), down);
    world.die();
    world.run(Duration::from_mins(10), Duration::from_millis(100), up);
    assert!(!world.is_open());
    assert_eq!(world.machine.tally().succeeded, 400, "{:?}", world.reasons());
    world.die();
    assert!(!world.is_open(), "and one that was closed is closed");
}

/// Without a reminder it opens again within its sample.
#[test]
fn without_a_reminder_it_opens_again_within_its_sample() {
    let mut world = World::new(tiers("24h"), ProtectionSettings::default());
    world.ingest(messages(0..400));
    world.run(Duration::from_secs(10), CALL, down);
    world.engine.keep_reminder(ReminderKind::Health, b"torn").unwrap();
    let calls = world.calls.len();
    world.die();
    assert!(!world.is_open());
    world.run(Duration::from_secs(10), CALL, down);
    assert!(world.is_open());
    let more = world.calls.len() - calls;
    assert!(more <= 2 * 20 + 2 * PERMITS, "{more} calls until it opened again");
}

/// The downstream is down while messages keep coming. That costs only the calls needed to notice it, and probes; no
/// message dies or loses an attempt by waiting, and afterwards no more calls run at once than allowed.
fn outage(length: Duration, per_second: u32) {
    let mut world = World::new(tiers("24h"), ProtectionSettings::default());
    let mut ids = 0_u32;
    let mut load = |world: &mut World, span: Duration, answer: fn(Time) -> Ended| {
        let until = world.now.plus(span);
        while world.now < until {
            let (now, each) = (world.now, per_second / 50);
            world.ingest(
                (ids..ids + each).map(|id| Message::builder(format!("m-{id}")).created(now).build().unwrap()),
            );
            ids += each;
            world.run(Duration::from_millis(20), CALL, answer);
        }
    };
    load(&mut world, Duration::from_secs(20), up);
    assert_eq!(world.machine.health(world.now).incident, None);
    let before = world.calls.len();
    load(&mut world, length, down);
    let (calls, breaker) = (world.calls.len() - before, world.machine.health(world.now).breaker);
    let cause = breaker.cause.unwrap();
    // The first failed messages are retried once before it opens, because their tier is shorter than the window.
    let most = 2 * cause.failed as usize + 2 * PERMITS + breaker.probes as usize;
    assert!(calls <= most, "{calls} calls, {most} at most: {breaker:?}");
    assert!(breaker.probes <= 5 * breaker.rounds, "{breaker:?}");
    let shown = world.machine.health(world.now).incident.unwrap();
    assert!(shown.failed <= calls as u64 && shown.until.is_none(), "{shown:?}, {calls} calls");
    let back = world.now;
    load(&mut world, Duration::from_mins(8), up);
    // Held messages are sent at twice the rate, plus half the rate more per half minute, though permits allow far
    // more.
    let mut seconds = vec![0_u32; 8 * 60];
    world
        .calls
        .iter()
        .filter(|(at, _)| *at >= back)
        .for_each(|(at, _)| seconds[at.since(back).as_secs() as usize] += 1);
    let closed = seconds.iter().position(|calls| *calls > 5).unwrap();
    for (second, calls) in seconds.iter().enumerate().skip(closed) {
        let most = per_second * (4 + (second - closed) as u32 / 29) * 115 / 200;
        assert!(*calls <= most, "{calls} calls in second {second}, {most} at most: {seconds:?}");
    }
    assert_eq!(seconds[8 * 60 - 2], per_second, "the backlog is gone: {seconds:?}");
    world.run(Duration::from_mins(2), CALL, up);
    assert_eq!((world.machine.tally().succeeded, world.machine.tally().dead), (u64::from(ids), 0));
    let shown = world.machine.health(world.now).incident.unwrap();
    assert!(shown.peak_running <= PERMITS && shown.peak_per_second > 0 && shown.is_over, "{shown:?}");
    assert_eq!((shown.dead, shown.dead_for_outage, shown.expired), (0, 0, 0), "{shown:?}");
    let mut sent: BTreeMap<&str, usize> = BTreeMap::new();
    world.calls.iter().for_each(|(_, id)| *sent.entry(id).or_default() += 1);
    let again = sent.values().filter(|calls| **calls > 1).count();
    assert!(again <= calls, "{again} messages were sent more than once, {calls} calls failed");
    println!("{length:?} at {per_second}/s: {calls} calls, {} probes, {shown:?}", breaker.probes);
}

#[test]
fn a_minute_without_the_downstream_costs_what_it_takes_to_notice_it() {
    outage(Duration::from_mins(1), 250);
}

#[test]
fn ten_minutes_cost_no_more() {
    outage(Duration::from_mins(10), 50);
}

/// One Retry-After of a day: the message that got it waits for a day, all others for minutes. Until the sink accepts
/// something again, it gets one message at a time.
#[test]
fn a_retry_after_of_a_day_stops_the_others_for_minutes() {
    let settings = ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() };
    let mut world = World::new(tiers("48h"), settings);
    world.ingest(messages(0..1));
    let busy = |_| Ended::Failed(Failure::rate_limited(Duration::from_hours(24), "429"));
    world.run(Duration::from_secs(1), CALL, busy);
    world.ingest(messages(1..200));
    world.run(Duration::from_mins(12), CALL, busy);
    assert_eq!(world.calls.len(), 3, "one at a time, every five minutes: {:?}", world.calls);
    let wait = world.machine.health(world.now).wait.unwrap();
    assert!(wait.is_cut() && wait.until.since(wait.since) == Duration::from_mins(5), "{wait:?}");
    assert_eq!((wait.asked, wait.message_id.as_str()), (Duration::from_hours(24), "m-2"));
    world.run(Duration::from_mins(10), CALL, up);
    assert_eq!(world.machine.tally().succeeded, 197, "all but those that were told");
    world.run(Duration::from_hours(27), Duration::from_secs(1), up);
    assert_eq!((world.machine.tally().succeeded, world.reasons()), (200, BTreeMap::new()));
    let told: Vec<_> = world.calls.iter().filter(|(_, id)| id == "m-0").map(|(at, _)| *at).collect();
    assert!(told[1].since(told[0]) >= Duration::from_hours(24), "{told:?}");
}

#[test]
fn an_operator_lifts_a_retry_after() {
    let settings = ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() };
    let mut world = World::new(tiers("48h"), settings);
    world.ingest(messages(0..1));
    let busy = |_| Ended::Failed(Failure::rate_limited(Duration::from_hours(24), "429"));
    world.run(Duration::from_secs(1), CALL, busy);
    world.ingest(messages(1..100));
    world.run(Duration::from_mins(1), CALL, up);
    assert_eq!(world.calls.len(), 1);
    world.machine.lift_wait(world.now);
    assert_eq!(world.machine.health(world.now).wait, None);
    world.run(Duration::from_secs(5), CALL, up);
    assert_eq!(world.machine.tally().succeeded, 99);
    let mut told = Vec::new();
    world.machine.health_changes(&mut told);
    let told: Vec<String> = told.iter().map(|entry| entry.change.to_string()).collect();
    let expected = "the downstream answered m-0 with other and Retry-After 24h; others wait for 5m of it \
                    (retry_after_shared_max)";
    assert!(told[0].starts_with("▲ nothing is sent until 20") && told[0].ends_with(expected), "{told:?}");
    assert_eq!(told[1], "▼ the wait was lifted; calls ramp up");
}
