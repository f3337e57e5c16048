//! A run on a virtual clock: the dispatch machine with its breaker, budget and policy, on the memory engine.
//!
//! Only the threads, disk and network of a real run are missing. The result does not depend on the computer: the same
//! load with the same seed gives the same trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::{CallId, Ended, HealthEntry, Machine, ProtectionSettings, Start};
use redrive::internal::engine::{
    Deliver, Delivery, EngineError, Event, Ingest, KeepLetters, LetterChange, Memory, NewMessage, Query,
    StoreOptions,
};
use redrive::{GuardSettings, HealthChange, Time};
use redrive_core::breaker::BreakerChange;
use redrive_core::{Random, SplitMix64};

use super::call_log::CallLog;
use super::letters::{PAGE, number_of};
use super::load::{HandlerAnswer, Load};
use super::recorder::Recorder;
use super::stage::Stage;
use super::subject::Subject;
use super::trace::{EngineCounts, Trace};
use crate::seed;

/// The start of virtual time, far from zero like real time.
const BEGINS_MS: u64 = 1_800_000_000_000;
/// Steps between checks for progress and ^C.
const STEPS_PER_LOOK: u64 = 4_096;

/// The result of a call, and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub answer: HandlerAnswer,
    pub takes_ms: u64,
}

/// The downstream of a virtual run.
pub trait Responder {
    fn call(&mut self, number: u64, call: u16, at: Duration) -> Reply;
}

/// Answers as the load says, after its latency.
impl Responder for &Load {
    fn call(&mut self, number: u64, call: u16, at: Duration) -> Reply {
        let (takes, hangs) = self.takes(at);
        let answer = if hangs { HandlerAnswer::Transient } else { self.answer(number, call, at) };
        Reply { answer, takes_ms: takes.as_millis() as u64 }
    }
}

/// Runs the load; `None` if interrupted.
pub fn run(load: &Load, subject: &Subject, stage: Stage<'_>) -> Result<Option<Trace>, EngineError> {
    let mut downstream = load;
    run_with(load, subject, &mut downstream, stage)
}

/// Runs the load with the given downstream; `None` if interrupted.
pub fn run_with(
    load: &Load,
    subject: &Subject,
    downstream: &mut dyn Responder,
    stage: Stage<'_>,
) -> Result<Option<Trace>, EngineError> {
    let mut world = World::new(load, subject, downstream);
    let ends_ms = load.ends().as_millis() as u64;
    let mut steps = 0_u64;
    loop {
        while world.happen()? {}
        steps += 1;
        if steps.is_multiple_of(STEPS_PER_LOOK) {
            if stage.is_interrupted() {
                return Ok(None);
            }
            stage.share(world.now_ms as f64 / ends_ms.max(1) as f64);
        }
        if world.is_over() {
            break;
        }
        match world.next_ms().filter(|next| *next < ends_ms) {
            Some(next) => world.now_ms = next,
            None => break,
        }
    }
    world.into_trace().map(Some)
}

/// A running call. Reversed, so that the heap yields the earliest end first.
type Running = Reverse<(u64, CallId, u64, Code)>;

/// An answer in a form that can be ordered, as the heap requires.
type Code = u8;

const fn code(answer: HandlerAnswer) -> Code {
    match answer {
        HandlerAnswer::Success => 0,
        HandlerAnswer::Transient => 1,
        HandlerAnswer::Permanent => 2,
    }
}

const fn answer_of(code: Code) -> HandlerAnswer {
    match code {
        0 => HandlerAnswer::Success,
        1 => HandlerAnswer::Transient,
        _ => HandlerAnswer::Permanent,
    }
}

struct World<'a> {
    load: &'a Load,
    downstream: &'a mut dyn Responder,
    recorder: Recorder,
    machine: Machine,
    engine: Memory,
    ingest: Arc<dyn Ingest>,
    random: SplitMix64,
    now_ms: u64,
    /// The number of paced messages that have arrived.
    arrived: u64,
    burst_left: bool,
    running: BinaryHeap<Running>,
    open_letters: VecDeque<u64>,
    /// When the simulated people are done with their current letter.
    triage_free_ms: f64,
    triaged_ms: Vec<u32>,
    breaker_opened: u32,
    breaker_first_ms: Option<u32>,
    // Reused from step to step.
    deliveries: Vec<Delivery>,
    starts: Vec<Start>,
    events: Vec<Event>,
    health: Vec<HealthEntry>,
}

impl<'a> World<'a> {
    fn new(load: &'a Load, subject: &Subject, downstream: &'a mut dyn Responder) -> Self {
        let options = StoreOptions { ordering: subject.ordering, ..StoreOptions::default() };
        let engine = Memory::new(options);
        let protection = ProtectionSettings {
            breaker: subject.breaker.clone(),
            guard: GuardSettings::off(),
            one_endpoint: subject.router.is_none(),
            ..ProtectionSettings::default()
        };
        let policy = Arc::new(subject.policy.clone());
        let machine = Machine::protected(policy, subject.concurrency as usize, &protection);
        let machine = match &subject.router {
            Some(router) => machine.routed(router.clone(), &protection),
            None => machine,
        };
        Self {
            recorder: Recorder::new(load.messages(), load.ends()),
            machine,
            ingest: engine.ingest().expect("the memory engine takes messages"),
            engine,
            random: SplitMix64::new(load.seed ^ 0x5eed),
            now_ms: 0,
            arrived: 0,
            burst_left: load.burst.is_some(),
            running: BinaryHeap::new(),
            open_letters: VecDeque::new(),
            triage_free_ms: 0.0,
            triaged_ms: Vec::new(),
            breaker_opened: 0,
            breaker_first_ms: None,
            deliveries: Vec::new(),
            starts: Vec::new(),
            events: Vec::new(),
            health: Vec::new(),
            load,
            downstream,
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now_ms)
    }

    fn now(&self) -> Time {
        Time::from_millis(BEGINS_MS + self.now_ms)
    }

    /// Processes everything that is due now, once; returns whether anything was.
    fn happen(&mut self) -> Result<bool, EngineError> {
        let now = self.now();
        let mut happened = self.arrive();
        while self.running.peek().is_some_and(|Reverse((ends, ..))| *ends <= self.now_ms) {
            let Some(Reverse((_, call, number, code))) = self.running.pop() else { break };
            self.end(call, number, answer_of(code), now);
            happened = true;
        }
        self.machine.tick(now);
        let room = self.machine.room();
        if room > 0 {
            let mut deliveries = std::mem::take(&mut self.deliveries);
            self.engine.take(now, room, &mut deliveries)?;
            happened |= !deliveries.is_empty();
            self.machine.taken(&mut deliveries, now, &mut self.starts);
            self.deliveries = deliveries;
        }
        self.machine.restart_due(now, &mut self.starts);
        for start in std::mem::take(&mut self.starts) {
            self.start(&start);
            happened = true;
        }
        happened |= self.settle(now)?;
        self.triage(now)?;
        self.machine.health_changes(&mut self.health);
        for entry in self.health.drain(..) {
            let opened =
                matches!(entry.change, HealthChange::Breaker { change: BreakerChange::Opened(_), .. });
            self.breaker_opened += u32::from(opened);
            if opened {
                self.breaker_first_ms.get_or_insert(self.now_ms as u32);
            }
        }
        Ok(happened)
    }

    fn arrive(&mut self) -> bool {
        let due = self.load.arrived_by(self.elapsed());
        let burst = self.load.burst.filter(|burst| self.burst_left && burst.at <= self.elapsed());
        let paced = self.arrived..due;
        let bursting = burst.map_or(0..0, |_| self.load.paced()..self.load.messages());
        let batch: Vec<NewMessage> = paced.chain(bursting).map(|number| self.offered(number)).collect();
        self.arrived = due.max(self.arrived);
        self.burst_left &= burst.is_none();
        if batch.is_empty() {
            return false;
        }
        // The memory engine accepts everything at once; the accepted messages are counted at the end.
        drop(self.ingest.submit(batch, self.now()));
        true
    }

    fn offered(&self, number: u64) -> NewMessage {
        self.recorder.arrived(number, self.elapsed());
        let message = self.load.message(number, "{}", self.now());
        NewMessage { message, due: None }
    }

    fn start(&mut self, start: &Start) {
        let Some((_, number)) = seed::parse(start.message.id()) else { return };
        let at = self.elapsed();
        let call = self.recorder.called(number, at);
        let reply = self.downstream.call(number, call, at);
        self.running.push(Reverse((self.now_ms + reply.takes_ms, start.call, number, code(reply.answer))));
    }

    fn end(&mut self, call: CallId, number: u64, answer: HandlerAnswer, now: Time) {
        let at = self.elapsed();
        let ended = match answer.to_result() {
            Ok(()) => {
                self.recorder.succeeded(number, at);
                Ended::Done
            }
            Err(failure) => {
                self.recorder.failed(at);
                Ended::Failed(failure)
            }
        };
        let random = Random(self.random.draw());
        self.machine.ended(call, ended, now, random);
    }

    /// Verdicts become durable at once.
    fn settle(&mut self, now: Time) -> Result<bool, EngineError> {
        let Some(batch) = self.machine.batch() else { return Ok(false) };
        let len = batch.len();
        let ticket = self.engine.settle(batch)?;
        self.machine.submitted(ticket, len, now);
        self.engine.poll(&mut self.events)?;
        let mut parked = Vec::new();
        for ticket in self.events.drain(..).filter_map(Event::durable) {
            self.machine.durable(ticket, now, &mut parked);
        }
        for letter in parked {
            if let Some((_, number)) = seed::parse(letter.message.id()) {
                self.recorder.died(number, self.elapsed());
                self.open_letters.push_back(letter.number);
            }
        }
        Ok(len > 0)
    }

    /// Simulates people who close the oldest letters at their own rate.
    fn triage(&mut self, now: Time) -> Result<(), EngineError> {
        let Some(rate) = self.load.triage_per_second else { return Ok(()) };
        // Idle time does not accumulate.
        let mut ids = Vec::new();
        while self.triage_free_ms <= self.now_ms as f64 {
            match self.open_letters.pop_front() {
                Some(letter) => ids.push(letter),
                None => break,
            }
            self.triage_free_ms = self.triage_free_ms.max(self.now_ms as f64 - 1.0) + 1000.0 / rate;
        }
        if ids.is_empty() {
            return Ok(());
        }
        self.engine.change_letters(&LetterChange::Discard, &ids, now.into())?;
        self.triaged_ms.extend(ids.iter().map(|_| self.now_ms as u32));
        Ok(())
    }

    fn is_over(&self) -> bool {
        let all = self.load.messages();
        self.arrived == self.load.paced()
            && !self.burst_left
            && self.recorder.ended() >= all
            && self.running.is_empty()
            && self.load.triage_per_second.is_none()
    }

    /// The time of the next event.
    fn next_ms(&self) -> Option<u64> {
        let arrival = (self.arrived < self.load.paced()).then(|| self.load.arrives_ms(self.arrived));
        let burst = self.load.burst.filter(|_| self.burst_left).map(|burst| burst.at.as_millis() as u64);
        let end = self.running.peek().map(|Reverse((ends, ..))| *ends);
        let wake = self.machine.next_wake(self.engine.next_due());
        let wake = wake.map(|wake| wake.as_millis().saturating_sub(BEGINS_MS));
        let triage = (!self.open_letters.is_empty() && self.load.triage_per_second.is_some())
            .then(|| self.triage_free_ms.ceil() as u64);
        let all = [arrival, burst, end, wake, triage];
        all.into_iter().flatten().min().map(|next| next.max(self.now_ms + 1))
    }

    fn into_trace(mut self) -> Result<Trace, EngineError> {
        let found = self.found()?;
        let counts = self.engine.counts();
        let letters = counts.letters_open
            + counts.letters_replaying
            + counts.letters_succeeded
            + counts.letters_discarded;
        let engine = EngineCounts { accepted: counts.accepted, pending: counts.pending(), letters };
        let mut trace = Trace::new(self.load.clone(), &self.recorder, engine, &found, self.elapsed());
        trace.triaged_ms = self.triaged_ms;
        trace.breaker_opened = self.breaker_opened;
        trace.breaker_first_ms = self.breaker_first_ms;
        Ok(trace)
    }

    /// The numbers of the messages whose letters the engine holds.
    fn found(&mut self) -> Result<Vec<u64>, EngineError> {
        let (mut numbers, mut after) = (Vec::new(), None);
        loop {
            let page = self.engine.letters(None, after, PAGE)?;
            let Some(last) = page.last() else { return Ok(numbers) };
            after = Some(last.id);
            numbers.extend(page.iter().map(|letter| number_of(letter.message.id(), self.load.seed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive::{BreakerSettings, Policy};

    use super::super::load::{Fates, Outage};
    use super::super::stage::Silent;
    use super::*;
    use crate::fate::Rates;

    fn run_all(load: &Load, subject: &Subject) -> Trace {
        run(load, subject, Stage::of(&Silent, "test", 0, 1)).unwrap().expect("nobody interrupts")
    }

    fn policy() -> Policy {
        Policy::tiers(["1s", "2s", "4s"]).jitter("none").classify(false).outage_gate(false).build().unwrap()
    }

    fn load(seconds: u64) -> Load {
        let (arrive_for, follow) = (Duration::from_secs(seconds), Duration::from_mins(10));
        Load { fates: Fates::Rates(Rates::WORKLOAD), follow, ..Load::steady(42, 200.0, arrive_for) }
    }

    #[test]
    fn every_message_ends_as_its_fate_says_and_the_audit_balances() {
        let load = load(20);
        let trace = run_all(&load, &Subject::plain(policy(), 64));
        assert!(trace.audit.balances(), "{}", trace.audit);
        assert_eq!(trace.audit.pending, 0);
        for (number, record) in trace.arrived() {
            let is_poison = load.fate(number) == crate::fate::Fate::Poison;
            assert_eq!(record.is_dead(), is_poison, "{number}");
        }
    }

    #[test]
    fn without_jitter_poison_is_dead_after_exactly_the_sum_of_the_tiers() {
        let trace = run_all(&load(20), &Subject::plain(policy(), 64));
        let dead: Vec<u32> = trace
            .arrived()
            .filter(|(_, record)| record.is_dead())
            .map(|(_, record)| record.took_ms())
            .collect();
        assert!(!dead.is_empty() && dead.iter().all(|took| *took == 7_000), "{dead:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        let jittered = Policy::tiers(["1s", "2s", "4s"]).jitter("full").build().unwrap();
        let subject = Subject::plain(jittered, 64);
        let (one, other) = (run_all(&load(5), &subject), run_all(&load(5), &subject));
        assert_eq!(one.records, other.records);
    }

    #[test]
    fn in_an_outage_the_breaker_stops_the_calls() {
        let outage = Outage::refusing(Duration::from_secs(10), Duration::from_mins(1));
        let load = Load { fates: Fates::Rates(Rates::NONE), outage: Some(outage), ..load(80) };
        let off = run_all(&load, &Subject::plain(policy(), 64));
        let gated = Policy::tiers(["1s", "2s", "4s"]).build().unwrap();
        let on =
            run_all(&load, &Subject { breaker: BreakerSettings::default(), ..Subject::plain(gated, 64) });
        assert!(on.audit.balances() && on.audit.dead == 0, "{}", on.audit);
        assert!(on.breaker_opened > 0 && on.failed_calls() * 5 < off.failed_calls());
    }

    #[test]
    fn people_close_letters_no_faster_than_they_can() {
        let load = Load { triage_per_second: Some(1.0), follow: Duration::ZERO, ..load(60) };
        let trace = run_all(&load, &Subject::plain(policy(), 64));
        assert!((50..=60).contains(&trace.triaged_ms.len()), "{}", trace.triaged_ms.len());
        assert!(trace.audit.balances(), "{}", trace.audit);
    }
}
