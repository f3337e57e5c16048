//! Before something is handed out: what may run is committed first, and a suspect by its name.

use std::time::{Duration, Instant};

use redrive::engine::{Announced, Delivery, Receipt};
use redrive_core::Time;

use crate::engine::{Claim, KafkaEngine};
use crate::lane::Lane;
use crate::waiting::Waiting;

/// What comes due within this time is reserved with the next commit, and then for twice as long: the dispatch thread comes
/// by at least once a second.
const SOON: Duration = Duration::from_millis(1_200);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl KafkaEngine {
    pub(crate) fn is_reserved(&self, lane: usize, waiting: &Waiting) -> bool {
        self.lanes[lane].reserved.admits_due(waiting.due.unwrap_or_default().as_millis())
    }

    /// Writes down what is handed out, for whoever comes next on this machine.
    pub(crate) fn mark_started(&mut self, taken: &[Delivery]) {
        if taken.is_empty() {
            return;
        }
        if self.started.is_full() {
            return self.started.begin(self.lanes.iter().flat_map(Lane::open_marks));
        }
        for delivery in taken {
            let Receipt { lane, at, .. } = delivery.receipt;
            self.started.started(self.lanes[lane as usize].place, at);
        }
        self.started.flush();
    }

    /// Something may have had to wait for a reservation: then it is asked for at once.
    pub(crate) fn reserve_more(&mut self) {
        let now = Instant::now();
        self.reserve_dues(now);
        self.commit_when_due(now);
    }

    /// Reserves what comes due soon, in all tiers together as far as it is the next to be handed out.
    pub(crate) fn reserve_dues(&mut self, now: Instant) {
        let looked = self.dues.looked.is_some_and(|at| now.duration_since(at) < LOOK_EVERY);
        if (looked && !self.dues.starved) || self.ahead.is_empty() || self.twins.is_reading() {
            return;
        }
        self.dues.looked = Some(now);
        let starved = std::mem::take(&mut self.dues.starved);
        let limit = self.dues.advance.next(now, self.dues.handed, starved) as usize;
        let (soon, latest) = (self.now.plus(SOON).as_millis(), self.now.plus(SOON * 2).as_millis());
        let (mut count, mut until) = (0, latest);
        let mut wanting = vec![false; self.lanes.len()];
        for (lane, due) in self.ahead.coming(limit, latest) {
            count += 1;
            until = due;
            wanting[lane] |= due <= soon && !self.lanes[lane].reserved.admits_due(due);
        }
        if count < limit {
            until = latest;
        }
        for (lane, _) in self.lanes.iter_mut().zip(wanting).filter(|(_, wants)| *wants) {
            lane.reserved.want_due(until);
            lane.hurries |= starved;
        }
    }

    /// A suspect is about to run alone. That has to be committed first, and that nobody else is.
    pub(crate) fn announce_alone(&mut self, receipt: &Receipt, now: Time) -> Announced {
        let at = receipt.lane as usize;
        let is_ours = receipt.epoch == self.epoch && self.claim == Claim::Ours && at < self.lanes.len();
        if !is_ours {
            return Announced::Gone;
        }
        let mut known = true;
        for (_, lane) in self.lanes.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            lane.suspected.recall();
            known &= !lane.suspected.has_news();
        }
        let lane = &mut self.lanes[at];
        known &= lane.suspected.announce(receipt.at, now);
        if known {
            if let Some(out) = lane.out.get_mut(&receipt.at) {
                out.waits = false;
            }
            return Announced::Yes;
        }
        self.commit_when_due(Instant::now());
        Announced::NotYet
    }
}
