//! How the engine stands beside its messages, and what it does with the spool.

use std::path::Path;
use std::time::Instant;

use redrive::engine::{Condition, LetterState, Partitions, ProblemKind};

use super::engine::{KafkaEngine, Then};
use crate::produce::spool::Spooled;
use crate::produce::{Body, Production};
use crate::record::CopyRecord;

impl KafkaEngine {
    pub(crate) fn describe_condition(&self) -> Condition {
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
            spooled: self.spool.len() as u64,
            letter_twins: letters.twins,
            foreign_letters: letters.unreadable,
            passed_over: self.passed_over.total(),
            ..Condition::default()
        };
        self.describe_cluster(&mut condition);
        for lane in &self.lanes {
            if let Some(stopped) = &lane.stopped {
                let place = format!("{}/{}", lane.topic, lane.partition);
                condition.problem(stopped.kind, place, &stopped.problem);
            }
        }
        for (source, tier) in self.apart() {
            let text = format!(
                "{tier} is not assigned to this member, so key order cannot be kept and nothing of the partition is \
                 delivered; all members must run with the same tiers, each with as many partitions as the source"
            );
            condition.problem(ProblemKind::Assign, source, text);
        }
        if let Some(problem) = self.control.problem(Instant::now()) {
            condition.problem(ProblemKind::Read, format!("{}.control", self.pipeline.name), problem);
        }
        self.tell_unwritten(&mut condition);
        if let Some(refusal) = self.letters.refusal(Instant::now()) {
            condition.problem(ProblemKind::Letters, &*self.dlq.name, refusal);
        }
        condition
    }

    /// Offers what is in the spool again, where the letter is still open and cut.
    pub(crate) fn offer_spooled(&mut self, now: Instant) {
        if self.spool.is_empty()
            || !self.letters.are_loaded()
            || self.outbox.pending().any(|then| matches!(then, Then::Spooled(_)))
        {
            return;
        }
        for Spooled { path, topic, partition, body, has_letter } in self.spool.to_offer(now) {
            let Body::Copy { copy, .. } = &body else { continue };
            match self.letters.is_cut(copy.origin.number(), copy.meta.replays) {
                Some((LetterState::Open, true)) => {}
                _ if !has_letter => {}
                // It may be opened again; or its letter is on its way.
                Some((LetterState::Discarded, true)) => continue,
                None if self.ending.contains(&copy.origin.number()) => continue,
                _ => {
                    self.spool.forget(&path, now);
                    continue;
                }
            }
            tracing::info!(path = %path.display(), %topic, "offering a refused record again");
            self.outbox
                .send(Production { topic, partition, body, then: Then::Spooled(path) }, &mut self.ended);
        }
        self.absorb_ended();
    }

    /// A record out of the spool was taken, or given up.
    pub(crate) fn spooled_stored(
        &mut self,
        path: &Path,
        production: &Production<Then>,
        stored: Option<(i32, i64)>,
    ) {
        let Some((partition, offset)) = stored else { return };
        self.spool.forget(path, Instant::now());
        if let Body::Copy { copy, .. } = &production.body
            && production.topic == self.dlq.name
        {
            let copy: &CopyRecord = copy;
            self.letters.parked(partition, offset, copy);
        }
    }
}
