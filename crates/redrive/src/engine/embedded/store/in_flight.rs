//! Deliveries in flight: their previous state, the receipt that settles them, and those that came back unstarted.

use std::collections::{BTreeSet, VecDeque};

use redrive_core::Time;

use crate::engine::embedded::index::tables::Pointer;
use crate::engine::embedded::journal::record::Was;
use crate::engine::numbers::NumberMap;
use crate::engine::seam::{Delivery, Receipt, Verdict};

/// A delivery in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) was: Was,
    /// The hash of its key, if keys are ordered.
    pub(crate) key: Option<u64>,
    pub(crate) pointer: Pointer,
    /// The receipt number that settles it; those of earlier hand-outs do not.
    receipt: u64,
    /// Whether it is in the line of its key.
    pub(crate) in_line: bool,
    /// Whether it was claimed and is not started.
    pub(crate) claimed: bool,
    /// Where its verdict puts it, once there is one.
    pub(crate) goes: Option<Goes>,
}

impl Held {
    /// Creates the entry of a message that is about to be started.
    pub(crate) fn started(was: Was, key: Option<u64>, pointer: Pointer) -> Self {
        Self { was, key, pointer, receipt: 0, in_line: true, claimed: false, goes: None }
    }

    /// Creates the entry of a claimed message.
    pub(crate) fn claimed(was: Was, key: Option<u64>, pointer: Pointer, in_line: bool) -> Self {
        Self { in_line, claimed: true, ..Self::started(was, key, pointer) }
    }
}

/// Where a verdict puts a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    /// It is terminal.
    Out,
    Waits {
        deferred: bool,
    },
}

impl Goes {
    pub(crate) fn of(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::Done | Verdict::Dead { .. } => Some(Self::Out),
            Verdict::Retry { meta, .. } => Some(Self::Waits { deferred: meta.deferred }),
            Verdict::Release => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct InFlight {
    held: NumberMap<u64, Held>,
    /// Deliveries that came back unstarted. They still count as handed out.
    returned: VecDeque<Delivery>,
    /// Ready messages claimed before their turn; they are skipped when it comes.
    claimed: BTreeSet<u64>,
    /// The number of hand-outs so far, for the receipts.
    hand_outs: u64,
    /// Identifies this opening of the store; receipts of another one settle nothing.
    epoch: u32,
}

impl InFlight {
    pub(crate) fn new(epoch: u32) -> Self {
        Self {
            held: NumberMap::default(),
            returned: VecDeque::new(),
            claimed: BTreeSet::new(),
            hand_outs: 0,
            epoch,
        }
    }

    /// Records a hand-out. Returns the receipt that settles it.
    pub(crate) fn hand_out(&mut self, seq: u64, held: Held) -> Receipt {
        let receipt = self.receipt(seq);
        self.held.insert(seq, Held { receipt: receipt.at, ..held });
        receipt
    }

    fn receipt(&mut self, seq: u64) -> Receipt {
        self.hand_outs += 1;
        Receipt { lane: 0, epoch: self.epoch, seq, at: self.hand_outs }
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Held> {
        self.held.get(&seq)
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.held.contains_key(&seq)
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<Held> {
        self.held.remove(&seq)
    }

    /// The delivery that a receipt refers to, whether it is settled or not.
    pub(crate) fn of_receipt(&self, receipt: &Receipt) -> Option<&Held> {
        self.held.get(&receipt.seq).filter(|held| held.receipt == receipt.at)
    }

    /// The unsettled delivery of this receipt. Receipts of an earlier hand-out or another opening match nothing, and
    /// nothing is settled twice.
    pub(crate) fn unsettled_mut(&mut self, receipt: &Receipt) -> Option<&mut Held> {
        let (epoch, at) = (self.epoch, receipt.at);
        let is_valid = |held: &&mut Held| held.goes.is_none() && receipt.epoch == epoch && at == held.receipt;
        self.held.get_mut(&receipt.seq).filter(is_valid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Held)> {
        self.held.iter().map(|(seq, held)| (*seq, held))
    }

    /// Keeps a delivery that came back unstarted, to hand it out again from memory.
    pub(crate) fn push_returned(&mut self, delivery: Delivery) {
        self.returned.push_back(delivery);
    }

    /// The next delivery that came back, with a new receipt.
    pub(crate) fn pop_returned(&mut self) -> Option<Delivery> {
        let delivery = self.returned.pop_front()?;
        Some(self.renew(delivery))
    }

    /// The delivery with this number, if it came back, with a new receipt.
    pub(crate) fn take_returned(&mut self, seq: u64) -> Option<Delivery> {
        let index = self.returned.iter().position(|delivery| delivery.receipt.seq == seq)?;
        let delivery = self.returned.remove(index)?;
        Some(self.renew(delivery))
    }

    fn renew(&mut self, mut delivery: Delivery) -> Delivery {
        delivery.receipt = self.receipt(delivery.receipt.seq);
        if let Some(held) = self.held.get_mut(&delivery.receipt.seq) {
            held.receipt = delivery.receipt.at;
        }
        delivery
    }

    pub(crate) fn returned(&self) -> impl ExactSizeIterator<Item = &Delivery> {
        self.returned.iter()
    }

    pub(crate) fn is_returned(&self, seq: u64) -> bool {
        self.returned.iter().any(|delivery| delivery.receipt.seq == seq)
    }

    /// Whether it is handed out and has not come back.
    pub(crate) fn is_out(&self, seq: u64) -> bool {
        self.contains(seq) && !self.is_returned(seq)
    }

    /// When the first of the returned messages was created.
    pub(crate) fn first_returned_created(&self) -> Option<Time> {
        self.returned.front().map(|delivery| delivery.meta.created)
    }

    /// Records that a ready message was claimed before its turn.
    pub(crate) fn claim_ready(&mut self, seq: u64) {
        self.claimed.insert(seq);
    }

    /// Ends the claim of a ready message before its turn; returns whether there was one.
    pub(crate) fn unclaim(&mut self, seq: u64) -> bool {
        !self.claimed.is_empty() && self.claimed.remove(&seq)
    }

    /// Forgets claims of ready messages below this number, whose turn has come.
    pub(crate) fn forget_claimed_below(&mut self, next_seq: u64) {
        while self.claimed.first().is_some_and(|seq| *seq < next_seq) {
            self.claimed.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_receipt_of_this_opening_settles_and_only_once() {
        let mut in_flight = InFlight::new(7);
        let held = Held::started(Was::Fresh, None, Pointer::new(0, 64));
        let first = in_flight.hand_out(3, held);
        let second = in_flight.hand_out(3, held);
        assert!(in_flight.unsettled_mut(&first).is_none(), "it is of an earlier hand-out");
        assert!(
            in_flight.unsettled_mut(&Receipt { epoch: 6, ..second }).is_none(),
            "it is of another opening"
        );
        in_flight.unsettled_mut(&second).unwrap().goes = Some(Goes::Out);
        assert!(in_flight.unsettled_mut(&second).is_none(), "it has a verdict already");
        assert!(in_flight.of_receipt(&second).is_some() && in_flight.of_receipt(&first).is_none());
    }

    #[test]
    fn claims_are_forgotten_once_their_turn_has_come() {
        let mut in_flight = InFlight::new(0);
        for seq in [4, 6, 9] {
            in_flight.claim_ready(seq);
        }
        in_flight.forget_claimed_below(6);
        assert!(
            !in_flight.unclaim(4) && in_flight.unclaim(6) && !in_flight.unclaim(6) && in_flight.unclaim(9)
        );
    }
}
