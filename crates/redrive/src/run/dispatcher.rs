//! The dispatch thread of one pipeline: owns the engine, drives the machine, sleeps when there is nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use redrive_core::Time;
use tokio::sync::watch;

use super::clock::Clock;
use super::command::{EngineSlot, MachineAccess};
use super::exchange::Exchange;
use super::exclusive::PipelineTurn;
use super::hooks::Hooks;
use super::last_runs::LastRuns;
use super::random_source::RandomSource;
use super::report::PipelineReport;
use super::shared_figures::SharedFigures;
use super::steer::DurableAnswers;
use super::wake::Wake;
use super::watch::Watch;
use super::watchdog::{Stuck, Watchdog};
use crate::dispatch::{AttemptFailed, Ended, HealthEntry, Machine, Parked, Start, Tally};
use crate::engine::{Announced, Delivery, Engine, EngineError, Event, ReminderKind, StoreNotice, TakeGate};
use crate::handler::ShareListener;

/// The longest sleep: a step of the wall clock is noticed within it.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// The shortest: what is due but may not start yet must not keep the thread spinning.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// How long calls may run without any news before the runtime is nudged.
const NUDGE_AFTER: Duration = Duration::from_millis(20);
/// Ends that are heard before the engine is served again.
const ENDS_PER_ROUND_MAX: usize = 4096;

const RUN: u8 = 0;
const DRAIN: u8 = 1;
const STOP: u8 = 2;

/// Asks a dispatch thread to come to an end.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    phase: AtomicU8,
}

impl Stop {
    /// Lets what runs finish, within the drain time.
    pub(crate) fn drain(&self, wake: &Wake) {
        self.phase.fetch_max(DRAIN, Ordering::SeqCst);
        wake.call();
    }

    /// Gives up what runs.
    pub(crate) fn now(&self, wake: &Wake) {
        self.phase.fetch_max(STOP, Ordering::SeqCst);
        wake.call();
    }
}

pub(crate) struct Dispatcher {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) machine: Machine,
    pub(crate) board: Arc<SharedFigures>,
    pub(crate) watch: Watch,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) hooks: Hooks,
    pub(crate) slot: Arc<EngineSlot>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) stop: Arc<Stop>,
    pub(crate) drain: Duration,
    pub(crate) cancel: watch::Sender<bool>,
    pub(crate) turn: PipelineTurn,
    pub(crate) watchdog: Watchdog,
    pub(crate) last_runs: LastRuns,
    pub(crate) name: Arc<str>,
    pub(crate) on_share: Option<ShareListener>,
    pub(crate) answers: DurableAnswers,
    /// The gate of all processes that share the pipeline, as far as this one has followed.
    pub(crate) group_gate: TakeGate,
    pub(crate) buffers: Buffers,
}

/// Reused from round to round.
#[derive(Debug)]
pub(crate) struct Buffers {
    random: RandomSource,
    events: Vec<Event>,
    deliveries: Vec<Delivery>,
    starts: Vec<Start>,
    parked: Vec<Parked>,
    failed: Vec<AttemptFailed>,
    health: Vec<HealthEntry>,
    notices: Vec<StoreNotice>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            random: RandomSource::from_entropy(),
            events: Vec::new(),
            deliveries: Vec::new(),
            starts: Vec::new(),
            parked: Vec::new(),
            failed: Vec::new(),
            health: Vec::new(),
            notices: Vec::new(),
        }
    }
}

impl Dispatcher {
    /// Runs until it is told to stop. Afterwards nothing is in flight and the engine is closed.
    pub(crate) fn run(mut self) -> Result<PipelineReport, EngineError> {
        let wake = Arc::clone(&self.wake);
        self.engine.on_wake(Arc::new(move || wake.call()));
        // Without a reminder the breaker finds out by itself; an engine that fails says so soon enough.
        let reminder = self.engine.reminder(ReminderKind::Health).unwrap_or_default();
        self.machine.remember(&reminder);
        let successes = self.engine.reminder(ReminderKind::KeySuccesses).unwrap_or_default();
        self.machine.begin_delivering(&successes, self.clock.now());
        self.last_runs = LastRuns::after(&reminder);
        if let Some(runs) = self.last_runs.unexplained().filter(|_| self.turn.is_first()) {
            self.machine.note_unclean_ends(runs, self.clock.now());
        }
        let ended = self.run_and_drain();
        // Whatever the reason for the end: handlers that still run are told, and no answer is awaited any more.
        let _ = self.cancel.send(true);
        self.turn.busy(false);
        self.turn.leave();
        self.board.close();
        self.slot.close();
        let (drained, interrupted) = ended?;
        self.last_runs.reminder(Some(self.machine.last_reminder(self.clock.now())));
        self.engine.keep_reminder(ReminderKind::Health, self.last_runs.reminder_at_end())?;
        let successes = self.machine.last_key_successes(self.clock.now());
        self.engine.keep_reminder(ReminderKind::KeySuccesses, &successes)?;
        self.engine.close()?;
        // The last figures say how it ended. An engine that is closed still has its counts.
        let _ = self.watch.publish_end(self.engine.as_mut(), &mut self.machine, self.clock.now());
        let Tally { succeeded, retried, dead, .. } = self.machine.tally();
        Ok(PipelineReport { succeeded, retried, dead, drained, interrupted })
    }

    fn run_and_drain(&mut self) -> Result<(u64, u64), EngineError> {
        while self.stop.phase.load(Ordering::SeqCst) == RUN {
            if !self.round()? {
                self.sleep(SLEEP_MAX.min(self.watch.patience()));
            }
        }
        self.machine.stop();
        self.take_back_starts();
        let running = self.machine.running() as u64;
        let patience_ends = Instant::now() + self.drain;
        while !(self.machine.is_at_rest() && self.hooks.flush()) {
            let patience = patience_ends.saturating_duration_since(Instant::now());
            if patience.is_zero() || self.stop.phase.load(Ordering::SeqCst) == STOP {
                break;
            }
            if !self.round()? {
                self.sleep(patience.min(SLEEP_MAX));
            }
        }
        let interrupted = self.machine.give_up() as u64;
        self.settle()?;
        Ok((running - interrupted, interrupted))
    }

    /// One round: hear, settle, take, start. Whether anything happened.
    fn round(&mut self) -> Result<bool, EngineError> {
        let stood_still = self.watch.round_begins();
        let now = self.clock.now();
        if let Some(span) = stood_still {
            self.machine.stood_still(span, now);
        }
        // Who asks after an answer must find what the answer was about: the engine is heard in between.
        let commands = self.slot.commands();
        let heard_engine = self.hear_engine()?;
        for command in commands {
            let running = MachineAccess { machine: &mut self.machine, answers: &mut self.answers };
            self.slot.carry_out(command, self.engine.as_mut(), Some(running), now);
            self.watch.happened();
        }
        self.follow_group();
        let heard_ends = self.hear_ends();
        let took = self.take()?;
        let settled = self.settle()?;
        self.look_after()?;
        let happened = heard_engine || heard_ends || took || settled;
        if happened {
            self.watch.happened();
        }
        self.watch.publish_if_due(self.engine.as_mut(), &mut self.machine, now)?;
        Ok(happened)
    }

    /// Does as others do who have paused or resumed the pipeline for all.
    fn follow_group(&mut self) {
        let Some(gate) = self.engine.shared_gate().filter(|gate| *gate != self.group_gate) else {
            return;
        };
        self.group_gate = gate;
        match gate {
            TakeGate::Shut => self.machine.gate(gate),
            TakeGate::Open => {
                self.engine.gate(gate);
                self.machine.resume(false);
            }
        }
        self.slot.follow(gate);
        self.watch.happened();
    }

    /// Tells of the sink's health, pauses what the guard wants paused, and looks for handlers that are stuck.
    fn look_after(&mut self) -> Result<(), EngineError> {
        if self.machine.is_halted() && !self.slot.is_paused() {
            self.slot.pause(self.engine.as_mut());
            self.machine.gate(TakeGate::Shut);
            self.watch.happened();
        }
        // A message that cannot start now holds up no other.
        if !self.machine.suspect_runs() && self.machine.suspect_turn().is_none() {
            self.turn.leave();
        }
        self.turn.busy(!self.machine.is_at_rest());
        if self.machine.has_met_suspects() {
            self.turn.suspects();
        }
        if self.turn.is_anybody_suspected() {
            self.last_runs.explained();
        }
        let health = self.machine.reminder(self.clock.now());
        if let Some(reminder) = self.last_runs.reminder(health) {
            self.engine.keep_reminder(ReminderKind::Health, &reminder)?;
        }
        if let Some(successes) = self.machine.unsaved_key_successes(self.clock.now()) {
            self.engine.keep_reminder(ReminderKind::KeySuccesses, &successes)?;
        }
        self.machine.health_changes(&mut self.buffers.health);
        self.hooks.tell_health(&mut self.buffers.health);
        self.engine.notices(&mut self.buffers.notices);
        self.hooks.tell_store(&mut self.buffers.notices);
        let now = Instant::now();
        if self.watchdog.is_due(now) {
            let longest = self.machine.longest_running();
            let message_id = longest.map(|(_, message)| message.id().to_owned());
            if let Some(after) = self.watchdog.look(longest.map(|(call, _)| call), now) {
                let (pipeline, message_id) = (Arc::clone(&self.name), message_id.unwrap_or_default());
                self.watchdog.tell(&Stuck { pipeline, message_id, after });
            }
        }
        Ok(())
    }

    fn hear_engine(&mut self) -> Result<bool, EngineError> {
        let now = self.clock.now();
        self.engine.poll(&mut self.buffers.events)?;
        let heard = !self.buffers.events.is_empty();
        for event in self.buffers.events.drain(..) {
            match event {
                Event::Durable(ticket) => {
                    self.watch.durable(ticket);
                    self.answers.durable(ticket);
                    self.machine.durable(ticket, now, &mut self.buffers.parked);
                }
                Event::DurableAlone(ticket) => {
                    self.watch.durable_alone(ticket);
                    self.machine.durable_alone(ticket, now, &mut self.buffers.parked);
                }
                Event::Share { owned, all } => {
                    self.machine.own(owned, all);
                    self.on_share.iter().for_each(|on_share| on_share(owned, all));
                }
            }
        }
        self.hooks.tell(&mut self.buffers.parked);
        Ok(heard)
    }

    fn hear_ends(&mut self) -> bool {
        let now = self.clock.now();
        let mut heard = false;
        for _ in 0..ENDS_PER_ROUND_MAX {
            let Some((call, ended)) = self.exchange.next_end() else { break };
            let random = self.buffers.random.draw();
            self.machine.ended(call, ended, now, random);
            heard = true;
        }
        self.machine.failed(&mut self.buffers.failed);
        self.hooks.tell_failed(&mut self.buffers.failed);
        heard
    }

    fn take(&mut self) -> Result<bool, EngineError> {
        if !self.hooks.flush() {
            return Ok(false);
        }
        let now = self.clock.now();
        self.machine.tick(now);
        if !self.turn.enter() {
            return Ok(false);
        }
        self.machine.restart_due(now, &mut self.buffers.starts);
        self.start_suspect(now)?;
        let restarted = !self.buffers.starts.is_empty();
        self.exchange.start(&mut self.buffers.starts);
        let room = self.machine.room_for_due();
        if room == 0 {
            return Ok(restarted);
        }
        match self.machine.room() {
            0 => self.engine.take_due(now, room, &mut self.buffers.deliveries)?,
            room => self.engine.take(now, room, &mut self.buffers.deliveries)?,
        }
        let took = !self.buffers.deliveries.is_empty();
        self.machine.taken(&mut self.buffers.deliveries, now, &mut self.buffers.starts);
        self.exchange.start(&mut self.buffers.starts);
        Ok(took || restarted)
    }

    /// Starts the suspect whose turn it is, once its start is recorded.
    fn start_suspect(&mut self, now: Time) -> Result<(), EngineError> {
        let Some(run) = self.machine.suspect_turn() else { return Ok(()) };
        if !self.turn.ask(run) {
            return Ok(());
        }
        match self.engine.announce(&self.machine.suspects_in_turn(), now)? {
            Announced::Yes => self.machine.start_suspect(now, &mut self.buffers.starts),
            Announced::NotYet => {}
            Announced::Gone => self.machine.drop_suspect(),
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<bool, EngineError> {
        let Some(batch) = self.machine.batch() else { return Ok(false) };
        let (len, retries) = (batch.len(), self.machine.batch_retries());
        self.watch.giving();
        let ticket = self.engine.settle(batch)?;
        self.watch.given(ticket, len, retries);
        self.answers.given(ticket);
        self.machine.submitted(ticket, len, self.clock.now());
        Ok(true)
    }

    /// What no runner has begun goes back.
    fn take_back_starts(&mut self) {
        let now = self.clock.now();
        while let Some(call) = self.exchange.take_back() {
            let random = self.buffers.random.draw();
            self.machine.ended(call, Ended::Unfinished, now, random);
        }
    }

    fn sleep(&mut self, longest: Duration) {
        let due = self.machine.next_wake(self.engine.next_due());
        if let Some(due) = due
            && self.machine.is_at_rest()
            && self.clock.idle_until(due)
        {
            return;
        }
        let calls_run = self.machine.running() > 0;
        let longest = if calls_run { longest.min(NUDGE_AFTER) } else { longest };
        let until_due = due.map_or(longest, |due| due.since(self.clock.now()).min(longest));
        let called = self.wake.sleep(until_due.max(SLEEP_MIN));
        if called {
            self.watch.happened();
        }
        if calls_run && !called {
            self.exchange.nudge();
        }
    }
}
