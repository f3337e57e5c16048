//! Implements [`Deliver`] for the Kafka engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::internal::engine::ingest::Ingest;
use redrive::internal::engine::{
    Announced, Claimed, Deliver, Delivery, EngineError, Event, OwnShare, PendingAt, Receipt, ReminderKind,
    Settlement, TakeGate, Ticket,
};
use redrive::timestamp;
use redrive_core::Time;

use super::kafka::{KafkaEngine, LastCommit};
use crate::clock::wall_time;
use crate::consume::mailbox::Order;
use crate::group::control::Pause;

/// How long acknowledgements may take at the end.
const CLOSE_MAX: Duration = Duration::from_secs(30);
const CLOSE_STEP: Duration = Duration::from_millis(2);
/// How long to wait while partitions are held back: due messages do not start by time alone then.
const HELD_BACK_STEP: Duration = Duration::from_millis(20);

impl Deliver for KafkaEngine {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        self.hand_out(now, room, false, out);
        Ok(())
    }

    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        self.hand_out(now, room, true, out);
        Ok(())
    }

    fn announce(&mut self, next: &[Receipt], now: Time) -> Result<Announced, EngineError> {
        self.check()?;
        Ok(self.announce_alone(next, now))
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        self.check()?;
        Ok(self.settle_batch(batch))
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.report(out);
        self.check()
    }

    fn next_due(&self) -> Option<Time> {
        if self.gated || self.control.is_paused() || !self.ownership.is_ours() {
            return None;
        }
        let next = [self.backlog.next_due(), self.transit.next_due()].into_iter().flatten().min()?;
        let starts = !self.backlog.is_holding_back()
            && self.control.is_known()
            && !self.duplicates.is_reading()
            && !self.ownership.is_unsure()
            && self.unwritten.is_empty();
        if starts { Some(next) } else { Some(next.max(self.now.plus(HELD_BACK_STEP))) }
    }

    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError> {
        self.check()?;
        self.now = now;
        if !self.ownership.is_certain() || self.closed || self.duplicates.is_reading() {
            return Err(EngineError::Unavailable("the partitions are being assigned".to_owned()));
        }
        let claimed = self.backlog.claim(&mut self.lanes, at, now);
        Ok(claimed.map_or(Claimed::NotThere, |delivery| Claimed::Taken(Box::new(delivery))))
    }

    fn gate(&mut self, gate: TakeGate) {
        self.gated = gate.is_shut();
    }

    fn gate_all(&mut self, gate: TakeGate) -> Result<(), EngineError> {
        let pause = Pause { by: self.name.clone(), at: timestamp::print(wall_time()) };
        self.control.pause(gate.is_shut().then_some(&pause))?;
        self.gated = gate.is_shut();
        Ok(())
    }

    fn shared_gate(&self) -> Option<TakeGate> {
        Some(TakeGate::of_pause(self.control.is_paused()))
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        None
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.mailbox.on_wake(Arc::clone(&wake));
        self.letters.on_wake(wake);
    }

    fn keep_reminder(&mut self, kind: ReminderKind, content: &[u8]) -> Result<(), EngineError> {
        // Losing the file is harmless: the next process learns the same from its first calls.
        let file = reminder_file(self, kind);
        if let Err(error) = std::fs::write(&file, content) {
            tracing::warn!(file = %file.display(), %error, "cannot save state for the next process");
        }
        Ok(())
    }

    fn own_share(&self) -> Option<OwnShare> {
        let partitions = self.lanes.sources().map(|lane| lane.partition as u16).collect();
        Some(OwnShare { partitions, since: self.assigned_at })
    }

    fn reminder(&mut self, kind: ReminderKind) -> Result<Vec<u8>, EngineError> {
        Ok(std::fs::read(reminder_file(self, kind)).unwrap_or_default())
    }

    fn close(&mut self) -> Result<(), EngineError> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.settle_deferred();
        let until = Instant::now() + CLOSE_MAX;
        let safe = wait_for_copies(self, until);
        self.write_last_progress();
        let safe = wait_for_copies(self, until) && safe;
        let places = if self.ownership.is_released() { Vec::new() } else { self.last_commit() };
        self.mailbox.order(Order::Close { epoch: self.lanes.epoch(), places });
        self.poller.join();
        self.handle_notes();
        self.letters.close();
        if !safe {
            return Err(EngineError::Unavailable("some copies were not acknowledged in time".to_owned()));
        }
        let problem = match self.last_answer.take() {
            Some(LastCommit::Accepted) => {
                self.tickets.end();
                return self.check();
            }
            Some(LastCommit::Failed(problem)) => problem,
            None => "the polling thread has ended before it".to_owned(),
        };
        Err(EngineError::Unavailable(format!("the last commit failed: {problem}")))
    }
}

fn reminder_file(engine: &KafkaEngine, kind: ReminderKind) -> PathBuf {
    engine.state_dir.join(format!("{}.{}", engine.pipeline.name, kind.file_name()))
}

/// Waits until every copy is acknowledged. Returns whether that was in time.
fn wait_for_copies(engine: &mut KafkaEngine, until: Instant) -> bool {
    loop {
        engine.handle_notes();
        engine.copies.poll();
        engine.handle_written();
        if engine.copies.is_empty() {
            return true;
        }
        // A copy that cannot be written now is not waited for: its record is not committed.
        if engine.copies.is_stuck() || Instant::now() > until || engine.failed.is_some() {
            return false;
        }
        std::thread::sleep(CLOSE_STEP);
    }
}
