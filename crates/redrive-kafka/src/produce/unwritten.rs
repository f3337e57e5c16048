//! Partitions that are held because one of their records cannot be written for now: a permission or topic is missing,
//! or a broker is unreachable. Nothing more of them is delivered, so that the number of waiting records stays bounded
//! and nothing is committed beyond them. They resume by themselves once everything is written.

use std::collections::BTreeMap;

use rdkafka::error::RDKafkaErrorCode;
use redrive::internal::engine::{Condition, ProblemKind};

use super::after::AfterWrite;
use super::outbox::Failing;
use crate::backlog::lanes::Lanes;

/// Why a lane is held; one of its records stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WriteProblem {
    target: String,
    code: RDKafkaErrorCode,
    records: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    lanes: BTreeMap<usize, WriteProblem>,
    /// Failing records that belong to no lane, by topic.
    others: BTreeMap<String, WriteProblem>,
}

/// Lanes that have to be held from now on, and lanes that may resume.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HoldChanges {
    pub held: Vec<usize>,
    pub resumed: Vec<usize>,
}

impl Unwritten {
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.others.is_empty()
    }

    pub fn lanes(&self) -> u64 {
        self.lanes.len() as u64
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Replaces what is known with everything that fails now in the assignment `epoch`.
    pub fn update<'a>(
        &mut self,
        failing: impl Iterator<Item = Failing<'a, AfterWrite>>,
        epoch: u32,
    ) -> HoldChanges {
        let before = std::mem::take(self);
        for Failing { topic, partition, then, code } in failing {
            let why = || WriteProblem { target: format!("{topic}/{partition}"), code, records: 0 };
            let entry = match then {
                AfterWrite::Mark(mark) if mark.epoch == epoch => {
                    self.lanes.entry(mark.lane).or_insert_with(why)
                }
                AfterWrite::Mark(_) => continue,
                AfterWrite::Progress { .. } | AfterWrite::Spooled(_) | AfterWrite::Nothing => {
                    self.others.entry(topic.to_owned()).or_insert_with(why)
                }
            };
            entry.records += 1;
        }
        let only_in = |here: &Self, there: &Self| {
            here.lanes.keys().filter(|at| !there.lanes.contains_key(at)).copied().collect()
        };
        HoldChanges { held: only_in(self, &before), resumed: only_in(&before, self) }
    }

    /// Logs that a lane is held.
    pub fn log_held(&self, at: usize, lanes: &Lanes) {
        let (lane, Some(why)) = (&lanes[at], self.lanes.get(&at)) else { return };
        tracing::error!(
            topic = %lane.topic, partition = lane.partition, to = %why.target, code = %why.code,
            "a retry or a dead letter cannot be written; nothing more of the partition is delivered until it is"
        );
    }

    pub fn describe(&self, lanes: &Lanes, condition: &mut Condition) {
        for (at, why) in &self.lanes {
            let lane = &lanes[*at];
            let text = format!("{}; nothing more of it is delivered until they are", why.text());
            condition.problem(ProblemKind::Write, format!("{}/{}", lane.topic, lane.partition), text);
        }
        for (topic, why) in &self.others {
            condition.problem(ProblemKind::Write, topic, why.text());
        }
    }
}

impl WriteProblem {
    fn text(&self) -> String {
        let Self { target, code, records } = self;
        format!("{records} of its records cannot be written to {target}: {code}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::produce::after::{CopyKind, Mark};

    #[test]
    fn a_lane_is_held_by_what_fails_in_its_own_assignment() {
        let mark = |lane, epoch| {
            let kind = CopyKind::Letter;
            AfterWrite::Mark(Mark { lane, epoch, offset: 0, key: None, number: 0, ticket: None, kind })
        };
        let thens = [mark(3, 7), mark(3, 7), mark(4, 6), AfterWrite::Nothing];
        let failing = |thens: &'static [AfterWrite]| {
            thens.iter().map(|then| Failing {
                topic: "orders.DLQ",
                partition: 1,
                then,
                code: RDKafkaErrorCode::TopicAuthorizationFailed,
            })
        };
        let thens: &'static [AfterWrite] = Box::leak(Box::new(thens));
        let mut unwritten = Unwritten::default();
        let changes = unwritten.update(failing(thens), 7);
        assert_eq!(changes, HoldChanges { held: vec![3], resumed: vec![] });
        assert_eq!((unwritten.lanes[&3].records, unwritten.others.len()), (2, 1));
        assert!(unwritten.lanes[&3].text().contains("orders.DLQ/1"), "{}", unwritten.lanes[&3].text());
        assert_eq!(unwritten.update(failing(thens), 7), HoldChanges::default(), "it is held already");
        let changes = unwritten.update(failing(&[]), 7);
        assert_eq!(changes, HoldChanges { held: vec![], resumed: vec![3] });
        assert!(unwritten.is_empty());
    }
}
