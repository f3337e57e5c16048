//! Partitions that are held because a record of theirs cannot be written for now: a permission or a topic is missing, a
//! broker is away. Nothing more of them is handed out, so that what waits has a bound and nothing is committed beyond it;
//! they go on by themselves once everything of theirs is written.

use std::collections::BTreeMap;

use rdkafka::error::RDKafkaErrorCode;
use redrive::engine::{Condition, ProblemKind};

use super::engine::{KafkaEngine, Then};
use crate::produce::outbox::Failing;

/// Why a lane is held: one of its records stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Why {
    target: String,
    code: RDKafkaErrorCode,
    records: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    lanes: BTreeMap<usize, Why>,
    /// What belongs to no lane, by topic.
    others: BTreeMap<String, Why>,
    /// Keys whose turn came while their lane was held.
    keys: Vec<u64>,
}

impl Unwritten {
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.others.is_empty()
    }

    pub fn holds(&self, lane: usize) -> bool {
        self.lanes.contains_key(&lane)
    }

    pub fn lanes(&self) -> u64 {
        self.lanes.len() as u64
    }

    /// The turn of a key has come, but not for a message of a lane that is held.
    pub fn wait(&mut self, key: u64) {
        self.keys.push(key);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Everything that fails in the assignment `epoch`.
    fn of<'a>(failing: impl Iterator<Item = Failing<'a, Then>>, epoch: u32) -> Self {
        let mut unwritten = Self::default();
        for Failing { topic, partition, then, code } in failing {
            let why = || Why { target: format!("{topic}/{partition}"), code, records: 0 };
            let entry = match then {
                Then::Mark { lane, epoch: of, .. } if *of == epoch => {
                    unwritten.lanes.entry(*lane).or_insert_with(why)
                }
                Then::Mark { .. } => continue,
                Then::Progress { .. } | Then::Spooled(_) | Then::Nothing => {
                    unwritten.others.entry(topic.to_owned()).or_insert_with(why)
                }
            };
            entry.records += 1;
        }
        unwritten
    }
}

impl Why {
    fn text(&self) -> String {
        let Self { target, code, records } = self;
        format!("{records} of its records cannot be written to {target}: {code}")
    }
}

impl KafkaEngine {
    /// Looks at what could not be written: partitions are held, or go on.
    pub(crate) fn mind_unwritten(&mut self) {
        if self.outbox.failing_count() == 0 && self.unwritten.is_empty() {
            return;
        }
        let now = Unwritten::of(self.outbox.failing(), self.epoch);
        let before = std::mem::replace(&mut self.unwritten, now);
        for (at, why) in self.unwritten.lanes.iter().filter(|(at, _)| !before.holds(**at)) {
            self.ahead.park(*at);
            let lane = &self.lanes[*at];
            tracing::error!(
                topic = %lane.topic, partition = lane.partition, to = %why.target, code = %why.code,
                "a retry or a dead letter cannot be written; nothing more of the partition is delivered until it is"
            );
        }
        let mut goes_on = false;
        for at in before.lanes.keys().filter(|at| !self.unwritten.holds(**at)) {
            goes_on = true;
            self.ahead.unpark(*at);
            let lane = &self.lanes[*at];
            tracing::info!(topic = %lane.topic, partition = lane.partition, "everything is written; the partition goes on");
        }
        if goes_on {
            before.keys.iter().for_each(|key| self.keys.wake(*key));
        } else {
            self.unwritten.keys = before.keys;
        }
    }

    pub(crate) fn tell_unwritten(&self, condition: &mut Condition) {
        for (at, why) in &self.unwritten.lanes {
            let lane = &self.lanes[*at];
            let text = format!("{}; nothing more of it is delivered until they are", why.text());
            condition.problem(ProblemKind::Write, format!("{}/{}", lane.topic, lane.partition), text);
        }
        for (topic, why) in &self.unwritten.others {
            condition.problem(ProblemKind::Write, topic, why.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_held_by_what_fails_in_its_own_assignment() {
        let mark = |lane, epoch| Then::Mark {
            lane,
            epoch,
            offset: 0,
            key: None,
            number: 0,
            ticket: None,
            what: crate::engine::engine::What::Dead,
        };
        let thens = [mark(3, 7), mark(3, 7), mark(4, 6), Then::Nothing];
        let failing = thens.iter().map(|then| Failing {
            topic: "orders.DLQ",
            partition: 1,
            then,
            code: RDKafkaErrorCode::TopicAuthorizationFailed,
        });
        let unwritten = Unwritten::of(failing, 7);
        assert!(unwritten.holds(3) && !unwritten.holds(4));
        assert_eq!((unwritten.lanes[&3].records, unwritten.others.len()), (2, 1));
        assert!(unwritten.lanes[&3].text().contains("orders.DLQ/1"), "{}", unwritten.lanes[&3].text());
    }
}
