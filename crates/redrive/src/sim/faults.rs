//! Faults around the machine: late answers, crashes, restarts, clock steps, pauses.

use std::sync::Arc;

use redrive_core::Random;

use super::checkers::{self, Check};
use super::witness::{CallReply, State};
use super::world::{Step, World, storage};
use crate::dispatch::{Ended, Machine};
use crate::engine::{Deliver, Query, ReminderKind, TakeGate};

impl World {
    /// A handler that timed out answers after all. The machine settled it long ago and must ignore the answer.
    pub(super) fn late_answer(&mut self) -> Check {
        if self.late.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.late.len() as u64) as usize;
        let (call, seq) = self.late.swap_remove(at);
        self.note(Step::Late { seq });
        let running = self.machine.running();
        self.machine.ended(call, Ended::Done, self.now(), Random(0));
        checkers::effect_once_when_late(running, self.machine.running())
    }

    /// The process dies between two steps and restarts.
    pub(super) fn crash(&mut self) -> Check {
        self.note(Step::Crash);
        let before = self.machine.health(self.now());
        // A message whose outcome is not stored yet counts as running.
        if let Some(record) = self.alone.take().and_then(|seq| self.witness.records.get_mut(&seq))
            && record.state == State::InFlight
        {
            record.died_alone += 1;
        }
        self.lose_calls();
        self.engine.crash();
        self.witness.crashed();
        let plan = &self.plan;
        self.machine = Machine::protected(Arc::clone(&plan.policy), plan.concurrency, &plan.protection);
        self.machine.remember(&self.engine.reminder(ReminderKind::Health).map_err(storage)?);
        self.asked_until_ms = 0;
        checkers::open_over_a_restart(&before, &self.machine.health(self.now()))
    }

    /// An orderly end with running calls: they are released, and the next machine starts clean.
    pub(super) fn restart(&mut self) -> Check {
        self.note(Step::Restart);
        self.machine.stop();
        let now = self.now();
        for running in std::mem::take(&mut self.running) {
            let record = self.record(running.seq)?;
            if let Some(call) = &mut record.call {
                call.reply = Some((CallReply::Unfinished, now));
            }
            self.effect_of_lost(running.seq)?;
            // Some calls are taken back one by one; the others are abandoned together.
            if self.rng.chance(50) {
                self.machine.ended(running.call, Ended::Unfinished, now, Random(0));
            }
        }
        self.machine.give_up();
        self.give()?;
        self.poll()?;
        checkers::conservation_of_end(self.machine.is_at_rest(), self.engine.counts())?;
        self.engine.close().map_err(storage)?;
        self.late.clear();
        self.crash()
    }

    /// Handlers that run when the process dies may already have had their effect.
    fn lose_calls(&mut self) {
        for running in std::mem::take(&mut self.running) {
            let _ = self.effect_of_lost(running.seq);
        }
        self.late.clear();
    }

    fn effect_of_lost(&mut self, seq: u64) -> Check {
        let happened = self.rng.chance(50);
        let record = self.record(seq)?;
        let Some(call) = &mut record.call else { return Ok(()) };
        call.answer.applies &= happened;
        let (answer, id) = (call.answer, record.message.id().to_owned());
        if answer.applies {
            self.downstream.ended(&id, &answer);
        }
        Ok(())
    }

    pub(super) fn step_clock(&mut self) {
        let span = self.rng.pick(&[10_i64, 1_000, 30_000]);
        let ms = if self.rng.chance(50) { span } else { -span };
        self.skew_ms += ms;
        self.witness.clock_moved = true;
        // Waits that are measured by this clock may now end earlier or later.
        self.asked_until_ms = 0;
        self.note(Step::Clock { ms });
    }

    pub(super) fn pause(&mut self, closed: bool) {
        self.engine.gate(TakeGate::of_pause(closed));
        self.witness.gated = closed;
        self.note(Step::Pause { closed });
    }
}
