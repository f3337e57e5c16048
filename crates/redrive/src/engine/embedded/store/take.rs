//! Handing out: which messages may start now, fresh and due ones, each key in order.

use redrive_core::{Meta, Reason, Time};

use super::contents::{Content, content_of, damaged_message};
use super::crash_marks::CrashMarks;
use super::in_flight::Held;
use super::key_gate::Passed;
use super::waiting::Waiting;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LineSlot, Pointer, Space};
use crate::engine::embedded::journal::record::{Blocked, Was};
use crate::engine::embedded::state::ready::ReadyMessage;
use crate::engine::history::History;
use crate::engine::seam::{Delivery, EngineError, share};

/// How many ready messages may be passed over in one call because their keys are busy.
const PASSED_MAX: usize = 4096;

/// A message that was read but not yet checked for whether it may start.
struct Candidate {
    seq: u64,
    pointer: Pointer,
    was: Was,
    content: Option<Content>,
}

/// One call of `take`.
pub(crate) struct Taking<'a, D: Disk, S: IndexTables> {
    waiting: &'a mut Waiting<D, S>,
    marks: &'a mut CrashMarks<D::File>,
    now: Time,
    /// Messages passed over because their keys are busy; they have to be recorded.
    passed: Vec<Blocked>,
}

impl<'a, D: Disk, S: IndexTables> Taking<'a, D, S> {
    pub(crate) fn new(waiting: &'a mut Waiting<D, S>, marks: &'a mut CrashMarks<D::File>, now: Time) -> Self {
        Self { waiting, marks, now, passed: Vec::new() }
    }

    /// The messages passed over.
    pub(crate) fn into_passed(self) -> Vec<Blocked> {
        self.passed
    }

    /// Hands out up to `room` messages, half due and half fresh ones if there are enough of both.
    pub(crate) fn take(
        &mut self,
        room: usize,
        odd_to_due: bool,
        out: &mut Vec<Delivery>,
    ) -> Result<(), EngineError> {
        let waiting = &mut *self.waiting;
        waiting.release_looked_at()?;
        waiting.in_flight.forget_claimed_below(waiting.ready.next_seq());
        let first = out.len();
        let due = waiting.book.delay().due_count(self.now, room);
        let ready = waiting.book.departed().unfinished_below(waiting.book.next_seq()) as usize;
        let fresh = (ready + waiting.keys.released() + waiting.in_flight.returned().len()).min(room);
        let (due_places, fresh_places) = share(room, due, fresh, odd_to_due);
        self.take_due(due_places, out)?;
        self.take_fresh((out.len() - first) + fresh_places, first, out)?;
        // Places that one side left go to the other.
        self.take_due(room - (out.len() - first), out)?;
        self.take_fresh(room, first, out)
    }

    /// Hands out due messages only.
    pub(crate) fn take_due(&mut self, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        let mut left = room;
        while left > 0 {
            let mut popped = Vec::new();
            while popped.len() < left
                && let Some((key, pointer)) = self.waiting.book.pop_due(self.now)
            {
                popped.push((pointer, key));
            }
            if popped.is_empty() {
                return Ok(());
            }
            popped.sort_unstable_by_key(|(pointer, _)| pointer.at);
            let mut wanted: Vec<_> =
                popped.iter().map(|(pointer, _)| (pointer.at, u64::from(pointer.len))).collect();
            let frames = self.waiting.contents.journal().read_many(&mut wanted);
            for (frame, (pointer, (due, seq))) in frames.into_iter().zip(popped) {
                let was = Was::Waiting { due };
                let content = content_of(frame)?;
                if let Some(delivery) = self.admit(Candidate { seq, pointer, was, content })? {
                    out.push(delivery);
                    left -= 1;
                }
            }
        }
        Ok(())
    }

    /// Hands out fresh messages until `out` has `upto` more than `first`.
    fn take_fresh(&mut self, upto: usize, first: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        while out.len() - first < upto
            && let Some(delivery) = self.waiting.in_flight.pop_returned()
        {
            out.push(delivery);
        }
        while out.len() - first < upto
            && let Some((hash, seq)) = self.waiting.keys.pop_released()
        {
            // It is claimed; the line moves on when that is settled.
            if self.waiting.in_flight.contains(seq) {
                continue;
            }
            let slot = self.waiting.book.lines().get(&(hash, seq), &self.waiting.book.table(Space::Lines))?;
            let Some(LineSlot::Blocked(pointer)) = slot else {
                // It was cancelled meanwhile, so the next message is released.
                self.waiting.release(hash)?;
                continue;
            };
            let content =
                content_of(self.waiting.contents.journal().read(pointer.at, u64::from(pointer.len)))?;
            let candidate = Candidate { seq, pointer, was: Was::Blocked, content };
            out.extend(self.admit(candidate)?);
        }
        let passed_before = self.passed.len();
        while out.len() - first < upto && self.passed.len() - passed_before < PASSED_MAX {
            let Some(message) = self.next_ready()? else { break };
            let ReadyMessage { seq, pointer, wire } = message;
            if self.waiting.in_flight.unclaim(seq) {
                continue;
            }
            let content = wire.and_then(Content::fresh);
            out.extend(self.admit(Candidate { seq, pointer, was: Was::Fresh, content })?);
        }
        Ok(())
    }

    fn next_ready(&mut self) -> Result<Option<ReadyMessage>, EngineError> {
        if let Some(message) =
            self.waiting.ready.pop(self.waiting.book.departed(), self.waiting.book.next_seq())?
        {
            return Ok(Some(message));
        }
        self.waiting.ready.lose_until(self.waiting.book.next_seq(), self.waiting.book.departed());
        Ok(self.waiting.ready.pop(self.waiting.book.departed(), self.waiting.book.next_seq())?)
    }

    /// Returns a delivery if the candidate may start, or has to be settled as dead; otherwise passes it over.
    fn admit(&mut self, candidate: Candidate) -> Result<Option<Delivery>, EngineError> {
        let Candidate { seq, pointer, was, content } = candidate;
        let Some(content) = content else { return self.doom_damaged(seq, was, pointer).map(Some) };
        let mut doomed = None;
        let key = self.waiting.book.hash_of(&content.message);
        if let Some(hash) = key {
            // A message that came due but was never looked at must not overtake ready messages that were not looked at
            // either. That can be a letter, if it was cancelled before its turn.
            let was_started = content.in_line && content.meta.replays == 0;
            let looked_at = was == Was::Fresh || was_started || self.waiting.ready.next_seq() > seq;
            if !looked_at || !self.may_start(hash, seq)? {
                self.passed.push(Blocked { seq, was, key: hash, at: pointer.at, len: pointer.len });
                self.waiting.keys.pass(seq, Passed { key: hash, was, pointer });
                return Ok(None);
            }
            doomed = self.waiting.book.is_key_blocked(hash, seq)?.then_some(Reason::KeyBlocked);
            self.waiting.keys.start(hash, seq);
        }
        let receipt = self.waiting.in_flight.hand_out(seq, Held::started(was, key, pointer));
        Ok(Some(Delivery {
            receipt,
            message: content.message,
            meta: content.meta,
            history: content.history,
            due: content.due.map(Time::from_millis),
            arrived: None,
            origin: None,
            doomed,
            suspect: self.marks.suspect(seq, self.now),
        }))
    }

    /// Whether no message of its key precedes it.
    fn may_start(&mut self, hash: u64, seq: u64) -> Result<bool, EngineError> {
        if self.waiting.keys.is_busy(hash) {
            return Ok(false);
        }
        Ok(self.waiting.book.first_in_line(hash)?.is_none_or(|((_, first), _)| first >= seq))
    }

    /// A delivery for a message whose bytes are damaged: it becomes a dead letter with what is known about it.
    fn doom_damaged(&mut self, seq: u64, was: Was, pointer: Pointer) -> Result<Delivery, EngineError> {
        let key = self.waiting.book.key_in_line(seq)?;
        if let Some(hash) = key {
            self.waiting.keys.start(hash, seq);
        }
        let receipt = self.waiting.in_flight.hand_out(seq, Held::started(was, key, pointer));
        let (message, meta, history) = (damaged_message(seq)?, Meta::default(), History::default());
        let due = if let Was::Waiting { due } = was { Some(Time::from_millis(due)) } else { None };
        let (arrived, doomed) = (None, Some(Reason::Corrupt));
        Ok(Delivery { receipt, message, meta, history, due, arrived, origin: None, doomed, suspect: None })
    }
}
