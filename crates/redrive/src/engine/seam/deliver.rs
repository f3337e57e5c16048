//! The part of an engine that delivers: it hands out messages and settles their outcomes.

use std::collections::HashSet;
use std::sync::Arc;

use redrive_core::Time;

use super::delivery::{Announced, Claimed, Delivery, Event, Receipt, Settlement, TakeGate, Ticket};
use crate::engine::error::EngineError;
use crate::engine::ingest::Ingest;
use crate::engine::pending::PendingAt;
use crate::engine::store_notice::StoreNotice;

/// What a reminder for the next process contains; each kind is stored separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReminderKind {
    /// The health of the sink and its endpoints, and unclean ends.
    Health,
    /// Which keys had a recent success.
    KeySuccesses,
}

impl ReminderKind {
    /// The file name, for engines that store it in a file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Health => "reminder",
            Self::KeySuccesses => "successes",
        }
    }
}

/// Source partitions whose messages are delivered here, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OwnShare {
    /// The partitions.
    pub partitions: HashSet<u16>,
    /// When they were assigned.
    pub since: Time,
}

/// Hands out deliveries and takes verdicts.
pub trait Deliver: Send + 'static {
    /// Hands out up to `room` deliveries that may start at `now`. If fresh and due messages are both waiting, each gets
    /// half of the room. Never blocks.
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError>;

    /// Like [`Deliver::take`], but for due messages only; fresh messages stay. An engine that cannot tell them apart
    /// hands out nothing.
    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        let _ = (now, room, out);
        Ok(())
    }

    /// Records that the first of these suspects is about to run alone, in a way that survives the death of the process:
    /// if the process dies before the suspect is settled, it has one more crash. The others run next; an engine may
    /// announce them together with the first, and if it cannot tell later which of them ran, they share that crash. An
    /// announcement ends the previous one. Never blocks. Engines without suspects do nothing.
    fn announce(&mut self, next: &[Receipt], now: Time) -> Result<Announced, EngineError> {
        let _ = (next, now);
        Ok(Announced::Yes)
    }

    /// Takes a batch of verdicts; it is durable once [`Event::Durable`] names its ticket. Never blocks.
    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError>;

    /// Reports what happened since the last call. Never blocks.
    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError>;

    /// The earliest time at which `take` hands out more without any other event; `None` if time changes nothing.
    fn next_due(&self) -> Option<Time>;

    /// Takes a waiting message out of its queue, whatever it waits for, even while the gate is shut. The caller settles
    /// the delivery without starting it: this is how a message is cancelled, or made due early. No later message of its
    /// key starts until it is settled.
    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError>;

    /// Shuts or opens the gate of this process: while it is shut, nothing is taken and nothing is rewritten.
    fn gate(&mut self, gate: TakeGate);

    /// Shuts or opens the gate of all processes that share the pipeline, for an operator who pauses or resumes it. On
    /// an error nothing has changed.
    fn gate_all(&mut self, gate: TakeGate) -> Result<(), EngineError> {
        self.gate(gate);
        Ok(())
    }

    /// The gate of all processes that share the pipeline; `None` if pauses are stored outside the engine.
    fn shared_gate(&self) -> Option<TakeGate> {
        None
    }

    /// Where new messages enter; `None` if they come from elsewhere (Kafka).
    fn ingest(&self) -> Option<Arc<dyn Ingest>>;

    /// Sets the function to be called, from any thread, whenever `poll` or `take` may have something new.
    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>);

    /// Stores a reminder for the next process, replacing the previous one of this kind. It survives the process, though
    /// perhaps not a power failure, and a crash while it is written may truncate it. Engines without a place for it
    /// drop it.
    fn keep_reminder(&mut self, kind: ReminderKind, content: &[u8]) -> Result<(), EngineError> {
        let _ = (kind, content);
        Ok(())
    }

    /// The last reminder of this kind; empty if there is none.
    fn reminder(&mut self, kind: ReminderKind) -> Result<Vec<u8>, EngineError> {
        let _ = kind;
        Ok(Vec::new())
    }

    /// What of the pipeline this process delivers; `None` where it delivers all of it.
    fn own_share(&self) -> Option<OwnShare> {
        None
    }

    /// What the store has to say about itself since the last call. Never blocks.
    fn notices(&mut self, out: &mut Vec<StoreNotice>) {
        let _ = out;
    }

    /// Makes everything settled so far durable and marks the end as clean.
    fn close(&mut self) -> Result<(), EngineError>;
}
