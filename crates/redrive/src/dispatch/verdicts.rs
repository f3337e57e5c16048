//! Verdicts on their way into the store: collected into a batch, given to the engine under a ticket, and finally
//! durable.

use std::collections::VecDeque;

use redrive_core::{Message, Meta, Reason, Time};

use crate::engine::{Settlement, Ticket, Verdict, letter};
use crate::failure::Failure;

/// A message that has become a dead letter, durably, with the failure that the handler returned.
#[derive(Debug)]
pub struct Parked {
    /// The number of the letter.
    pub number: u64,
    pub message: Message,
    pub reason: Reason,
    pub meta: Meta,
    /// Set for poison pills only.
    pub first_crash: Option<Time>,
    pub failure: Option<Failure>,
}

#[derive(Debug, Default)]
pub(super) struct Verdicts {
    batch: Vec<Settlement>,
    /// The dead letters in the batch.
    parked: Vec<Parked>,
    /// Retries in the batch.
    retries: usize,
    submitted: VecDeque<Submitted>,
    /// Verdicts that are not durable yet, in the batch or submitted.
    unsettled: usize,
}

#[derive(Debug)]
struct Submitted {
    ticket: Ticket,
    len: usize,
    parked: Vec<Parked>,
}

/// When a poison pill first crashed its process or receiver, according to the attempts of its letter.
fn first_crash(settlement: &Settlement, reason: Reason, meta: &Meta) -> Option<Time> {
    if reason != Reason::PoisonPill {
        return None;
    }
    let mut attempts = settlement.delivery.history.attempts();
    attempts.extend(settlement.attempt.clone());
    letter::first_crash(meta, &attempts)
}

impl Verdicts {
    pub(super) fn push(&mut self, settlement: Settlement, failure: Option<Failure>) {
        match settlement.verdict {
            Verdict::Done | Verdict::Release => {}
            Verdict::Retry { .. } => self.retries += 1,
            Verdict::Dead { reason, meta, .. } => {
                let number = settlement.delivery.receipt.number();
                let message = settlement.delivery.message.clone();
                let first_crash = first_crash(&settlement, reason, &meta);
                self.parked.push(Parked { number, message, reason, meta, first_crash, failure });
            }
        }
        self.unsettled += 1;
        self.batch.push(settlement);
    }

    /// Like [`Self::push`], without a report.
    pub(super) fn push_silently(&mut self, settlement: Settlement) {
        self.unsettled += 1;
        self.batch.push(settlement);
    }

    /// The verdicts that are ready to be stored, if there are any.
    pub(super) fn take_batch(&mut self) -> Option<Vec<Settlement>> {
        if self.batch.is_empty() {
            return None;
        }
        // Assume that the next batch is as large.
        let next = Vec::with_capacity(self.batch.len());
        Some(std::mem::replace(&mut self.batch, next))
    }

    pub(super) fn retries(&self) -> usize {
        self.retries
    }

    /// How many verdicts are not durable yet.
    pub(super) fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// The last batch taken was given to the engine.
    pub(super) fn submitted(&mut self, ticket: Ticket, len: usize) {
        self.retries = 0;
        let parked = std::mem::take(&mut self.parked);
        self.submitted.push_back(Submitted { ticket, len, parked });
    }

    /// The batch of `ticket` and all before it are stored.
    pub(super) fn durable(&mut self, ticket: Ticket, parked: &mut Vec<Parked>) {
        while let Some(mut first) = self.submitted.pop_front_if(|first| first.ticket <= ticket) {
            self.unsettled -= first.len;
            parked.append(&mut first.parked);
        }
    }

    /// The batch of `ticket` is stored, although an earlier one cannot be for now.
    pub(super) fn durable_alone(&mut self, ticket: Ticket, parked: &mut Vec<Parked>) {
        let at = self.submitted.iter().position(|submitted| submitted.ticket == ticket);
        if let Some(mut stored) = at.and_then(|at| self.submitted.remove(at)) {
            self.unsettled -= stored.len;
            parked.append(&mut stored.parked);
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;

    use super::*;
    use crate::engine::{Delivery, History, Receipt};
    use crate::settle;

    fn delivery(seq: u64) -> Delivery {
        Delivery {
            receipt: Receipt { lane: 0, epoch: 0, seq, at: 0 },
            message: Message::builder("m").build().unwrap(),
            meta: Meta::default(),
            history: History::default(),
            due: None,
            arrived: None,
            origin: None,
            doomed: None,
            suspect: None,
        }
    }

    fn submit(verdicts: &mut Verdicts, seq: u64) {
        verdicts.push(settle::dead(delivery(seq), Reason::MaxRetries, Time::ZERO), None);
        let len = verdicts.take_batch().map_or(0, |batch| batch.len());
        verdicts.submitted(Ticket(seq), len);
    }

    #[test]
    fn a_dead_letter_is_reported_once_its_batch_is_durable() {
        let mut verdicts = Verdicts::default();
        assert!(verdicts.take_batch().is_none());
        submit(&mut verdicts, 1);
        submit(&mut verdicts, 2);
        let mut parked = Vec::new();
        verdicts.durable(Ticket(1), &mut parked);
        assert_eq!(parked.iter().map(|letter| letter.number).collect::<Vec<_>>(), [1]);
        assert_eq!(verdicts.unsettled(), 1);
    }

    #[test]
    fn a_batch_can_become_durable_before_an_earlier_one() {
        let mut verdicts = Verdicts::default();
        (1..=3).for_each(|seq| submit(&mut verdicts, seq));
        let mut parked = Vec::new();
        verdicts.durable_alone(Ticket(2), &mut parked);
        verdicts.durable_alone(Ticket(2), &mut parked);
        assert_eq!((parked.len(), verdicts.unsettled()), (1, 2));
        verdicts.durable(Ticket(3), &mut parked);
        assert_eq!((parked.len(), verdicts.unsettled()), (3, 0));
    }

    #[test]
    fn retries_are_counted_until_the_batch_is_submitted() {
        let mut verdicts = Verdicts::default();
        verdicts.push(settle::put_off(delivery(1), Time::ZERO), None);
        verdicts.push(settle::released(delivery(2)), None);
        assert_eq!((verdicts.retries(), verdicts.unsettled()), (1, 2));
        let len = verdicts.take_batch().map_or(0, |batch| batch.len());
        verdicts.submitted(Ticket(1), len);
        assert_eq!((verdicts.retries(), verdicts.unsettled()), (0, 2));
    }
}
