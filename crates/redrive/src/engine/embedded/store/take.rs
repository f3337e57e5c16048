//! Handing out: which messages may start now, fresh ones and due ones, each key in its order.

use redrive_core::{Meta, Reason, Time};

use super::contents::{Content, content_of, damaged_message};
use super::in_flight::{Held, InFlight};
use super::key_gate::Passed;
use super::store::Store;
use crate::engine::embedded::crash::started::{LastRun, Mark};
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LineSlot, Pointer, Space};
use crate::engine::embedded::journal::record::{Blocked, Was};
use crate::engine::embedded::state::ready::ReadyMessage;
use crate::engine::embedded::write::command::Command;
use crate::engine::history::History;
use crate::engine::seam::{Delivery, EngineError, Execution, Receipt, Settlement, share};

/// Ready messages that may be passed over in one go because their keys are busy.
const PASSED_MAX: usize = 4096;

/// A message as it was read, before anybody asked whether it may start.
struct Candidate {
    seq: u64,
    pointer: Pointer,
    was: Was,
    content: Option<Content>,
}

impl Held {
    fn mark(&self, seq: u64) -> Mark {
        Mark {
            seq,
            due: if let Was::Waiting { due } = self.was { Some(due) } else { None },
            line: if self.was == Was::Blocked { self.key } else { None },
        }
    }
}

/// The mark of a delivery that is out, unless the receipt is of an earlier hand-out.
fn mark_of(in_flight: &InFlight, receipt: &Receipt) -> Option<Mark> {
    Some(in_flight.of_receipt(receipt)?.mark(receipt.seq))
}

/// All that are out, for a file of marks that begins anew.
fn marks_of(in_flight: &InFlight) -> LastRun {
    let mut out = LastRun::default();
    for (seq, held) in in_flight.iter() {
        if held.goes.is_some() {
            out.returned.push(held.mark(seq));
        } else {
            out.running.push(held.mark(seq));
        }
    }
    out
}

impl<D: Disk, S: IndexTables> Store<D, S> {
    pub(crate) fn hand_out(
        &mut self,
        now: Time,
        room: usize,
        out: &mut Vec<Delivery>,
    ) -> Result<(), EngineError> {
        self.now = now;
        if self.gated || room == 0 {
            return Ok(());
        }
        self.release_looked_at()?;
        self.in_flight.forget_claimed_below(self.ready.next_seq());
        let first = out.len();
        let due = self.book.delay().due_count(now, room);
        let ready = self.book.departed().unfinished_below(self.book.next_seq()) as usize;
        let fresh = (ready + self.keys.released() + self.in_flight.returned().len()).min(room);
        let (due_places, fresh_places) = share(room, due, fresh, self.odd_to_due);
        self.odd_to_due = !self.odd_to_due;
        self.take_due(now, due_places, out)?;
        self.take_fresh((out.len() - first) + fresh_places, first, out)?;
        // What one side left over, the other gets.
        self.take_due(now, room - (out.len() - first), out)?;
        self.take_fresh(room, first, out)?;
        self.mark_started(&out[first..])
    }

    /// Hands out what is due and nothing else.
    pub(crate) fn hand_out_due(
        &mut self,
        now: Time,
        room: usize,
        out: &mut Vec<Delivery>,
    ) -> Result<(), EngineError> {
        self.now = now;
        if self.gated {
            return Ok(());
        }
        let first = out.len();
        self.take_due(now, room, out)?;
        self.mark_started(&out[first..])
    }

    fn mark_started(&mut self, taken: &[Delivery]) -> Result<(), EngineError> {
        if taken.is_empty() || self.options.execution == Execution::Elsewhere {
            return Ok(());
        }
        let in_flight = &self.in_flight;
        let out = |delivery: &Delivery| mark_of(in_flight, &delivery.receipt);
        // Where a suspect is found may have changed since it became one.
        if !self.suspects.is_empty() {
            for mark in taken.iter().filter_map(out) {
                let moved = self.suspects.moved(mark);
                moved.map_err(|error| EngineError::Storage(format!("marking suspects: {error}")))?;
            }
        }
        // Suspects too: a mark adds no crash to one that is known, and names it should it be known no more.
        let marked = self.started.mark(taken.iter().filter_map(out), || marks_of(in_flight));
        marked.map_err(|error| EngineError::Storage(format!("marking what was started: {error}")))
    }

    /// Notes which of these deliveries came back, before their verdicts are written: a process that dies in between has
    /// not died of them.
    pub(crate) fn mark_returned(&mut self, batch: &[Settlement]) -> Result<(), EngineError> {
        if self.options.execution == Execution::Elsewhere {
            return Ok(());
        }
        let in_flight = &self.in_flight;
        let out = |delivery: &Delivery| mark_of(in_flight, &delivery.receipt);
        let returned = batch.iter().filter(|settlement| settlement.verdict.clears());
        let returned = returned.filter_map(|settlement| out(&settlement.delivery));
        let marked = self.started.returned(returned, || marks_of(in_flight));
        marked.map_err(|error| EngineError::Storage(format!("marking what came back: {error}")))
    }

    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        let mut left = room;
        while left > 0 {
            let mut popped = Vec::new();
            while popped.len() < left
                && let Some((key, pointer)) = self.book.pop_due(now)
            {
                popped.push((pointer, key));
            }
            if popped.is_empty() {
                return Ok(());
            }
            popped.sort_unstable_by_key(|(pointer, _)| pointer.at);
            let mut wanted: Vec<_> =
                popped.iter().map(|(pointer, _)| (pointer.at, u64::from(pointer.len))).collect();
            let frames = self.contents.journal().read_many(&mut wanted);
            let mut passed = Vec::new();
            for (frame, (pointer, (due, seq))) in frames.into_iter().zip(popped) {
                let was = Was::Waiting { due };
                let content = content_of(frame)?;
                if let Some(delivery) = self.admit(Candidate { seq, pointer, was, content }, &mut passed)? {
                    out.push(delivery);
                    left -= 1;
                }
            }
            self.pass_over(passed);
        }
        Ok(())
    }

    /// Fresh messages until `out` holds `upto` more than `first`.
    fn take_fresh(&mut self, upto: usize, first: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        while out.len() - first < upto
            && let Some(delivery) = self.in_flight.pop_returned()
        {
            out.push(delivery);
        }
        let mut passed = Vec::new();
        while out.len() - first < upto
            && let Some((hash, seq)) = self.keys.pop_released()
        {
            // Somebody claimed it; the line moves on when that is settled.
            if self.in_flight.contains(seq) {
                continue;
            }
            let slot = self.book.lines().get(&(hash, seq), &self.book.table(Space::Lines))?;
            let Some(LineSlot::Blocked(pointer)) = slot else {
                // It was cancelled meanwhile: the turn is the next one's.
                self.release(hash)?;
                continue;
            };
            let content = content_of(self.contents.journal().read(pointer.at, u64::from(pointer.len)))?;
            let candidate = Candidate { seq, pointer, was: Was::Blocked, content };
            out.extend(self.admit(candidate, &mut passed)?);
        }
        while out.len() - first < upto && passed.len() < PASSED_MAX {
            let Some(message) = self.next_ready()? else { break };
            let ReadyMessage { seq, pointer, wire } = message;
            if self.in_flight.unclaim(seq) {
                continue;
            }
            let content = wire.and_then(Content::fresh);
            out.extend(self.admit(Candidate { seq, pointer, was: Was::Fresh, content }, &mut passed)?);
        }
        self.pass_over(passed);
        Ok(())
    }

    fn next_ready(&mut self) -> Result<Option<ReadyMessage>, EngineError> {
        if let Some(message) = self.ready.pop(self.book.departed(), self.book.next_seq())? {
            return Ok(Some(message));
        }
        self.ready.lose_until(self.book.next_seq(), self.book.departed());
        Ok(self.ready.pop(self.book.departed(), self.book.next_seq())?)
    }

    /// A delivery if the candidate may start, or has to be settled as dead; otherwise it is passed over.
    fn admit(
        &mut self,
        candidate: Candidate,
        passed: &mut Vec<Blocked>,
    ) -> Result<Option<Delivery>, EngineError> {
        let Candidate { seq, pointer, was, content } = candidate;
        let Some(content) = content else { return self.doom_damaged(seq, was, pointer).map(Some) };
        let mut doomed = None;
        let key = self.book.hash_of(&content.message);
        if let Some(hash) = key {
            // One that came due and was never looked at must not overtake ready messages nobody has looked at either. A
            // letter may be such a one: it was cancelled before its turn.
            let was_started = content.in_line && content.meta.replays == 0;
            let looked_at = was == Was::Fresh || was_started || self.ready.next_seq() > seq;
            if !looked_at || !self.may_start(hash, seq)? {
                passed.push(Blocked { seq, was, key: hash, at: pointer.at, len: pointer.len });
                self.keys.pass(seq, Passed { key: hash, was, pointer });
                return Ok(None);
            }
            doomed = self.book.is_key_blocked(hash, seq)?.then_some(Reason::KeyBlocked);
            self.keys.start(hash, seq);
        }
        let receipt = self.in_flight.hand_out(seq, Held::started(was, key, pointer));
        Ok(Some(Delivery {
            receipt,
            message: content.message,
            meta: content.meta,
            history: content.history,
            due: content.due.map(Time::from_millis),
            arrived: None,
            origin: None,
            doomed,
            suspect: self.suspects.of(seq, self.now).map(Box::new),
        }))
    }

    /// Whether nothing of its key stands before it.
    fn may_start(&mut self, hash: u64, seq: u64) -> Result<bool, EngineError> {
        if self.keys.is_busy(hash) {
            return Ok(false);
        }
        Ok(self.book.first_in_line(hash)?.is_none_or(|((_, first), _)| first >= seq))
    }

    /// A delivery came back unstarted: it waits again where it was.
    pub(crate) fn put_back(&mut self, delivery: Delivery, mut held: Held) -> Result<(), EngineError> {
        let seq = delivery.receipt.seq;
        // One that was claimed before its turn is met again when that comes.
        let is_ahead = held.was == Was::Fresh && held.claimed && self.in_flight.unclaim(seq);
        if held.was == Was::Fresh && held.key.is_none() && !is_ahead {
            self.in_flight.push_returned(delivery);
            return Ok(());
        }
        self.in_flight.remove(seq);
        // The cleaner may have moved it while it was out.
        let moved = match held.was {
            Was::Waiting { due } => self.book.delay().get(&(due, seq), &self.book.table(Space::Delay))?,
            _ => None,
        };
        held.pointer = moved.unwrap_or(held.pointer);
        let Some(hash) = held.key else {
            if let Was::Waiting { due } = held.was {
                self.book.put_back_delayed((due, seq), held.pointer);
            }
            return Ok(());
        };
        self.keys.end(hash, seq);
        if held.claimed {
            self.keys.unhold(hash);
        }
        let slot = self.book.lines().get(&(hash, seq), &self.book.table(Space::Lines))?;
        match (slot, held.was) {
            (Some(LineSlot::Delayed), Was::Waiting { due }) => {
                self.book.put_back_delayed((due, seq), held.pointer);
            }
            // It was never looked at, and its time need not have come.
            (None, Was::Waiting { due }) if held.claimed => {
                self.book.put_back_delayed((due, seq), held.pointer);
            }
            (None, Was::Fresh) if is_ahead => {}
            (Some(_), _) => {}
            (None, was) => {
                // It is not in its line yet, and others of its key may come due before it is taken again.
                let Pointer { at, len, .. } = held.pointer;
                self.keys.pass(seq, Passed { key: hash, was, pointer: held.pointer });
                self.pass_over(vec![Blocked { seq, was, key: hash, at, len }]);
            }
        }
        self.release(hash)
    }

    fn pass_over(&mut self, passed: Vec<Blocked>) {
        if !passed.is_empty() {
            self.post(Command::Block(passed));
        }
    }

    /// The stored bytes of a message are damaged: it goes to the dead letters with what is known of it.
    fn doom_damaged(&mut self, seq: u64, was: Was, pointer: Pointer) -> Result<Delivery, EngineError> {
        let key = self.book.key_in_line(seq)?;
        if let Some(hash) = key {
            self.keys.start(hash, seq);
        }
        let receipt = self.in_flight.hand_out(seq, Held::started(was, key, pointer));
        let (message, meta, history) = (damaged_message(seq)?, Meta::default(), History::default());
        let due = if let Was::Waiting { due } = was { Some(Time::from_millis(due)) } else { None };
        let (arrived, doomed) = (None, Some(Reason::Corrupt));
        Ok(Delivery { receipt, message, meta, history, due, arrived, origin: None, doomed, suspect: None })
    }

    /// Lets blocked messages go that had to wait until the ready ones before them were looked at.
    fn release_looked_at(&mut self) -> Result<(), EngineError> {
        while let Some(hash) = self.keys.pop_looked_at(self.ready.next_seq()) {
            self.release(hash)?;
        }
        Ok(())
    }

    /// After a restart: whoever is first in line may go, in its turn.
    pub(crate) fn release_all(&mut self) -> Result<(), EngineError> {
        let mut from = (0, 0);
        loop {
            let next = self.book.lines().range(&from, 1, &self.book.table(Space::Lines))?;
            let Some(((hash, _), _)) = next.first().copied() else { return Ok(()) };
            self.release(hash)?;
            let Some(after) = hash.checked_add(1) else { return Ok(()) };
            from = (after, 0);
        }
    }
}
