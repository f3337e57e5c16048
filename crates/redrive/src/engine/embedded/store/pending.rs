//! What waits in the store: listed page by page, and taken out by name.
//!
//! The key of a ready message is the position of its frame and its number; of one that waits for its time its due time and
//! number; of one that waits behind its key the hash of that and its number. So a listing goes on where it ended and a claim
//! needs no search.

use std::ops::ControlFlow;

use redrive_core::Time;

use super::store::{Held, Store};
use super::take::{Content, damaged_message};
use crate::engine::Claimed;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LineSlot, Pointer, Space, WaitPlace};
use crate::engine::embedded::journal::frame::ALIGN;
use crate::engine::embedded::journal::log::ReadError;
use crate::engine::embedded::journal::reader::Scanned;
use crate::engine::embedded::journal::record::{Was, kind};
use crate::engine::history::History;
use crate::engine::letter::SCAN_BYTES;
use crate::engine::pending::{PendingAt, PendingMessage, PendingScan, PendingState};
use crate::engine::seam::{Delivery, EngineError};

/// How much of the journal one look for ready messages goes through.
const READ_BYTES: u64 = 1 << 20;

/// Entries that are read beyond those that are looked at: the one the cursor stands on, and one that says whether there are
/// more.
const ONE_MORE: usize = 2;

/// Why a message that was named cannot be claimed where it was said to wait.
enum Elsewhere {
    Out,
    Gone,
}

impl<D: Disk, S: IndexTables> Store<D, S> {
    pub(crate) fn list_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        match state {
            PendingState::Ready => self.list_ready(after, limit, look_max),
            PendingState::Held | PendingState::Delayed => self.list_timed(state, after, limit, look_max),
            PendingState::KeyWait => self.list_blocked(after, limit, look_max),
            PendingState::InFlight => Ok(PendingScan::default()),
        }
    }

    /// Ready messages stand in the journal and in no table: a piece of it is read.
    fn list_ready(
        &mut self,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        let first = self.ready.resume_from(self.book.departed().prefix()).0;
        let (from, seen) = after.map_or((first, None), |(position, seq)| (position.max(first), Some(seq)));
        // A cursor comes from outside; frames begin at multiples of this.
        let (from, end) = (from / ALIGN as u64 * ALIGN as u64, self.book.position());
        let mut scan = PendingScan::default();
        let (mut bytes, mut last) = (0, seen);
        let reader = self.journal.clone();
        let scanned = reader.scan(from, end.min(from.saturating_add(READ_BYTES)), |scanned| {
            let Scanned::Frame(frame) = scanned else { return ControlFlow::Continue(()) };
            let seq = frame.tag;
            if frame.kind != kind::ACCEPTED || seen.is_some_and(|seen| seq <= seen) {
                return ControlFlow::Continue(());
            }
            last = Some(seq);
            scan.scanned += 1;
            if self.is_ready(seq) {
                let at = PendingAt { number: seq, state: PendingState::Ready, key: (frame.position, seq) };
                let found = shown(at, Content::of(&frame));
                bytes += found.as_ref().map_or(0, PendingMessage::size);
                scan.messages.extend(found);
            }
            let full = scan.messages.len() >= limit || bytes >= SCAN_BYTES || scan.scanned >= look_max as u64;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let reached = match scanned {
            Ok(reached) => reached,
            // The cleaner has taken that piece away, so nothing in it is ready.
            Err(ReadError::Missing { .. }) => end,
            Err(error) => return Err(error.into()),
        };
        scan.next = (reached < end).then(|| (reached, last.unwrap_or(0)));
        Ok(scan)
    }

    fn is_ready(&self, seq: u64) -> bool {
        let is_out = self.in_flight.contains_key(&seq) && !self.is_returned(seq);
        !self.book.departed().contains(seq) && !is_out && !self.passed.contains_key(&seq)
    }

    fn is_returned(&self, seq: u64) -> bool {
        self.returned.iter().any(|delivery| delivery.receipt.seq == seq)
    }

    fn list_timed(
        &self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        let from = after.unwrap_or_default();
        let entries = self.book.delay().range(&from, look_max + ONE_MORE, &self.book.table(Space::Delay))?;
        let entries = entries.into_iter().filter(|(key, _)| Some(*key) != after);
        self.list(state, after, limit, look_max, entries, |(_, seq), pointer| {
            let here = !self.in_flight.contains_key(&seq) && !self.passed.contains_key(&seq);
            (here && PendingState::timed(pointer.deferred) == state).then_some(pointer)
        })
    }

    fn list_blocked(
        &self,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        let from = after.unwrap_or_default();
        let mut slots =
            self.book.lines().range(&from, look_max + ONE_MORE, &self.book.table(Space::Lines))?;
        let until = if slots.len() == look_max + ONE_MORE { slots.last().map(|(key, _)| *key) } else { None };
        // Those whose record of that is on its way to the disk stand among them.
        for (seq, passed) in &self.passed {
            let key = (passed.key, *seq);
            if key >= from && until.is_none_or(|until| key < until) {
                slots.retain(|(other, _)| *other != key);
                slots.push((key, LineSlot::Blocked(passed.pointer)));
            }
        }
        slots.sort_unstable_by_key(|(key, _)| *key);
        let entries = slots.into_iter().filter(|(key, _)| Some(*key) != after);
        self.list(PendingState::KeyWait, after, limit, look_max, entries, |(_, seq), slot| match slot {
            LineSlot::Blocked(pointer) if !self.in_flight.contains_key(&seq) => Some(pointer),
            LineSlot::Blocked(_) | LineSlot::Delayed => None,
        })
    }

    /// Goes through entries of a table and reads those that `wanted` says are there.
    fn list<V>(
        &self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
        entries: impl Iterator<Item = ((u64, u64), V)>,
        wanted: impl Fn((u64, u64), V) -> Option<Pointer>,
    ) -> Result<PendingScan, EngineError> {
        let mut scan = PendingScan { next: after, ..PendingScan::default() };
        let mut bytes = 0;
        for (key, value) in entries {
            if scan.messages.len() >= limit || bytes >= SCAN_BYTES || scan.scanned >= look_max as u64 {
                return Ok(scan);
            }
            scan.scanned += 1;
            scan.next = Some(key);
            if let Some(pointer) = wanted(key, value) {
                let found = shown(PendingAt { number: key.1, state, key }, self.content_at(pointer)?);
                bytes += found.as_ref().map_or(0, PendingMessage::size);
                scan.messages.extend(found);
            }
        }
        Ok(PendingScan { next: None, ..scan })
    }

    /// Where the message with this id waits, if that is in a table.
    pub(crate) fn locate_by_id(&self, id: &str) -> Result<Option<PendingAt>, EngineError> {
        if self.options.dedup.is_none() {
            return Err(EngineError::NotRemembered);
        }
        let slot = self.book.ids().get(&id.as_bytes().to_vec(), &self.book.table(Space::Ids))?;
        let Some(number) = slot.map(|slot| slot.seq) else { return Ok(None) };
        if let Some(passed) = self.passed.get(&number) {
            return Ok(Some(PendingAt { number, state: PendingState::KeyWait, key: (passed.key, number) }));
        }
        if self.in_flight.contains_key(&number) && !self.is_returned(number) {
            return Ok(None);
        }
        Ok(self.place_of(number)?.map(|(place, pointer)| match place {
            WaitPlace::Due(due) => {
                PendingAt { number, state: PendingState::timed(pointer.deferred), key: (due, number) }
            }
            WaitPlace::Line(hash) => PendingAt { number, state: PendingState::KeyWait, key: (hash, number) },
        }))
    }

    /// Hands one message out to be settled, whatever it waits for.
    pub(crate) fn claim_pending(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError> {
        self.now = now;
        let seq = at.number;
        if let Some(index) = self.returned.iter().position(|delivery| delivery.receipt.seq == seq) {
            return Ok(self.claim_returned(index));
        }
        if self.in_flight.contains_key(&seq) || self.passed.contains_key(&seq) {
            return Ok(Claimed::InFlight);
        }
        let (was, pointer) = match self.waits_where(at)? {
            Ok(found) => found,
            Err(Elsewhere::Out) => return Ok(Claimed::InFlight),
            Err(Elsewhere::Gone) => return Ok(Claimed::NotThere),
        };
        let content = self.content_at(pointer)?;
        let key = match &content {
            Some(content) => self.book.hash_of(&content.message),
            None => self.key_of(seq)?,
        };
        let in_line = match key {
            Some(hash) => self.book.lines().get(&(hash, seq), &self.book.table(Space::Lines))?.is_some(),
            None => false,
        };
        match was {
            Was::Waiting { due } => self.book.hand_out_delayed((due, seq), pointer),
            Was::Fresh => drop(self.claimed.insert(seq)),
            Was::Blocked | Was::Letter => {}
        }
        // Nothing of its key starts until it is settled.
        if let Some(hash) = key {
            *self.passed_keys.entry(hash).or_default() += 1;
        }
        let receipt = self.receipt(seq);
        let held = Held { was, key, pointer, receipt: receipt.at, in_line, claimed: true, goes: None };
        self.in_flight.insert(seq, held);
        let (message, meta, history, due) = match content {
            Some(content) => (content.message, content.meta, content.history, content.due),
            None => (damaged_message(seq)?, redrive_core::Meta::default(), History::default(), None),
        };
        let due = due.map(Time::from_millis);
        let suspect = self.suspects.of(seq, now).map(Box::new);
        let (arrived, doomed) = (None, None);
        let taken = Delivery { receipt, message, meta, history, due, arrived, origin: None, doomed, suspect };
        Ok(Claimed::Taken(Box::new(taken)))
    }

    /// One that came back unstarted is in memory.
    fn claim_returned(&mut self, index: usize) -> Claimed {
        let Some(mut delivery) = self.returned.remove(index) else { return Claimed::NotThere };
        delivery.receipt = self.receipt(delivery.receipt.seq);
        if let Some(held) = self.in_flight.get_mut(&delivery.receipt.seq) {
            held.receipt = delivery.receipt.at;
        }
        Claimed::Taken(Box::new(delivery))
    }

    /// What it was and where its content is, if it still waits there.
    fn waits_where(&self, at: &PendingAt) -> Result<Result<(Was, Pointer), Elsewhere>, EngineError> {
        let (seq, key) = (at.number, at.key);
        if key.1 != seq {
            return Ok(Err(Elsewhere::Gone));
        }
        let found = match at.state {
            PendingState::Ready if self.book.departed().contains(seq) => None,
            PendingState::Ready => match self.journal.read_frame(key.0) {
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

/// A message as a listing shows it, also if nothing of it can be read.
fn shown(at: PendingAt, content: Option<Content>) -> Option<PendingMessage> {
    Some(match content {
        Some(Content { message, meta, history, due, .. }) => {
            PendingMessage { at, message, meta, history, due: due.map(Time::from_millis) }
        }
        None => PendingMessage {
            at,
            message: damaged_message(at.number).ok()?,
            meta: redrive_core::Meta::default(),
            history: History::default(),
            due: None,
        },
    })
}
