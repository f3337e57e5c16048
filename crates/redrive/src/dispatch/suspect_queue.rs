//! Deliveries that may have crashed the process, waiting without a permit to run alone. The next one starts once the
//! outcome of the previous one was given to the engine, or, after an exclusive run, once that outcome is stored.

use redrive_core::suspects::{Run, Suspects};
use redrive_core::{Time, expired};

use crate::engine::{Delivery, Receipt, Ticket};

/// Suspects that are announced together. If the process dies and it is unknown which of them was running, each of
/// them gets its last run exclusively, one after the other.
const ANNOUNCED_MAX: usize = 8;

/// The outcome of the last suspect, on its way into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum SuspectEnd {
    #[default]
    None,
    /// Its verdict is in the batch.
    InBatch {
        cleared: bool,
    },
    Given {
        ticket: Ticket,
        cleared: bool,
    },
}

/// A suspect whose turn it is.
#[derive(Debug)]
pub(super) struct SuspectStart {
    pub(super) delivery: Delivery,
    pub(super) crashes: u32,
    /// Whether nothing else may run meanwhile.
    pub(super) exclusive: bool,
    /// Suspects still waiting.
    pub(super) left: usize,
}

#[derive(Debug)]
pub(super) struct SuspectQueue {
    suspects: Suspects<Delivery>,
    end: SuspectEnd,
    /// Suspects added since the last call of `take_new`.
    new: usize,
    has_met_any: bool,
}

impl SuspectQueue {
    /// `threshold`: a message is quarantined after this many crashes.
    pub(super) fn new(threshold: u32) -> Self {
        Self { suspects: Suspects::new(threshold), end: SuspectEnd::None, new: 0, has_met_any: false }
    }

    /// A suspect was taken; if it is quarantined at once, it is not queued.
    pub(super) fn met(&mut self) {
        self.has_met_any = true;
    }

    pub(super) fn has_met_any(&self) -> bool {
        self.has_met_any
    }

    pub(super) fn push(&mut self, delivery: Delivery, crashes: u32) {
        self.suspects.suspect(delivery, crashes);
        self.new += 1;
    }

    /// How many were added since the last call.
    pub(super) fn take_new(&mut self) -> usize {
        std::mem::take(&mut self.new)
    }

    /// Removes the next suspect if its deadline has passed.
    pub(super) fn pop_expired(&mut self, now: Time) -> Option<Delivery> {
        self.suspects.take_next_if(|next| expired(&next.meta, now))
    }

    /// Removes the suspect whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Delivery> {
        self.suspects.take_next_if(|_| true)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Delivery> {
        self.suspects.take_if(|delivery| delivery.receipt.number() == number)
    }

    pub(super) fn take_all(&mut self) -> Vec<Delivery> {
        self.suspects.take_all().collect()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Delivery> {
        self.suspects.waiting()
    }

    /// How the next suspect would run.
    pub(super) fn turn(&self) -> Option<Run> {
        self.suspects.turn()
    }

    /// The suspect whose turn it is, and those that may be announced together with it.
    pub(super) fn in_turn(&self) -> Vec<Receipt> {
        self.suspects.in_turn(ANNOUNCED_MAX).map(|delivery| delivery.receipt).collect()
    }

    /// Whether an exclusive run is going on or is next, so that nothing else may start.
    pub(super) fn wants_exclusive(&self) -> bool {
        self.suspects.wants_exclusive()
    }

    /// Whether a suspect is running, or ran and its turn is not over.
    pub(super) fn is_running(&self) -> bool {
        self.suspects.is_running()
    }

    /// The number of suspects, including the running one.
    pub(super) fn len(&self) -> usize {
        self.suspects.len()
    }

    pub(super) fn start(&mut self) -> Option<SuspectStart> {
        let exclusive = self.suspects.turn() == Some(Run::Exclusive);
        let (delivery, crashes) = self.suspects.start()?;
        Some(SuspectStart { delivery, crashes, exclusive, left: self.suspects.len() - 1 })
    }

    /// The verdict of the suspect that ran is in the batch.
    pub(super) fn ended(&mut self, cleared: bool) {
        self.end = SuspectEnd::InBatch { cleared };
    }

    /// The batch was given to the engine. Returns how many were cleared if that ended the last suspect's turn. An
    /// exclusive run lasts until its outcome is stored: until then the suspect would be blamed for a crash caused by
    /// another message.
    pub(super) fn submitted(&mut self, ticket: Ticket) -> Option<u64> {
        let SuspectEnd::InBatch { cleared } = self.end else { return None };
        if self.suspects.wants_exclusive() {
            self.end = SuspectEnd::Given { ticket, cleared };
            return None;
        }
        self.end_turn(cleared)
    }

    /// The batch given to the engine is stored. Returns how many were cleared if that ended the last suspect's turn.
    pub(super) fn durable(&mut self, is_stored: impl Fn(Ticket) -> bool) -> Option<u64> {
        match self.end {
            SuspectEnd::Given { ticket, cleared } if is_stored(ticket) => self.end_turn(cleared),
            _ => None,
        }
    }

    fn end_turn(&mut self, cleared: bool) -> Option<u64> {
        self.end = SuspectEnd::None;
        self.suspects.ended(cleared);
        self.suspects.is_empty().then(|| self.suspects.cleared())
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::{Message, Meta};

    use super::*;
    use crate::engine::History;

    fn queue(crashes: &[u32]) -> SuspectQueue {
        let mut queue = SuspectQueue::new(3);
        for (seq, crashes) in (1..).zip(crashes) {
            let delivery = Delivery {
                receipt: Receipt { lane: 0, epoch: 0, seq, at: 0 },
                message: Message::builder("m").build().unwrap(),
                meta: Meta::default(),
                history: History::default(),
                due: None,
                arrived: None,
                origin: None,
                doomed: None,
                suspect: None,
            };
            queue.push(delivery, *crashes);
        }
        queue
    }

    #[test]
    fn the_next_one_starts_once_the_end_of_the_one_before_was_submitted() {
        let mut queue = queue(&[1, 1]);
        assert_eq!((queue.take_new(), queue.take_new()), (2, 0));
        let first = queue.start().unwrap();
        assert_eq!((first.crashes, first.exclusive, first.left), (1, false, 1));
        assert!(queue.is_running() && queue.turn().is_none());
        queue.ended(true);
        assert!(queue.turn().is_none(), "its verdict is only in the batch");
        assert_eq!(queue.submitted(Ticket(1)), None, "one is left");
        assert_eq!(queue.turn(), Some(Run::Alone));
        queue.start().unwrap();
        queue.ended(true);
        assert_eq!(queue.submitted(Ticket(2)), Some(2), "all were cleared");
    }

    #[test]
    fn an_exclusive_run_lasts_until_the_end_is_stored() {
        let mut queue = queue(&[2]);
        assert_eq!(queue.turn(), Some(Run::Exclusive));
        assert!(queue.start().is_some_and(|start| start.exclusive) && queue.wants_exclusive());
        queue.ended(true);
        assert_eq!(queue.submitted(Ticket(7)), None);
        assert_eq!(queue.durable(|ticket| ticket <= Ticket(6)), None);
        assert!(queue.wants_exclusive());
        assert_eq!(queue.durable(|ticket| ticket <= Ticket(7)), Some(1));
        assert!(!queue.wants_exclusive() && queue.len() == 0);
    }
}
