//! Verdicts: what is delivered is marked, what failed is copied to where it goes on, and marked once the copy is stored.

use std::time::Instant;

use rdkafka::error::RDKafkaErrorCode;
use redrive::internal::engine::{Delivery, EngineError, History, Settlement, Ticket, Verdict};
use redrive_core::{Message, Meta, Time};

use super::kafka::KafkaEngine;
use crate::backlog::lane::Out;
use crate::clock::wall_time;
use crate::duplicates::detector::Duplicates;
use crate::letters::KafkaLetters;
use crate::produce::after::{AfterWrite, CopyKind, Mark};
use crate::produce::{Body, Production, WriteOutcome};
use crate::record::{Carried, CopyRecord, LetterMarks, Origin, WaitingMessage, origin_of};

/// A record that a retry replaces, and what is settled with it.
#[derive(Clone, Copy)]
struct Settled {
    lane: usize,
    offset: u64,
    key: Option<u64>,
    ticket: Option<Ticket>,
}

impl KafkaEngine {
    pub(super) fn settle_batch(&mut self, batch: Vec<Settlement>) -> Ticket {
        let ticket = self.tickets.begin(self.lanes.epoch());
        self.notice_gap();
        if self.ownership.defers() {
            self.tickets.copying(ticket);
            self.ownership.defer(ticket, batch);
            return ticket;
        }
        for settlement in batch {
            self.settle_one(settlement, ticket);
        }
        // Whatever ends the process from here on, it was none of these.
        self.ledger.flush();
        self.copies.flush();
        self.handle_written();
        ticket
    }

    /// The partitions are ours after all, or it does not matter any more.
    pub(super) fn settle_deferred(&mut self) {
        for (ticket, batch) in self.ownership.take_deferred() {
            for settlement in batch {
                self.settle_one(settlement, ticket);
            }
            // Like a copy that was waited for: until now the batch was not durable.
            self.tickets.copied(ticket);
        }
        self.copies.flush();
        self.handle_written();
    }

    fn settle_one(&mut self, settlement: Settlement, ticket: Ticket) {
        let Settlement { delivery, verdict, attempt } = settlement;
        let receipt = delivery.receipt;
        // A receipt of an assignment that is over settles nothing: the new owner of the partition delivers it again.
        let Some(at) = self.lanes.of_receipt(&receipt) else { return };
        let Some(out) = self.lanes[at].out.remove(&receipt.at) else { return };
        if verdict.clears() {
            self.ledger.came_back(&mut self.lanes[at], receipt.at);
        }
        let history = match &attempt {
            Some(attempt) => delivery.history.with(attempt),
            None => delivery.history.clone(),
        };
        let (number, offset, key) = (receipt.seq, receipt.at, out.key);
        match verdict {
            Verdict::Release => self.take_back(delivery, out),
            // Its letter came late, from an owner before us: a second one would be a duplicate, and so would a retry.
            Verdict::Retry { .. } | Verdict::Dead { .. } if self.has_died(&delivery) => {
                self.died(key, number);
                self.mark(at, offset, Some(ticket));
                self.duplicates.skip(&self.lanes, &[(at, offset)]);
            }
            Verdict::Done if self.letters.wants_success(number, delivery.meta.replays) => {
                self.write_success(&delivery, &out, ticket);
            }
            Verdict::Done => {
                self.backlog.keys_mut().finish(key, number);
                self.mark(at, offset, Some(ticket));
            }
            Verdict::Retry { due, meta } => {
                self.backlog.keys_mut().stop(key, number);
                let copy = self.copy_of(number, delivery.message, meta, history, &out.carried);
                let settled = Settled { lane: at, offset, key, ticket: Some(ticket) };
                self.write_retry(copy, due, meta.attempts, settled);
            }
            Verdict::Dead { reason, meta, at: dead_at } => {
                let group = Some(self.grouping.of(reason, history.attempts().last()));
                let options = self.letter_options.clone();
                let marks = LetterMarks { group, options, ..LetterMarks::default() };
                let copy = self.copy_of(number, delivery.message, meta, history, &out.carried);
                let copy = CopyRecord { reason: Some(reason), dead_at: Some(dead_at), marks, ..copy };
                self.tickets.copying(ticket);
                self.transit.finish_sent(number);
                let (from, epoch) = (self.lanes[at].origin_at(offset), self.lanes.epoch());
                let (ticket, kind) = (Some(ticket), CopyKind::Letter);
                self.copies.letter(copy, from, Mark { lane: at, epoch, offset, key, number, ticket, kind });
            }
        }
    }

    /// Whether a message that is being delivered has become a letter meanwhile, by an owner before us. Letters of long ago
    /// do not count: the group may have been moved back on purpose.
    fn has_died(&self, delivery: &Delivery) -> bool {
        let (number, replays, created) = (delivery.receipt.seq, delivery.meta.replays, delivery.meta.created);
        self.duplicates.has_died(number, replays, created)
            || self.letters.has_died_since(self.duplicates.letter_ends(), number, replays, created)
    }

    /// A delivery that was not started goes back to where it came from.
    fn take_back(&mut self, delivery: Delivery, out: Out) {
        let receipt = delivery.receipt;
        let lane = &mut self.lanes[receipt.lane as usize];
        self.ledger.did_not_run(lane, receipt.at, delivery.suspect.is_some());
        self.backlog.take_back(&mut self.lanes, delivery, out, self.now);
    }

    fn copy_of(
        &self,
        number: u64,
        message: Message,
        meta: Meta,
        history: History,
        carried: &Carried,
    ) -> CopyRecord {
        let origin = origin_of(number, carried.topic.as_ref().unwrap_or(&self.source));
        CopyRecord {
            message,
            meta,
            history,
            origin,
            due: None,
            reason: None,
            dead_at: None,
            job: carried.job,
            marks: LetterMarks::default(),
        }
    }

    fn write_retry(&mut self, copy: CopyRecord, due: Time, attempts: u32, settled: Settled) {
        let Settled { lane, offset, key, ticket } = settled;
        let number = copy.origin.number();
        if let Some(ticket) = ticket {
            self.tickets.copying(ticket);
        }
        self.transit.retry_sent(due, number);
        let (from, epoch) = (self.lanes[lane].origin_at(offset), self.lanes.epoch());
        let mark = Mark { lane, epoch, offset, key, number, ticket, kind: CopyKind::Retry { due } };
        let copy = CopyRecord { due: Some(due), ..copy };
        self.copies.retry(copy, attempts, due.since(self.now), from, mark);
    }

    /// A replayed letter is delivered: that is written before its record is done.
    fn write_success(&mut self, delivery: &Delivery, out: &Out, ticket: Ticket) {
        let (receipt, replays) = (delivery.receipt, delivery.meta.replays);
        let (key, value) = KafkaLetters::succeeded_state(receipt.seq, replays, out.carried.job, wall_time());
        self.tickets.copying(ticket);
        self.transit.finish_sent(receipt.seq);
        let mark = Mark {
            lane: receipt.lane as usize,
            epoch: self.lanes.epoch(),
            offset: receipt.at,
            key: out.key,
            number: receipt.seq,
            ticket: Some(ticket),
            kind: CopyKind::Success { replays },
        };
        self.copies.success(key, value, mark);
    }

    /// Writes a waiting message again at the end of the tier that fits what is left of its delay.
    pub(super) fn move_straggler(&mut self, lane: usize, waiting: WaitingMessage) {
        let WaitingMessage { offset, number, message, meta, history, due, carried, .. } = waiting;
        let due = due.unwrap_or(self.now);
        let key = self.backlog.keys().key_of(&message);
        let copy = self.copy_of(number, message, meta, history, &carried);
        self.write_retry(copy, due, 0, Settled { lane, offset, key, ticket: None });
    }

    /// A record is done.
    pub(super) fn mark(&mut self, at: usize, offset: u64, ticket: Option<Ticket>) {
        if self.lanes.mark(at, offset) {
            self.ledger.cleared(&self.lanes[at], offset);
        }
        if let Some(ticket) = ticket {
            self.tickets.marked(ticket, at, self.lanes[at].done.marks());
        }
    }

    fn died(&mut self, key: Option<u64>, number: u64) {
        let letters = &self.letters;
        self.backlog.keys_mut().died(key, number, &|number| letters.state_of(number));
    }

    /// Handles copies that were acknowledged or refused.
    pub(super) fn handle_written(&mut self) {
        // More than once: a letter in place of a refused copy may be refused at once.
        loop {
            let mut ended = self.copies.take_ended();
            for (production, how) in ended.drain(..) {
                self.production_ended(production, &how);
            }
            if !self.copies.reuse(ended) {
                return;
            }
        }
    }

    /// A letter may be read from its topic before its acknowledgement is handled. Until then its message is not finished
    /// here, and nothing may be done with the letter.
    pub(super) fn check_written(&mut self, letters: &[u64]) -> Result<(), EngineError> {
        let is_finishing = |engine: &Self| letters.iter().any(|number| engine.transit.is_finishing(*number));
        if is_finishing(self) {
            self.copies.poll();
            self.handle_written();
        }
        if is_finishing(self) {
            return Err(EngineError::Unavailable("a letter of these is still being written".to_owned()));
        }
        Ok(())
    }

    fn production_ended(&mut self, production: Production<AfterWrite>, how: &WriteOutcome) {
        let stored = match how {
            WriteOutcome::Stored { partition, offset } => Some((*partition, *offset)),
            WriteOutcome::Refused(code) => return self.refused(production, *code),
            WriteOutcome::GivenUp => None,
        };
        match &production.then {
            AfterWrite::Spooled(path) => {
                if let Some(stored) = stored {
                    self.copies.spooled_stored(path, Instant::now());
                    self.letter_stored(&production, stored);
                }
            }
            AfterWrite::Progress { lane, epoch } if *epoch == self.lanes.epoch() => {
                self.lanes[*lane].done.bitmap_stored();
            }
            AfterWrite::Progress { .. } | AfterWrite::Nothing => {}
            AfterWrite::Mark(mark) if stored.is_none() || mark.epoch != self.lanes.epoch() => {
                if let Some(stored) = stored {
                    self.late_copy_stored(&production, mark, stored);
                }
                if let Some(ticket) = mark.ticket {
                    self.tickets.copied(ticket);
                }
            }
            AfterWrite::Mark(mark) => {
                // If it is not there any more, a record of it was read already: this one, or one that was thought lost.
                let is_unread = match mark.kind {
                    CopyKind::Retry { due } => self.transit.retry_stored(due, mark.number),
                    CopyKind::Letter | CopyKind::Success { .. } => {
                        self.transit.finish_stored(mark.number);
                        true
                    }
                };
                self.mark(mark.lane, mark.offset, mark.ticket);
                // The marks first: a batch without open copies may be durable.
                if let Some(ticket) = mark.ticket {
                    self.tickets.copied(ticket);
                }
                self.copy_stored(&production, mark, stored.filter(|_| is_unread));
            }
        }
    }

    /// Kafka will never accept it as it is. Its partition goes on with a letter that is cut; where not even that is accepted,
    /// it is held.
    fn refused(&mut self, production: Production<AfterWrite>, code: RDKafkaErrorCode) {
        match &production.then {
            // The whole copy of a letter that is in the topic, cut. It is offered again.
            AfterWrite::Spooled(path) => {
                tracing::warn!(path = %path.display(), %code, "Kafka still refuses a spooled record");
            }
            // The new owner of the partition has the record.
            AfterWrite::Mark(mark) if mark.epoch != self.lanes.epoch() => {
                mark.ticket.iter().for_each(|ticket| self.tickets.copied(*ticket));
            }
            AfterWrite::Mark(Mark { number, .. }) => {
                let number = *number;
                if let Some(due) = self.copies.refused(production, code) {
                    self.transit.retry_became_letter(due, number);
                }
            }
            AfterWrite::Progress { .. } | AfterWrite::Nothing => {
                self.copies.refused(production, code);
            }
        }
    }

    /// The copy is a letter of this pipeline: the mirror need not read it to know it.
    fn letter_stored(&mut self, production: &Production<AfterWrite>, (partition, offset): (i32, i64)) {
        if let Body::Copy { copy, .. } = &production.body
            && production.topic == self.copies.topics().letters().name
        {
            self.letters.parked(partition, offset, copy);
        }
    }

    /// What else is safe now that a copy is stored; `stored` says where, unless a record of it was read already.
    fn copy_stored(&mut self, production: &Production<AfterWrite>, mark: &Mark, stored: Option<(i32, i64)>) {
        let Mark { key, number, .. } = *mark;
        match (mark.kind, stored) {
            (CopyKind::Retry { due }, Some((partition, offset))) => {
                let lane = self.lanes.find(&production.topic, partition);
                let offset = offset.max(0) as u64;
                match lane {
                    Some(at) if self.lanes[at].next <= offset => {
                        self.lanes[at].end = self.lanes[at].end.max(offset + 1);
                        self.transit.expect(due, at, offset);
                    }
                    // It was read before its acknowledgement came, and so waits for its key twice; or somebody else reads
                    // it.
                    Some(_) | None => self.backlog.keys_mut().leave(key, number),
                }
            }
            (CopyKind::Retry { .. }, None) => self.backlog.keys_mut().leave(key, number),
            (CopyKind::Letter, stored) => {
                if let Some(stored) = stored {
                    self.letter_stored(production, stored);
                }
                self.died(key, number);
            }
            (CopyKind::Success { replays }, _) => {
                self.letters.succeeded(number, replays);
                self.backlog.keys_mut().finish(key, number);
            }
        }
    }

    /// A copy that was written for an assignment that is over is stored.
    fn late_copy_stored(
        &mut self,
        production: &Production<AfterWrite>,
        mark: &Mark,
        (partition, offset): (i32, i64),
    ) {
        match (mark.kind, &production.body) {
            (CopyKind::Retry { .. }, _) => {
                if let Some(at) = self.lanes.find(&production.topic, partition) {
                    let lane = &mut self.lanes[at];
                    lane.end = lane.end.max(offset.max(0) as u64 + 1);
                    lane.late_end = lane.end;
                }
            }
            (CopyKind::Letter, Body::Copy { copy, from }) => {
                self.letters.parked(partition, offset, copy);
                if let Some(from) = from {
                    self.late_letter_stored(from, copy);
                }
            }
            (CopyKind::Letter, Body::Plain { .. }) => {}
            (CopyKind::Success { replays }, _) => self.letters.succeeded(mark.number, replays),
        }
    }

    /// A letter that this process wrote for an earlier assignment is stored: its record, if it has come back to us and
    /// waits, is done.
    fn late_letter_stored(&mut self, from: &Origin, letter: &CopyRecord) {
        let (copies, epoch) = (&self.copies, self.lanes.epoch());
        let is_replacing = |lane, offset| copies.is_replacing(epoch, lane, offset);
        let replaced = Duplicates::replaced_by_late_letter(&self.lanes, from, letter, &is_replacing);
        let Some((lane, offset)) = replaced else { return };
        self.mark(lane, offset, None);
        self.duplicates.skip(&self.lanes, &[(lane, offset)]);
        let key = self.backlog.keys().key_of(&letter.message);
        self.died(key, letter.origin.number());
    }
}
