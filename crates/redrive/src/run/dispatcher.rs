//! The dispatch thread of one pipeline: owns the engine, drives the machine, and sleeps when there is nothing to do.

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

/// Longest sleep, so that a step of the wall clock is noticed in time.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Shortest sleep, so that work that is due but cannot start yet does not make the thread spin.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// How long calls may run without any event before the runtime is nudged.
const NUDGE_AFTER: Duration = Duration::from_millis(20);
/// Ended calls that are processed before the engine is served again.
const ENDS_PER_ROUND_MAX: usize = 4096;

const RUN: u8 = 0;
const DRAIN: u8 = 1;
const STOP: u8 = 2;

/// Asks a dispatch thread to end.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    phase: AtomicU8,
}

impl Stop {
    /// Lets running calls finish, within the drain time.
    pub(crate) fn drain(&self, wake: &Wake) {
        self.phase.fetch_max(DRAIN, Ordering::SeqCst);
        wake.call();
    }

    /// Abandons running calls.
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
    /// The take gate of the group, as far as this process has followed it.
    pub(crate) group_gate: TakeGate,
    pub(crate) buffers: Buffers,
}

/// Buffers that are reused in each round.
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
    /// Runs until it is stopped. Afterwards nothing is in flight and the engine is closed.
    pub(crate) fn run(mut self) -> Result<PipelineReport, EngineError> {
        let wake = Arc::clone(&self.wake);
        self.engine.on_wake(Arc::new(move || wake.call()));
        // Without saved state the breaker has to learn anew. If the engine has failed, it will report that soon.
        let reminder = self.engine.reminder(ReminderKind::Health).unwrap_or_default();
        self.machine.remember(&reminder);
        let successes = self.engine.reminder(ReminderKind::KeySuccesses).unwrap_or_default();
        self.machine.begin_delivering(&successes, self.clock.now());
        self.last_runs = LastRuns::after(&reminder);
        if let Some(runs) = self.last_runs.unexplained().filter(|_| self.turn.is_first()) {
            self.machine.note_unclean_ends(runs, self.clock.now());
        }
        let ended = self.run_and_drain();
        // Whatever the reason for the end: cancel running handlers, and wait for no answers any more.
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
        // The last figures show how it ended. A closed engine still has its counts.
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

    /// Runs one round: process events, settle, take, start. Returns whether anything happened.
    fn round(&mut self) -> Result<bool, EngineError> {
        let stood_still = self.watch.round_begins();
        let now = self.clock.now();
        if let Some(span) = stood_still {
            self.machine.stood_still(span, now);
        }
        // A caller that follows up on an answer must see the state it was about, so poll the engine between fetching
        // the commands and carrying them out.
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

    /// Follows other processes that have paused or resumed the pipeline for all.
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

    /// Reports health changes, pauses the pipeline if the guard wants that, and looks for stuck handlers.
    fn look_after(&mut self) -> Result<(), EngineError> {
        if self.machine.is_halted() && !self.slot.is_paused() {
            self.slot.pause(self.engine.as_mut());
            self.machine.gate(TakeGate::Shut);
            self.watch.happened();
        }
        // A suspect that cannot start now must not hold up others.
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

    /// Takes back calls that no runner has begun.
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
