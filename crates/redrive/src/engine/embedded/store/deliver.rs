//! The delivering part of the store.

use std::sync::Arc;

use redrive_core::Time;

use super::maintain::Maintenance;
use super::store::{Room, Store};
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::ingest::Ingest;
use crate::engine::pending::PendingAt;
use crate::engine::seam::{
    Announced, Claimed, Deliver, Delivery, EngineError, Event, Receipt, ReminderKind, Settlement, TakeGate,
    Ticket,
};
use crate::engine::store_notice::StoreNotice;

impl<D: Disk, S: IndexTables> Deliver for Store<D, S> {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        let taken = self.hand_out(now, Room::All(room), out);
        self.guard(taken)
    }

    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        let taken = self.hand_out(now, Room::Due(room), out);
        self.guard(taken)
    }

    fn announce(&mut self, next: &[Receipt], _now: Time) -> Result<Announced, EngineError> {
        self.check()?;
        let announced = self.marks.announce(next);
        self.guard(announced)
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        self.check()?;
        let noted = self.marks.returned(&batch, &self.waiting.in_flight, &self.tickets);
        self.guard(noted)?;
        let given = self.give(batch);
        self.guard(given)
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.keep_going()?;
        self.marks.forget_ended(&self.tickets)?;
        out.extend(self.tickets.report().map(Event::Durable));
        Ok(())
    }

    fn next_due(&self) -> Option<Time> {
        if self.gated { None } else { self.waiting.book.delay().next_due() }
    }

    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError> {
        self.check()?;
        self.now = now;
        let claimed = self.waiting.claim(at, &mut self.marks, now);
        self.guard(claimed)
    }

    fn gate(&mut self, gate: TakeGate) {
        self.gated = gate.is_shut();
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        Some(Arc::new(self.workers.ingest()))
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.workers.set_wake(wake);
    }

    fn keep_reminder(&mut self, kind: ReminderKind, content: &[u8]) -> Result<(), EngineError> {
        self.check()?;
        let kept = self.reminders.keep(kind, content).map_err(|error| reminding(&error));
        self.guard(kept)
    }

    fn reminder(&mut self, kind: ReminderKind) -> Result<Vec<u8>, EngineError> {
        self.reminders.read(kind).map_err(|error| reminding(&error))
    }

    fn notices(&mut self, out: &mut Vec<StoreNotice>) {
        self.waiting.book.tables().take_notices(out);
        self.scrubbed.take_notices(out);
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.wait_for(self.tickets.last())?;
        // A last checkpoint speeds up the next start.
        while self.maintenance.is_checkpointing() {
            self.wait_for_notes()?;
            self.apply_notes()?;
        }
        self.with_maintenance(|maintenance, parts| maintenance.checkpoint(parts, true));
        while self.maintenance.is_checkpointing() {
            self.apply_notes()?;
            if self.maintenance.is_checkpointing() {
                self.wait_for_notes()?;
            }
        }
        self.with_maintenance(Maintenance::tell_holding);
        self.marks.clear().map_err(|error| EngineError::Storage(error.to_string()))?;
        self.finish();
        self.apply_notes()
    }
}

fn reminding(error: &std::io::Error) -> EngineError {
    EngineError::Storage(format!("keeping a reminder: {error}"))
}
