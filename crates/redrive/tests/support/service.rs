//! A service behind a pipeline, on a virtual clock: the machine, the memory engine, and the results of the calls. A
//! call can kill the whole service, which breaks off all calls that are running there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::dispatch::{CallId, Ended, HealthEntry, Machine, Parked, ProtectionSettings, Start};
use redrive::internal::engine::{
    Announced, Deliver, Delivery, Event, Memory, NewMessage, Query, ReminderKind, StoreOptions,
};
use redrive::{Failure, Message, Policy, Reason, Time};
use redrive_core::{FailureKind, Random, SplitMix64};

pub(crate) const STARTED: Time = Time::from_millis(1_800_000_000_000);
/// The step of the clock.
pub(crate) const STEP: Duration = Duration::from_millis(5);

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Status(u16),
    /// The connection is refused.
    Refused,
    /// The connection breaks after the request was sent.
    Reset,
    /// `429` with this Retry-After.
    Busy(Duration),
    /// It becomes a letter with reason `gone` without a call.
    Uncalled,
    /// The service dies, and with it every running call; it is back after this long.
    Dies(Duration),
    /// The given answer, but only after this long.
    After(Duration, Box<Answer>),
}

/// One call, as the service sees it.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    /// The time since the start of the run.
    pub(crate) at: Duration,
}

struct Running {
    call: CallId,
    id: String,
    ends: Time,
    answer: Answer,
}

pub(crate) struct Service {
    pub(crate) engine: Memory,
    pub(crate) machine: Machine,
    pub(crate) now: Time,
    pub(crate) calls: Vec<Called>,
    pub(crate) parked: Vec<Parked>,
    pub(crate) log: Vec<HealthEntry>,
    /// The highest number of calls running at once.
    pub(crate) most_running: usize,
    latency: Duration,
    running: Vec<Running>,
    down_until: Time,
    deaths: u32,
    random: SplitMix64,
}

impl Service {
    pub(crate) fn new(policy: Policy, permits: usize, settings: &ProtectionSettings) -> Self {
        Self::of(Machine::protected(Arc::new(policy), permits, settings), StoreOptions::default())
    }

    pub(crate) fn of(machine: Machine, store: StoreOptions) -> Self {
        Self {
            engine: Memory::new(store),
            machine,
            now: STARTED,
            calls: Vec::new(),
            parked: Vec::new(),
            log: Vec::new(),
            most_running: 0,
            latency: Duration::from_millis(10),
            running: Vec::new(),
            down_until: Time::ZERO,
            deaths: 0,
            random: SplitMix64::new(1),
        }
    }

    #[must_use]
    pub(crate) fn with_latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    #[must_use]
    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        self.random = SplitMix64::new(seed);
        self
    }

    pub(crate) fn ingest(&self, ids: impl IntoIterator<Item = String>) {
        let message = |id: String| Message::builder(id).created(self.now).build().unwrap();
        self.ingest_messages(ids.into_iter().map(message));
    }

    pub(crate) fn ingest_messages(&self, messages: impl IntoIterator<Item = Message>) {
        let batch: Vec<NewMessage> = messages.into_iter().map(Into::into).collect();
        drop(self.engine.ingest().unwrap().submit(batch, self.now));
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.random.draw()
    }

    pub(crate) fn since_start(&self) -> Duration {
        self.now.since(STARTED)
    }

    /// Runs for `span`. `answer` determines the results of calls and is not asked while the service is down.
    pub(crate) fn run(&mut self, span: Duration, mut answer: impl FnMut(&Called, u64) -> Answer) {
        let until = self.now.plus(span);
        while self.now < until {
            let is_quiet = self.round(&mut answer);
            let next = if is_quiet { self.next_event().min(until) } else { self.now };
            self.now = next.max(self.now.plus(STEP));
        }
    }

    /// When the next event happens if nothing is ingested. The machine is ticked every second, as its thread
    /// does.
    fn next_event(&self) -> Time {
        let ends = self.running.iter().map(|call| call.ends);
        let due = self.machine.next_wake(self.engine.next_due());
        ends.chain(due).fold(self.now.plus(Duration::from_secs(1)), Time::min)
    }

    /// One round, as the dispatch thread makes it. Returns whether nothing happened.
    pub(crate) fn round(&mut self, answer: &mut impl FnMut(&Called, u64) -> Answer) -> bool {
        let ended = self.end_calls();
        let now = self.now;
        let mut events = Vec::new();
        self.engine.poll(&mut events).unwrap();
        for ticket in events.into_iter().filter_map(Event::durable) {
            self.machine.durable(ticket, now, &mut self.parked);
        }
        self.machine.tick(now);
        let (mut starts, mut deliveries): (Vec<Start>, Vec<Delivery>) = (Vec::new(), Vec::new());
        self.machine.restart_due(now, &mut starts);
        if self.machine.suspect_turn().is_some() {
            let in_turn = self.machine.suspects_in_turn();
            if self.engine.announce(&in_turn, now).unwrap() == Announced::Yes {
                self.machine.start_suspect(now, &mut starts);
            }
        }
        match self.machine.room() {
            0 => self.engine.take_due(now, self.machine.room_for_due(), &mut deliveries).unwrap(),
            room => self.engine.take(now, room, &mut deliveries).unwrap(),
        }
        let is_quiet = ended == 0 && deliveries.is_empty() && starts.is_empty();
        self.machine.taken(&mut deliveries, now, &mut starts);
        for start in starts {
            self.begin(&start, answer);
        }
        self.most_running = self.most_running.max(self.running.len());
        let mut settled = 0;
        if let Some(batch) = self.machine.batch() {
            settled = batch.len();
            let ticket = self.engine.settle(batch).unwrap();
            self.machine.submitted(ticket, settled, now);
        }
        if let Some(reminder) = self.machine.reminder(now) {
            self.engine.keep_reminder(ReminderKind::Health, &reminder).unwrap();
        }
        self.machine.health_changes(&mut self.log);
        is_quiet && settled == 0
    }

    /// The process is killed, with no call running, and another one takes over.
    pub(crate) fn restart(&mut self, machine: Machine) {
        assert!(self.running.is_empty(), "calls are under way");
        self.engine.crash();
        self.machine = machine;
        self.machine.remember(&self.engine.reminder(ReminderKind::Health).unwrap());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    fn begin(&mut self, start: &Start, answer: &mut impl FnMut(&Called, u64) -> Answer) {
        let id = start.message.id().to_owned();
        let called = Called { id: id.clone(), attempt: start.attempt, at: self.since_start() };
        let draw = self.draw();
        let is_down = self.now < self.down_until;
        let answer = if is_down { Answer::Refused } else { answer(&called, draw) };
        let (took, answer) = match answer {
            Answer::Refused => (Duration::ZERO, Answer::Refused),
            Answer::After(took, answer) => (took, *answer),
            answer => (self.latency, answer),
        };
        self.calls.push(called);
        self.running.push(Running { call: start.call, id, ends: self.now.plus(took), answer });
    }

    fn end_calls(&mut self) -> usize {
        let now = self.now;
        let mut ended: Vec<_> = self.running.extract_if(.., |call| call.ends <= now).collect();
        let dies = ended.iter().find_map(|call| match call.answer {
            Answer::Dies(back_in) => Some((call.id.clone(), back_in)),
            _ => None,
        });
        if let Some((_, back_in)) = dies {
            self.deaths += 1;
            self.down_until = now.plus(back_in);
            ended.extend(self.running.drain(..).map(|call| Running { answer: Answer::Reset, ..call }));
            // In random order.
            let turn = self.draw() as usize % ended.len();
            ended.rotate_left(turn);
        }
        let all = ended.len();
        for Running { call, answer, .. } in ended {
            let answer = if dies.is_some() && answer == Answer::Done { Answer::Reset } else { answer };
            let random = Random(self.draw());
            self.machine.ended(call, end_of(&answer), now, random);
        }
        all
    }

    pub(crate) fn deaths(&self) -> u32 {
        self.deaths
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn ended(&self) -> u64 {
        let tally = self.machine.tally();
        tally.succeeded + tally.dead
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_done(&self) -> bool {
        self.engine.counts().pending() == 0
    }

    pub(crate) fn calls_for(&self, id: &str) -> Vec<&Called> {
        self.calls.iter().filter(|called| called.id == id).collect()
    }

    pub(crate) fn reasons(&self) -> BTreeMap<Reason, usize> {
        self.parked.iter().fold(BTreeMap::new(), |mut reasons, parked| {
            *reasons.entry(parked.reason).or_default() += 1;
            reasons
        })
    }

    pub(crate) fn log_lines(&self) -> Vec<String> {
        self.log.iter().map(|entry| entry.change.to_string()).collect()
    }
}

fn end_of(answer: &Answer) -> Ended {
    let failed = match *answer {
        Answer::Done => return Ended::Done,
        Answer::Status(status) if (400..500).contains(&status) => Failure::permanent(status.to_string()),
        Answer::Status(status) => Failure::transient(status.to_string()).of_kind(FailureKind::Status(status)),
        Answer::Refused => Failure::transient("connection refused").of_kind(FailureKind::Refused),
        Answer::Reset | Answer::Dies(_) | Answer::After(..) => {
            Failure::transient("connection reset").of_kind(FailureKind::Reset).ambiguous()
        }
        Answer::Uncalled => Failure::gone("purged").uncalled(),
        Answer::Busy(wait) => Failure::rate_limited(wait, "429").of_kind(FailureKind::Status(429)),
    };
    Ended::Failed(failed)
}
