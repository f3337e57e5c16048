//! Lists the waiting messages of a store, page by page.
//!
//! A listing key consists of the position of its frame and the number for a ready message, of due time and number for
//! one that waits for its due time, and of the key's hash and the number for one that waits behind its key. So a
//! listing can continue where it ended, and a claim needs no search.

use std::ops::ControlFlow;

use redrive_core::Time;

use super::contents::{Content, damaged_message};
use super::find::Lookup;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LineSlot, Pointer, Space, WaitLocation};
use crate::engine::embedded::journal::frame::ALIGN;
use crate::engine::embedded::journal::log::ReadError;
use crate::engine::embedded::journal::reader::Scanned;
use crate::engine::embedded::journal::record::kind;
use crate::engine::history::History;
use crate::engine::letter::SCAN_BYTES;
use crate::engine::pending::{PendingAt, PendingMessage, PendingScan, PendingState};
use crate::engine::seam::EngineError;

/// How much of the journal is read per call when ready messages are listed.
const READ_BYTES: u64 = 1 << 20;

/// Entries read in addition to those looked at: the one at the cursor, and one that tells whether there are
/// more.
const ONE_MORE: usize = 2;

impl<D: Disk, S: IndexTables> Lookup<'_, D, S> {
    pub(crate) fn list_pending(
        &self,
        state: PendingState,
        ready_from: u64,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        match state {
            PendingState::Ready => self.list_ready(ready_from, after, limit, look_max),
            PendingState::Held | PendingState::Delayed => self.list_timed(state, after, limit, look_max),
            PendingState::KeyWait => self.list_blocked(after, limit, look_max),
            PendingState::InFlight => Ok(PendingScan::default()),
        }
    }

    /// Lists ready messages by reading a piece of the journal, because they are in no table.
    fn list_ready(
        &self,
        first: u64,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        let (from, seen) = after.map_or((first, None), |(position, seq)| (position.max(first), Some(seq)));
        // A cursor comes from outside; frames begin at multiples of this.
        let (from, end) = (from / ALIGN as u64 * ALIGN as u64, self.book.position());
        let mut scan = PendingScan::default();
        let (mut bytes, mut last) = (0, seen);
        let reader = self.contents.journal();
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
            // The cleaner has dropped that piece, so nothing in it is ready.
            Err(ReadError::Missing { .. }) => end,
            Err(error) => return Err(error.into()),
        };
        scan.next = (reached < end).then(|| (reached, last.unwrap_or(0)));
        Ok(scan)
    }

    fn is_ready(&self, seq: u64) -> bool {
        let is_out = self.in_flight.is_out(seq);
        !self.book.departed().contains(seq) && !is_out && !self.keys.is_passed(seq)
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
            let here = !self.in_flight.contains(seq) && !self.keys.is_passed(seq);
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
        // Messages passed over, whose record is not durable yet, belong here too.
        for (seq, passed) in self.keys.all_passed() {
            let key = (passed.key, seq);
            if key >= from && until.is_none_or(|until| key < until) {
                slots.retain(|(other, _)| *other != key);
                slots.push((key, LineSlot::Blocked(passed.pointer)));
            }
        }
        slots.sort_unstable_by_key(|(key, _)| *key);
        let entries = slots.into_iter().filter(|(key, _)| Some(*key) != after);
        self.list(PendingState::KeyWait, after, limit, look_max, entries, |(_, seq), slot| match slot {
            LineSlot::Blocked(pointer) if !self.in_flight.contains(seq) => Some(pointer),
            LineSlot::Blocked(_) | LineSlot::Delayed => None,
        })
    }

    /// Goes through entries of a table and reads those for which `wanted` returns a pointer.
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
                let found = shown(PendingAt { number: key.1, state, key }, self.contents.at(pointer)?);
                bytes += found.as_ref().map_or(0, PendingMessage::size);
                scan.messages.extend(found);
            }
        }
        Ok(PendingScan { next: None, ..scan })
    }

    /// Where the message with this id waits, if a table has it.
    pub(crate) fn locate_by_id(&self, id: &str) -> Result<Option<PendingAt>, EngineError> {
        if self.options.dedup.is_none() {
            return Err(EngineError::NotRemembered);
        }
        let slot = self.book.ids().get(&id.as_bytes().to_vec(), &self.book.table(Space::Ids))?;
        let Some(number) = slot.map(|slot| slot.seq) else { return Ok(None) };
        if let Some(passed) = self.keys.passed(number) {
            return Ok(Some(PendingAt { number, state: PendingState::KeyWait, key: (passed.key, number) }));
        }
        if self.in_flight.is_out(number) {
            return Ok(None);
        }
        Ok(self.book.place_of(number)?.map(|(place, pointer)| match place {
            WaitLocation::Due(due) => {
                PendingAt { number, state: PendingState::timed(pointer.deferred), key: (due, number) }
            }
            WaitLocation::Line(hash) => {
                PendingAt { number, state: PendingState::KeyWait, key: (hash, number) }
            }
        }))
    }
}

/// A message as a listing shows it, even if it is unreadable.
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
