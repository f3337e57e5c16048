//! Messages that an empty retry budget would dead-letter, until the sink is known to be up.
//!
//! The first failures of an outage look like any others. A message is therefore dead-lettered for an empty budget only
//! once its sink has answered a call that started after the message failed. It waits for that without a permit, for
//! seconds; without such an answer it is deferred.

use std::collections::VecDeque;
use std::time::Duration;

use redrive_core::endpoints::Endpoint;
use redrive_core::{Random, Time};

use crate::engine::Delivery;
use crate::failure::Failure;

/// How long to wait for an answer.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Messages that may wait. Beyond that they are deferred at once.
const WAITING_MAX: usize = 256;

/// A failed attempt without a decision yet.
#[derive(Debug)]
pub(super) struct Undecided {
    pub(super) delivery: Delivery,
    pub(super) started: Time,
    pub(super) ended: Time,
    pub(super) failure: Failure,
    pub(super) random: Random,
    pub(super) to: Option<Endpoint>,
}

#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    waiting: VecDeque<Undecided>,
}

impl Unconfirmed {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    pub(super) fn push(&mut self, undecided: Undecided) {
        self.waiting.push_back(undecided);
    }

    /// The sink answered a call to `to` that started at `started`. Removes the messages that failed before that.
    pub(super) fn confirmed(&mut self, to: Option<Endpoint>, started: Time) -> Vec<Undecided> {
        let (yes, no) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.to == to && waiting.ended <= started);
        self.waiting = no;
        Vec::from(yes)
    }

    /// Removes the next message that has waited for the maximum.
    pub(super) fn pop_late(&mut self, now: Time) -> Option<Undecided> {
        // A clock that was set back must not prolong the wait.
        let is_late = |one: &mut Undecided| now < one.ended || now.since(one.ended) >= WAIT_MAX;
        self.waiting.pop_front_if(is_late)
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Undecided> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn next_wake(&self) -> Option<Time> {
        self.waiting.front().map(|first| first.ended.plus(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::{Message, Meta};

    use super::*;
    use crate::engine::{History, Receipt};

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    fn failed(seq: u64, ended: Time, to: Option<Endpoint>) -> Undecided {
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
        Undecided {
            delivery,
            started: ended,
            ended,
            failure: Failure::transient("503"),
            random: Random(0),
            to,
        }
    }

    fn numbers(all: Vec<Undecided>) -> Vec<u64> {
        all.into_iter().map(|one| one.delivery.receipt.seq).collect()
    }

    #[test]
    fn an_answer_to_a_call_that_started_afterwards_confirms() {
        let there = Some(Endpoint { origin: 1, endpoint: 2 });
        let mut all = Unconfirmed::default();
        all.push(failed(1, at(100), None));
        all.push(failed(2, at(200), None));
        all.push(failed(3, at(100), there));
        assert!(all.confirmed(None, at(99)).is_empty(), "it was in flight already");
        assert_eq!(numbers(all.confirmed(None, at(150))), [1]);
        assert_eq!(numbers(all.confirmed(there, at(9_000))), [3], "each endpoint by itself");
        assert_eq!(all.next_wake(), Some(at(5_200)));
        assert!(all.pop_late(at(5_199)).is_none());
        assert!(all.pop_late(at(5_200)).is_some() && all.is_empty());
    }

    #[test]
    fn no_more_wait_than_may() {
        let mut all = Unconfirmed::default();
        while all.has_room() {
            all.push(failed(0, at(0), None));
        }
        assert_eq!(all.take_all().len(), WAITING_MAX);
    }
}
