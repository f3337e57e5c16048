//! The part of an engine that delivers: it hands out messages and settles their outcomes.

use std::collections::HashSet;
use std::sync::Arc;

use redrive_core::Time;

use super::delivery::{Announced, Claimed, Delivery, Event, Receipt, Settlement, TakeGate, Ticket};
use crate::engine::error::EngineError;
use crate::engine::ingest::Ingest;
use crate::engine::pending::PendingAt;
use crate::engine::store_notice::StoreNotice;

/// What a reminder for the next process is about; each kind is kept by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReminderKind {
    /// The health of the sink and its endpoints, and unclean ends.
    Health,
    /// Which keys had a success lately.
    KeySuccesses,
}

impl ReminderKind {
    /// The name of its file, for engines that keep it in one.
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
    /// Hands out up to `room` deliveries that may start at `now`. When fresh and due messages both wait, they share the
    /// room half and half. Never blocks.
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError>;

    /// Like [`Deliver::take`], but only what is due: fresh messages stay where they are. An engine that cannot tell them
    /// apart hands out nothing.
    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        let _ = (now, room, out);
        Ok(())
    }

    /// Says durably, as far as a dying process is concerned, that the first of these suspects is about to run alone: if the
    /// process dies before it is settled, it has one crash more. The others have the next turns; an engine may announce
    /// them with it, and where it cannot tell later which of them ran, they share that crash. Never blocks; whoever was
    /// announced before has had its turn. Engines that know no suspects have nothing to do.
    fn announce(&mut self, next: &[Receipt], now: Time) -> Result<Announced, EngineError> {
        let _ = (next, now);
        Ok(Announced::Yes)
    }

    /// Takes a batch of verdicts; it is durable once [`Event::Durable`] names its ticket. Never blocks.
    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError>;

    /// Says what happened since the last call. Never blocks.
    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError>;

    /// The earliest moment at which time alone makes `take` hand out more; `None` if time changes nothing.
    fn next_due(&self) -> Option<Time>;

    /// Takes one message out of where it waits, whatever it waits for, also while the gate is shut. The caller settles
    /// the delivery and does not start it: this is how a message is cancelled, or made due if it waits for its time. No
    /// later message of its key starts until it is settled.
    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError>;

    /// Shuts or opens the gate of this process: while it is shut nothing is taken and nothing is rewritten.
    fn gate(&mut self, gate: TakeGate);

    /// Shuts or opens the gate of all processes that share the pipeline, for an operator who pauses or resumes it. An error
    /// means that nothing has changed.
    fn gate_all(&mut self, gate: TakeGate) -> Result<(), EngineError> {
        self.gate(gate);
        Ok(())
    }

    /// The gate of all processes that share the pipeline; `None` where a pause is kept outside of the engine.
    fn shared_gate(&self) -> Option<TakeGate> {
        None
    }

    /// Where new messages enter; `None` if the engine's source is elsewhere (Kafka).
    fn ingest(&self) -> Option<Arc<dyn Ingest>>;

    /// Calls `wake` whenever `poll` or `take` may have something new. Called from any thread.
    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>);

    /// Keeps a reminder for the next process, instead of the one of the same kind before. It outlives the process, though perhaps
    /// not a power cut, and a process that dies meanwhile may leave a part of it. Engines that have no place for it forget it.
    fn keep_reminder(&mut self, kind: ReminderKind, content: &[u8]) -> Result<(), EngineError> {
        let _ = (kind, content);
        Ok(())
    }

    /// The reminder of this kind that was kept last; empty if there is none.
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

    /// Makes everything given so far durable and marks the end as clean.
    fn close(&mut self) -> Result<(), EngineError>;
}
