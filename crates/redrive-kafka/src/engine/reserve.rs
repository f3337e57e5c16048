//! Before something is handed out: what may run is committed first, and a suspect by its name.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redrive::engine::{Announced, Delivery, Execution, Receipt};
use redrive_core::Time;

use super::engine::{Claim, KafkaEngine};
use crate::backlog::lane::Lane;
use crate::record::Waiting;

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
        if taken.is_empty() || self.options.execution == Execution::Elsewhere {
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
        if self.options.execution == Execution::Elsewhere {
            return;
        }
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

    /// A suspect is about to run alone. That has to be committed first, and that nobody else is; those that come after it
    /// are announced with it, so that not each of them waits for a commit.
    pub(crate) fn announce_alone(&mut self, next: &[Receipt], now: Time) -> Announced {
        let Some(first) = next.first().filter(|first| self.is_ours(first)) else { return Announced::Gone };
        let at = first.lane as usize;
        if !self.lanes[at].suspected.is_announced(first.at) {
            self.announce_these(next, now);
        }
        // Who stood still does not know whose the partitions are before a commit is answered.
        if self.unsure.is_some() || self.lanes.iter().any(|lane| lane.suspected.is_awaited()) {
            self.commit_when_due(Instant::now());
            return Announced::NotYet;
        }
        let lane = &mut self.lanes[at];
        if let Some(out) = lane.out.get_mut(&first.at) {
            out.waits = false;
        }
        self.started.runs_alone(lane.place, first.at);
        self.started.flush();
        Announced::Yes
    }

    fn announce_these(&mut self, next: &[Receipt], now: Time) {
        let ours: Vec<&Receipt> = next.iter().filter(|receipt| self.is_ours(receipt)).collect();
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let here = ours.iter().filter(|receipt| receipt.lane as usize == at).map(|receipt| receipt.at);
            let here: BTreeSet<u64> = here.collect();
            if here.is_empty() {
                lane.suspected.recall();
            } else {
                lane.suspected.announce(here, now);
            }
        }
    }

    fn is_ours(&self, receipt: &Receipt) -> bool {
        receipt.epoch == self.epoch && self.claim == Claim::Ours && (receipt.lane as usize) < self.lanes.len()
    }
}
