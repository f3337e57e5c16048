//! Verdicts: what is delivered is marked, what failed is copied to where it goes on, and marked once the copy is safe.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode;
use redrive::engine::{AfterDead, Delivery, EngineError, LetterState, Settlement, Ticket, Verdict};
use redrive_core::{Message, Meta, Time};

use super::engine::{Claim, KafkaEngine, Target, Then, What};
use crate::backlog::lane::{Lane, Out};
use crate::clock::wall_time;
use crate::letters::Letters;
use crate::produce::{Body, Ended, Production};
use crate::record::{CopyRecord, LetterMarks, Origin};
use crate::record::{Waiting, origin_of};
use crate::topics::LaneKind;

impl KafkaEngine {
    pub(crate) fn give(&mut self, batch: Vec<Settlement>) -> Ticket {
        let ticket = self.tickets.begin(self.epoch);
        self.notice_gap();
        if self.unsure.is_some() && self.claim == Claim::Ours {
            // Others may have delivered these meanwhile: a copy would be a twin of theirs.
            self.tickets.copying(ticket);
            self.unsettled.push((ticket, batch));
            return ticket;
        }
        for settlement in batch {
            self.settle_one(settlement, ticket);
        }
        // Whatever ends the process from here on, it was none of these.
        self.started.flush();
        self.absorb_ended();
        ticket
    }

    /// The partitions are ours after all, or it does not matter any more.
    pub(crate) fn settle_what_waited(&mut self) {
        for (ticket, batch) in std::mem::take(&mut self.unsettled) {
            for settlement in batch {
                self.settle_one(settlement, ticket);
            }
            // Like a copy that was waited for: until now the batch was not durable.
            self.tickets.copied(ticket);
        }
        self.absorb_ended();
    }

    fn settle_one(&mut self, settlement: Settlement, ticket: Ticket) {
        let Settlement { delivery, verdict, attempt } = settlement;
        let receipt = delivery.receipt;
        let at = receipt.lane as usize;
        // A receipt of an assignment that is over settles nothing: whoever has the partition now delivers it again.
        if receipt.epoch != self.epoch || at >= self.lanes.len() {
            return;
        }
        let Some(out) = self.lanes[at].out.remove(&receipt.at) else { return };
        if verdict.clears() {
            self.came_back(at, receipt.at);
        }
        let history = match &attempt {
            Some(attempt) => delivery.history.with(attempt),
            None => delivery.history.clone(),
        };
        match verdict {
            Verdict::Release => self.take_back(delivery, out),
            // Its letter came late, from an owner before us: a second one would be a twin, and so would a retry.
            Verdict::Retry { .. } | Verdict::Dead { .. } if self.is_dead_already(&delivery) => {
                self.died(out.key, receipt.seq);
                self.mark(at, receipt.at, Some(ticket));
                self.pass_over_these(&[(at, receipt.at)]);
            }
            Verdict::Done if self.letters.wants_success(receipt.seq, delivery.meta.replays) => {
                self.tell_success(&delivery, &out, ticket);
            }
            Verdict::Done => {
                if let Some(key) = out.key {
                    self.keys.stop(key, receipt.seq);
                    self.keys.leave(key, receipt.seq);
                }
                self.mark(at, receipt.at, Some(ticket));
            }
            Verdict::Retry { due, meta } => {
                if let Some(key) = out.key {
                    self.keys.stop(key, receipt.seq);
                }
                let copy = self.copy_of(receipt.seq, delivery.message, meta, history, &out);
                let copy = CopyRecord { due: Some(due), ..copy };
                let target = self.tier_for(&meta, due);
                self.copying.insert((due.as_millis(), receipt.seq));
                self.send_copy(&target, copy, (at, receipt.at), out.key, Some(ticket), What::Retry { due });
            }
            Verdict::Dead { reason, meta, at: dead_at } => {
                let copy = self.copy_of(receipt.seq, delivery.message, meta, history, &out);
                let copy = CopyRecord { reason: Some(reason), dead_at: Some(dead_at), ..copy };
                let target = self.dlq.clone();
                self.send_copy(&target, copy, (at, receipt.at), out.key, Some(ticket), What::Dead);
            }
        }
    }

    fn is_dead_already(&self, delivery: &Delivery) -> bool {
        self.has_died_late(delivery.receipt.seq, delivery.meta.replays, delivery.meta.created)
    }

    fn copy_of(
        &self,
        number: u64,
        message: Message,
        meta: Meta,
        history: redrive::engine::History,
        out: &Out,
    ) -> CopyRecord {
        let origin = origin_of(number, out.carried.topic.as_ref().unwrap_or(&self.source));
        CopyRecord {
            message,
            meta,
            history,
            origin,
            due: None,
            reason: None,
            dead_at: None,
            job: out.carried.job,
            marks: LetterMarks::default(),
        }
    }

    fn send_copy(
        &mut self,
        target: &Target,
        copy: CopyRecord,
        (lane, offset): (usize, u64),
        key: Option<u64>,
        ticket: Option<Ticket>,
        what: What,
    ) {
        let Lane { topic, partition, .. } = &self.lanes[lane];
        let from = Origin { topic: Arc::clone(topic), partition: *partition, offset: offset.cast_signed() };
        let number = copy.origin.number();
        let partition = target.partition(copy.origin.partition);
        if let Some(ticket) = ticket {
            self.tickets.copying(ticket);
        }
        if what == What::Dead {
            self.ending.insert(number);
        }
        let then = Then::Mark { lane, epoch: self.epoch, offset, key, number, ticket, what };
        let body = Body::Copy { copy: Box::new(copy), from: Some(from) };
        let production = Production { topic: Arc::clone(&target.name), partition, body, then };
        self.outbox.send(production, &mut self.ended);
    }

    /// A letter that was put back is delivered: that is written before its record is done with.
    fn tell_success(&mut self, delivery: &Delivery, out: &Out, ticket: Ticket) {
        let (number, replays) = (delivery.receipt.seq, delivery.meta.replays);
        let (key, value) = Letters::succeeded_state(number, replays, out.carried.job, wall_time());
        self.tickets.copying(ticket);
        self.ending.insert(number);
        let then = Then::Mark {
            lane: delivery.receipt.lane as usize,
            epoch: self.epoch,
            offset: delivery.receipt.at,
            key: out.key,
            number,
            ticket: Some(ticket),
            what: What::Succeeded { replays },
        };
        let partition = self.dlq_state.partition((number >> 48) as i32);
        let body = Body::Plain { key, value: Some(value) };
        let topic = Arc::clone(&self.dlq_state.name);
        self.outbox.send(Production { topic, partition, body, then }, &mut self.ended);
    }

    /// The tier for a delay: the one of the attempt if the delay fits it, else the shortest that it fits, else the last.
    pub(crate) fn tier_for(&self, meta: &Meta, due: Time) -> Target {
        let delay = due.since(self.now);
        let fits = |tier: &Duration| delay <= *tier * 2;
        let of_attempt = meta.attempts.checked_sub(1).and_then(|at| self.tiers.get(at as usize));
        let tier = of_attempt.filter(|(tier, _)| fits(tier));
        let tier =
            tier.or_else(|| self.tiers.iter().find(|(tier, _)| fits(tier))).or_else(|| self.tiers.last());
        // Without tiers a retry waits where letters do that were put back.
        tier.map_or_else(|| self.replay_topic.clone(), |(_, target)| target.clone())
    }

    /// It has run and the process lives, whatever becomes of its copy.
    fn came_back(&mut self, at: usize, offset: u64) {
        let lane = &mut self.lanes[at];
        lane.suspected.settled(offset);
        self.started.ended(lane.place, offset);
    }

    /// A record is done with.
    pub(crate) fn mark(&mut self, at: usize, offset: u64, ticket: Option<Ticket>) {
        let lane = &mut self.lanes[at];
        lane.mark(offset);
        // Not one that ran here: a twin of it, or a letter of it, was met.
        if lane.suspected.settled(offset) {
            self.started.ended(lane.place, offset);
        }
        if lane.kind != LaneKind::Source && lane.room.free(1, 0) {
            self.mailbox.call_reader();
        }
        if let Some(ticket) = ticket {
            self.tickets.marked(ticket, at, lane.marks);
        }
    }

    /// Hears of copies that were acknowledged or refused.
    pub(crate) fn absorb_ended(&mut self) {
        // More than once: a letter that takes the place of one that was refused may be refused at once.
        loop {
            let mut ended = std::mem::take(&mut self.ended);
            for (production, how) in ended.drain(..) {
                self.production_ended(production, &how);
            }
            if self.ended.is_empty() {
                self.ended = ended;
                return;
            }
        }
    }

    /// A letter may be read from its topic before its acknowledgement is heard. Until then its message is not at its end
    /// here, and nothing may be done with the letter.
    pub(crate) fn check_written(&mut self, letters: &[u64]) -> Result<(), EngineError> {
        let is_ending = |engine: &Self| letters.iter().any(|number| engine.ending.contains(number));
        if is_ending(self) {
            self.outbox.poll(&mut self.ended);
            self.absorb_ended();
        }
        if is_ending(self) {
            return Err(EngineError::Unavailable("a letter of these is still being written".to_owned()));
        }
        Ok(())
    }

    fn production_ended(&mut self, production: Production<Then>, how: &Ended) {
        let stored = match how {
            Ended::Stored { partition, offset } => Some((*partition, *offset)),
            Ended::Refused(code) => return self.refused(production, *code),
            Ended::GivenUp => None,
        };
        match &production.then {
            Then::Nothing => {}
            Then::Spooled(path) => self.spooled_stored(path, &production, stored),
            Then::Progress { lane, epoch } => self.progress_written(*lane, *epoch),
            Then::Mark { epoch, ticket, .. } if stored.is_none() || *epoch != self.epoch => {
                if let (Then::Mark { what, number, .. }, Some(_)) = (&production.then, stored) {
                    self.late_copy_stored(&production, *what, stored, *number);
                }
                if let Some(ticket) = ticket {
                    self.tickets.copied(*ticket);
                }
            }
            Then::Mark { lane, offset, key, number, ticket, what, .. } => {
                // If it is not there any more, a record of it is read already: this one, or one that was thought lost.
                let is_unread = match what {
                    What::Retry { due } => self.copying.remove(&(due.as_millis(), *number)),
                    What::Dead | What::Succeeded { .. } => {
                        self.ending.remove(number);
                        true
                    }
                };
                self.mark(*lane, *offset, *ticket);
                // The marks first: a batch without open copies may be durable.
                if let Some(ticket) = ticket {
                    self.tickets.copied(*ticket);
                }
                self.copy_stored(&production, *what, stored.filter(|_| is_unread), *key, *number);
            }
        }
    }

    /// Kafka will never take it as it is. Its partition goes on with a letter that is cut; where not even that is taken, it
    /// is held.
    fn refused(&mut self, production: Production<Then>, code: RDKafkaErrorCode) {
        match &production.then {
            // The whole copy of a letter that is in the topic, cut. It is offered again.
            Then::Spooled(path) => {
                tracing::warn!(path = %path.display(), %code, "Kafka still refuses a spooled record");
            }
            // Whoever has the partition now has the record.
            Then::Mark { epoch, ticket, .. } if *epoch != self.epoch => {
                ticket.iter().for_each(|ticket| self.tickets.copied(*ticket));
            }
            _ => match self.letter_that_is_cut(&production, code) {
                Some(letter) => self.outbox.send(letter, &mut self.ended),
                None => self.outbox.hold(production, code),
            },
        }
    }

    /// What else a copy changes that is safe now.
    fn copy_stored(
        &mut self,
        production: &Production<Then>,
        what: What,
        stored: Option<(i32, i64)>,
        key: Option<u64>,
        number: u64,
    ) {
        match (what, stored) {
            (What::Retry { due }, Some((partition, offset))) => {
                let lane = self.by_name.get(&(Arc::clone(&production.topic), partition)).copied();
                let offset = offset.max(0) as u64;
                match lane {
                    Some(at) if self.lanes[at].next <= offset => {
                        self.lanes[at].end = self.lanes[at].end.max(offset + 1);
                        self.under_way.insert((due.as_millis(), at, offset));
                    }
                    // It was read before its acknowledgement came, and so stands in its line twice; or somebody else
                    // reads it.
                    Some(_) | None => self.leave(key, number),
                }
            }
            (What::Dead, Some((partition, offset))) => {
                if let Body::Copy { copy, .. } = &production.body {
                    self.letters.parked(partition, offset, copy);
                }
                self.died(key, number);
            }
            (What::Dead, None) => self.died(key, number),
            (What::Retry { .. }, None) => self.leave(key, number),
            (What::Succeeded { replays }, _) => {
                self.letters.succeeded(number, replays);
                if let Some(key) = key {
                    self.keys.stop(key, number);
                }
                self.leave(key, number);
            }
        }
    }

    /// A copy that was written for an assignment that is over is safe.
    fn late_copy_stored(
        &mut self,
        production: &Production<Then>,
        what: What,
        stored: Option<(i32, i64)>,
        number: u64,
    ) {
        let Some((partition, offset)) = stored else { return };
        match (what, &production.body) {
            (What::Retry { .. }, _) => {
                if let Some(lane) = self.by_name.get(&(Arc::clone(&production.topic), partition)) {
                    let lane = &mut self.lanes[*lane];
                    lane.end = lane.end.max(offset.max(0) as u64 + 1);
                    lane.late_end = lane.end;
                }
            }
            (What::Dead, Body::Copy { copy, from }) => {
                self.letters.parked(partition, offset, copy);
                if let Some(from) = from {
                    self.late_letter(from, copy);
                }
            }
            (What::Dead, Body::Plain { .. }) => {}
            (What::Succeeded { replays }, _) => self.letters.succeeded(number, replays),
        }
    }

    fn leave(&mut self, key: Option<u64>, number: u64) {
        if let Some(key) = key {
            self.keys.leave(key, number);
        }
    }

    pub(crate) fn died(&mut self, key: Option<u64>, number: u64) {
        let Some(key) = key else { return };
        // It may be put back, and read, before the acknowledgement of its letter is heard: then it blocks nobody.
        let is_put_back = || self.letters.state_of(number) == Some(LetterState::Replaying);
        if self.options.after_dead == AfterDead::BlockKey && !is_put_back() {
            self.keys.letter_opened(key, number);
        }
        self.keys.stop(key, number);
        self.keys.leave(key, number);
    }

    /// Writes a waiting message again at the end of the tier that fits what is left of its delay.
    pub(crate) fn move_straggler(&mut self, lane: usize, waiting: Waiting) {
        let Waiting { offset, number, message, meta, history, due, carried, .. } = waiting;
        let due = due.unwrap_or(self.now);
        let key = self.is_ordered().then(|| crate::backlog::keys::hash_of(&message)).flatten();
        let copy = self.copy_of(number, message, meta, history, &Out { carried, key, waits: false });
        let target = self.tier_for(&Meta { attempts: 0, ..meta }, due);
        self.copying.insert((due.as_millis(), number));
        let copy = CopyRecord { due: Some(due), ..copy };
        self.send_copy(&target, copy, (lane, offset), key, None, What::Retry { due });
    }
}
