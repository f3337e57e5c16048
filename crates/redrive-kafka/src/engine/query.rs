//! Implements [`Query`] for the Kafka engine.

use std::sync::Arc;
use std::time::Instant;

use redrive::internal::engine::{
    Condition, Counts, EngineError, GroupFigures, GroupMarks, Letter, LetterScan, LetterStanding,
    LetterState, Oldest, Partitions, PendingScan, PendingState, ProblemKind, Query, SharedRecords,
};
use redrive_core::{GroupId, Message, Time};

use super::kafka::KafkaEngine;
use crate::topics::LaneKind;

impl Query for KafkaEngine {
    fn counts(&self) -> Counts {
        let letters = self.letters.counts();
        let (delayed, held) = self.backlog.delayed();
        let keys = self.backlog.keys();
        let mut counts = Counts {
            delayed: delayed - held + self.transit.delayed(),
            held,
            key_wait: keys.waiting() as u64,
            key_order_voided: keys.voided(),
            letters_open: letters.open,
            letters_replaying: letters.replaying,
            letters_succeeded: letters.succeeded,
            letters_discarded: letters.discarded,
            letters_erased: letters.erased,
            in_flight: self.transit.finishing(),
            ..Counts::default()
        };
        for lane in self.lanes.iter() {
            counts.in_flight += lane.out.len() as u64;
            match lane.kind {
                LaneKind::Source => counts.ready += lane.fifo.len() as u64 + lane.unread(),
                LaneKind::Tier => counts.delayed += lane.unread(),
                LaneKind::Replay => {}
            }
        }
        counts
    }

    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        let (pending, letter) = (self.backlog.oldest(&self.lanes), self.letters.oldest());
        Ok(Oldest { pending, ready: None, letter })
    }

    fn condition(&self) -> Condition {
        let letters = self.letters.counts();
        let stopped = self.lanes.iter().filter(|lane| lane.stopped.is_some()).count() as u64;
        let blocked = self.unwritten.lanes();
        let mut condition = Condition {
            letters_loading: !self.letters.are_loaded(),
            partitions: Partitions {
                reading: (self.lanes.len() as u64).saturating_sub(stopped + blocked),
                blocked,
                stopped,
                unassigned: 0,
            },
            spooled: self.copies.spooled() as u64,
            letter_twins: letters.twins,
            foreign_letters: letters.unreadable,
            passed_over: self.duplicates.skipped(),
            ..Condition::default()
        };
        self.group.describe(&self.lanes, &mut condition);
        for lane in self.lanes.iter() {
            if let Some(stopped) = &lane.stopped {
                let place = format!("{}/{}", lane.topic, lane.partition);
                condition.problem(stopped.kind, place, &stopped.problem);
            }
        }
        let topics = self.copies.topics();
        for (source, tier) in self.backlog.separated(&self.lanes, &topics.beside_source()) {
            let text = format!(
                "{tier} is not assigned to this member, so key order cannot be kept and nothing of the partition is \
                 delivered; all members must run with the same tiers, each with as many partitions as the source"
            );
            condition.problem(ProblemKind::Assign, source, text);
        }
        if let Some(problem) = self.control.problem(Instant::now()) {
            condition.problem(ProblemKind::Read, format!("{}.control", self.pipeline.name), problem);
        }
        self.unwritten.describe(&self.lanes, &mut condition);
        if let Some(refusal) = self.letters.refusal(Instant::now()) {
            condition.problem(ProblemKind::Letters, &*topics.letters().name, refusal);
        }
        condition
    }

    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        self.letters.letters(state, after, limit)
    }

    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.letters.scan_letters(state, after, limit, look_max)
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        self.letters.letter(id)
    }

    fn letters_of(&mut self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        self.letters.letters_of(id)
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.letters.letter_standings(job, ids)
    }

    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        self.letters.message_before(id, edit)
    }

    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        self.letters.groups(now)
    }

    fn letters_in_group(
        &mut self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        self.letters.letters_in_group(group, after, limit)
    }

    fn open_since(&mut self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        self.letters.open_since(group, since, max)
    }

    fn group_marks(&self) -> Option<GroupMarks> {
        Some(self.control.marks())
    }

    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        Ok(self.backlog.list(&self.lanes, state, after, limit, look_max, self.transit.delayed()))
    }

    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        Some(self.control.shared_records())
    }
}
