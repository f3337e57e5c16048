//! Settles verdicts: a delivered record is marked as done; a failed one is copied to where it continues, and marked
//! once the copy is stored.

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

/// A record that a retry replaces, with what has to be settled for it.
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
        // If the process dies from here on, none of these was the cause.
        self.ledger.flush();
        self.copies.flush();
        self.handle_written();
        ticket
    }

    /// Settles deferred batches, once the partitions are known to be ours, or it no longer matters.
    pub(super) fn settle_deferred(&mut self) {
        for (ticket, batch) in self.ownership.take_deferred() {
            for settlement in batch {
                self.settle_one(settlement, ticket);
            }
            // The deferred batch counted as one open copy, so that it was not durable until now.
            self.tickets.copied(ticket);
        }
        self.copies.flush();
        self.handle_written();
    }

    fn settle_one(&mut self, settlement: Settlement, ticket: Ticket) {
        let Settlement { delivery, verdict, attempt } = settlement;
        let receipt = delivery.receipt;
        // A receipt of an assignment that is over settles nothing: the new owner of the partition delivers the message
        // again.
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
            // An earlier owner's letter of this message arrived late: a second letter would be a duplicate, and so
            // would a retry.
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

    /// Whether an earlier owner has made a letter of a message while it was being delivered. Old letters do not count:
    /// the group may have been moved back on purpose.
    fn has_died(&self, delivery: &Delivery) -> bool {
        let (number, replays, created) = (delivery.receipt.seq, delivery.meta.replays, delivery.meta.created);
        self.duplicates.has_died(number, replays, created)
            || self.letters.has_died_since(self.duplicates.letter_ends(), number, replays, created)
    }

    /// Puts a delivery that was not started back where it came from.
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

    /// Records the success of a replayed letter, before its record is marked as done.
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

    /// Rewrites a waiting message to the end of the tier that fits the rest of its delay.
    pub(super) fn move_straggler(&mut self, lane: usize, waiting: WaitingMessage) {
        let WaitingMessage { offset, number, message, meta, history, due, carried, .. } = waiting;
        let due = due.unwrap_or(self.now);
        let key = self.backlog.keys().key_of(&message);
        let copy = self.copy_of(number, message, meta, history, &carried);
        self.write_retry(copy, due, 0, Settled { lane, offset, key, ticket: None });
    }

    /// Marks a record as done.
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
        // In a loop, because a letter that replaces a refused copy may be refused at once.
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

    /// Makes sure that these letters are finished here. A letter may be read from its topic before its acknowledgement
    /// is handled; until then nothing may be done with it.
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
                // If the retry is no longer expected, a record of it was read already: this one, or one that was
                // thought lost.
                let is_unread = match mark.kind {
                    CopyKind::Retry { due } => self.transit.retry_stored(due, mark.number),
                    CopyKind::Letter | CopyKind::Success { .. } => {
                        self.transit.finish_stored(mark.number);
                        true
                    }
                };
                self.mark(mark.lane, mark.offset, mark.ticket);
                // Marks come first: a batch without open copies may be reported as durable.
                if let Some(ticket) = mark.ticket {
                    self.tickets.copied(ticket);
                }
                self.copy_stored(&production, mark, stored.filter(|_| is_unread));
            }
        }
    }

    /// Handles a copy that Kafka will never accept as it is. Its partition continues with a truncated letter; if not
    /// even that is accepted, the partition is held.
    fn refused(&mut self, production: Production<AfterWrite>, code: RDKafkaErrorCode) {
        match &production.then {
            // The whole copy of a letter that is in the topic, truncated. It is offered again.
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

    /// Tells the letters about one of our own, so that it is known before the mirror has read it.
    fn letter_stored(&mut self, production: &Production<AfterWrite>, (partition, offset): (i32, i64)) {
        if let Body::Copy { copy, .. } = &production.body
            && production.topic == self.copies.topics().letters().name
        {
            self.letters.parked(partition, offset, copy);
        }
    }

    /// Finishes what had to wait until a copy was stored. `stored` is where, unless the record was read already.
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
                    // It was read before it was acknowledged, and has joined its key a second time, or another member
                    // reads it.
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

    /// Handles a stored copy that was written for an assignment that is over.
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

    /// Handles a stored letter that this process wrote for an earlier assignment: if its record was assigned to us
    /// again and waits, it is done.
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
