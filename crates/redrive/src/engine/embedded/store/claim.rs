//! Claims one message, whatever it waits for.

use redrive_core::{Meta, Time};

use super::contents::damaged_message;
use super::crash_marks::CrashMarks;
use super::in_flight::Held;
use super::waiting::Waiting;
use crate::engine::Claimed;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LineSlot, Pointer, Space};
use crate::engine::embedded::journal::log::ReadError;
use crate::engine::embedded::journal::record::{Was, kind};
use crate::engine::history::History;
use crate::engine::pending::{PendingAt, PendingState};
use crate::engine::seam::{Delivery, EngineError};

/// Why a message cannot be claimed at the given place.
enum Elsewhere {
    Out,
    Gone,
}

impl<D: Disk, S: IndexTables> Waiting<D, S> {
    /// Hands out one message to be settled, whatever it waits for.
    pub(crate) fn claim(
        &mut self,
        at: &PendingAt,
        marks: &mut CrashMarks<D::File>,
        now: Time,
    ) -> Result<Claimed, EngineError> {
        let seq = at.number;
        if let Some(delivery) = self.in_flight.take_returned(seq) {
            return Ok(Claimed::Taken(Box::new(delivery)));
        }
        if self.in_flight.contains(seq) || self.keys.is_passed(seq) {
            return Ok(Claimed::InFlight);
        }
        let (was, pointer) = match self.waits_where(at)? {
            Ok(found) => found,
            Err(Elsewhere::Out) => return Ok(Claimed::InFlight),
            Err(Elsewhere::Gone) => return Ok(Claimed::NotThere),
        };
        let content = self.contents.at(pointer)?;
        let key = match &content {
            Some(content) => self.book.hash_of(&content.message),
            None => self.book.key_in_line(seq)?,
        };
        let in_line = match key {
            Some(hash) => self.book.lines().get(&(hash, seq), &self.book.table(Space::Lines))?.is_some(),
            None => false,
        };
        match was {
            Was::Waiting { due } => self.book.hand_out_delayed((due, seq), pointer),
            Was::Fresh => self.in_flight.claim_ready(seq),
            Was::Blocked | Was::Letter => {}
        }
        // No message of its key starts until it is settled.
        if let Some(hash) = key {
            self.keys.hold(hash);
        }
        let receipt = self.in_flight.hand_out(seq, Held::claimed(was, key, pointer, in_line));
        let (message, meta, history, due) = match content {
            Some(content) => (content.message, content.meta, content.history, content.due),
            None => (damaged_message(seq)?, Meta::default(), History::default(), None),
        };
        let due = due.map(Time::from_millis);
        let suspect = marks.suspect(seq, now);
        let (arrived, doomed) = (None, None);
        let taken = Delivery { receipt, message, meta, history, due, arrived, origin: None, doomed, suspect };
        Ok(Claimed::Taken(Box::new(taken)))
    }

    /// The state of the message and where its content is, if it still waits there.
    fn waits_where(&self, at: &PendingAt) -> Result<Result<(Was, Pointer), Elsewhere>, EngineError> {
        let (seq, key) = (at.number, at.key);
        if key.1 != seq {
            return Ok(Err(Elsewhere::Gone));
        }
        let found = match at.state {
            PendingState::Ready if self.book.departed().contains(seq) => None,
            PendingState::Ready => match self.contents.journal().read_frame(key.0) {
                Ok(frame) if frame.kind == kind::ACCEPTED && frame.tag == seq => {
                    let len = frame.end() - frame.position;
                    Some((Was::Fresh, Pointer::new(key.0, len as u32)))
                }
                Ok(_) | Err(ReadError::Rot { .. } | ReadError::Missing { .. }) => None,
                Err(error) => return Err(error.into()),
            },
            PendingState::Held | PendingState::Delayed => {
                let pointer = self.book.delay().get(&key, &self.book.table(Space::Delay))?;
                pointer.map(|pointer| (Was::Waiting { due: key.0 }, pointer))
            }
            PendingState::KeyWait => match self.book.lines().get(&key, &self.book.table(Space::Lines))? {
                Some(LineSlot::Blocked(pointer)) => Some((Was::Blocked, pointer)),
                Some(LineSlot::Delayed) | None => None,
            },
            PendingState::InFlight => return Ok(Err(Elsewhere::Out)),
        };
        Ok(found.ok_or(Elsewhere::Gone))
    }
}
