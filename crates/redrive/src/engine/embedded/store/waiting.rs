//! Messages that wait or are in flight: the book, the ready messages, the key lines and the deliveries.

use std::collections::HashSet;
use std::ops::ControlFlow;

use redrive_core::{Message, Time};

use super::contents::{Content, Contents};
use super::in_flight::{Goes, Held, InFlight};
use super::key_gate::{KeyGate, Passed};
use crate::engine::delay::DelayKey;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::healing::Healing;
use crate::engine::embedded::index::tables::{IndexError, IndexTables, LineSlot, Pointer, Space};
use crate::engine::embedded::journal::batch::Written;
use crate::engine::embedded::journal::frame::{Frame, KIND_LOG};
use crate::engine::embedded::journal::reader::Scanned;
use crate::engine::embedded::journal::record::{Blocked, Was, kind};
use crate::engine::embedded::state::book::{Book, Folded};
use crate::engine::embedded::state::ready::Ready;
use crate::engine::seam::{Counts, Delivery, EngineError, Oldest, Settling};

/// How many of the delayed messages that come due next are looked at for the oldest one.
const DELAYED_LOOKED_AT: usize = 4;

/// The messages of a store, by where they are. Each part guards its own state; this type keeps them consistent.
pub(crate) struct Waiting<D: Disk, S: IndexTables> {
    pub(super) book: Book<Healing<S>>,
    pub(super) ready: Ready<D>,
    pub(super) contents: Contents<D>,
    pub(super) in_flight: InFlight,
    pub(super) keys: KeyGate,
}

impl<D: Disk, S: IndexTables> Waiting<D, S> {
    /// Adds the messages coming due next that were read from the tables.
    pub(crate) fn loaded(&mut self, entries: Vec<(DelayKey, Pointer)>, limit: usize) {
        let (in_flight, keys) = (&self.in_flight, &self.keys);
        let out = |due: u64, seq: u64| {
            let is = |was: Was| was == Was::Waiting { due };
            in_flight.get(seq).is_some_and(|held| is(held.was))
                || keys.passed(seq).is_some_and(|passed| is(passed.was))
        };
        self.book.load_delayed(entries, limit, |(due, seq)| out(*due, *seq));
    }

    /// Folds a durable batch into the book, and settles deliveries.
    pub(crate) fn fold(&mut self, written: &Written, fresh_until: Option<u64>) -> Result<(), EngineError> {
        let offered = self.ready.follows_on() && !written.bytes.is_empty();
        let mut changes = Vec::new();
        match fresh_until {
            // The messages are read from the journal when their turn comes.
            Some(next_seq) if !offered => self.book.reserve_numbers(next_seq),
            _ if written.bytes.is_empty() => self.fold_from_journal(written, &mut changes)?,
            _ => {
                let mut at = written.start;
                while at < written.end {
                    let Some(frame) = written.frame(at) else { break };
                    at = frame.end();
                    self.fold_frame(&frame, &mut changes)?;
                    if offered {
                        self.ready.offer(&frame, self.book.departed());
                    }
                }
            }
        }
        self.book.followed_to(written.end);
        self.ready.extend(written.end, offered);
        if !changes.is_empty() {
            self.follow(&changes)?;
        }
        Ok(())
    }

    fn fold_frame(&mut self, frame: &Frame, changes: &mut Vec<Folded>) -> Result<(), IndexError> {
        if frame.kind == KIND_LOG {
            return Ok(());
        }
        self.book.fold(frame, &mut |folded| match folded {
            Folded::Settled(seq) if self.keys.is_idle() => {
                self.in_flight.remove(seq);
            }
            other => changes.push(other),
        })
    }

    /// Folds a batch that was not kept in memory.
    fn fold_from_journal(&mut self, written: &Written, changes: &mut Vec<Folded>) -> Result<(), EngineError> {
        let mut failed = None;
        self.contents.journal().clone().scan(written.start, written.end, |scanned| {
            let folded = match scanned {
                Scanned::Frame(frame) => self.fold_frame(&frame, changes),
                // The content is lost, but its number stays taken.
                Scanned::Rot(rot) => {
                    if let Some(header) = rot.header.filter(|header| header.kind == kind::ACCEPTED) {
                        self.book.reserve_numbers(header.tag + 1);
                    }
                    Ok(())
                }
                Scanned::Batch(_) => Ok(()),
            };
            failed = folded.err();
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn follow(&mut self, changes: &[Folded]) -> Result<(), EngineError> {
        let mut freed = Vec::new();
        for change in changes {
            match *change {
                Folded::Settled(seq) => {
                    let held = self.in_flight.remove(seq);
                    let Some((hash, claimed)) = held.and_then(|held| Some((held.key?, held.claimed))) else {
                        continue;
                    };
                    self.keys.end(hash, seq);
                    if claimed {
                        self.keys.unhold(hash);
                        freed.push(hash);
                    }
                }
                Folded::InLine { seq, hash } => {
                    self.keys.in_line(seq, hash);
                }
                Folded::LineMoved(_) => {}
            }
        }
        for change in changes {
            if let Folded::LineMoved(hash) | Folded::InLine { hash, .. } = *change {
                self.release(hash)?;
            }
        }
        freed.into_iter().try_for_each(|hash| self.release(hash))
    }

    /// Releases the first message of a key's line, if no message of the key is in flight.
    pub(crate) fn release(&mut self, hash: u64) -> Result<(), EngineError> {
        if !self.keys.wants_release(hash) {
            return Ok(());
        }
        if let Some((key, LineSlot::Blocked(_))) = self.book.first_in_line(hash)? {
            self.keys.release(key, self.ready.next_seq());
        }
        Ok(())
    }

    /// Releases blocked messages that had to wait until the ready ones before them were looked at.
    pub(crate) fn release_looked_at(&mut self) -> Result<(), EngineError> {
        while let Some(hash) = self.keys.pop_looked_at(self.ready.next_seq()) {
            self.release(hash)?;
        }
        Ok(())
    }

    /// Releases the first message of every line, after a restart.
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

    /// Puts back a delivery that came back unstarted. Returns the record to be written, if any.
    pub(crate) fn put_back(
        &mut self,
        delivery: Delivery,
        mut held: Held,
    ) -> Result<Option<Blocked>, EngineError> {
        let seq = delivery.receipt.seq;
        // A message claimed before its turn is found again when its turn comes.
        let is_ahead = held.was == Was::Fresh && held.claimed && self.in_flight.unclaim(seq);
        if held.was == Was::Fresh && held.key.is_none() && !is_ahead {
            self.in_flight.push_returned(delivery);
            return Ok(None);
        }
        self.in_flight.remove(seq);
        // The cleaner may have moved it while it was handed out.
        let moved = match held.was {
            Was::Waiting { due } => self.book.delay().get(&(due, seq), &self.book.table(Space::Delay))?,
            _ => None,
        };
        held.pointer = moved.unwrap_or(held.pointer);
        let Some(hash) = held.key else {
            if let Was::Waiting { due } = held.was {
                self.book.put_back_delayed((due, seq), held.pointer);
            }
            return Ok(None);
        };
        self.keys.end(hash, seq);
        if held.claimed {
            self.keys.unhold(hash);
        }
        let mut blocked = None;
        let slot = self.book.lines().get(&(hash, seq), &self.book.table(Space::Lines))?;
        match (slot, held.was) {
            (Some(LineSlot::Delayed), Was::Waiting { due }) => {
                self.book.put_back_delayed((due, seq), held.pointer);
            }
            // It was claimed before it was looked at, and may not be due yet.
            (None, Was::Waiting { due }) if held.claimed => {
                self.book.put_back_delayed((due, seq), held.pointer);
            }
            (None, Was::Fresh) if is_ahead => {}
            (Some(_), _) => {}
            (None, was) => {
                // It is not in its line yet, and others of its key may come due before it is taken again.
                let Pointer { at, len, .. } = held.pointer;
                self.keys.pass(seq, Passed { key: hash, was, pointer: held.pointer });
                blocked = Some(Blocked { seq, was, key: hash, at, len });
            }
        }
        self.release(hash)?;
        Ok(blocked)
    }

    /// The number of messages in each state.
    pub(crate) fn counts(&self) -> Counts {
        let returned: HashSet<u64> = self.in_flight.returned().map(|delivery| delivery.receipt.seq).collect();
        let out: Vec<&Held> =
            self.in_flight.iter().filter(|(seq, _)| !returned.contains(seq)).map(|(_, held)| held).collect();
        // Messages that the book still counts in their previous state, by that state.
        let out_of = out.iter().map(|held| (held.was, held.pointer.deferred));
        let passed_of = self.keys.all_passed().map(|(_, passed)| (passed.was, passed.pointer.deferred));
        let away: Vec<(Was, bool)> = out_of.chain(passed_of).collect();
        let left = |was: fn(&Was) -> bool| away.iter().filter(|(of, _)| was(of)).count() as u64;
        let left_held =
            away.iter().filter(|(was, held)| *held && matches!(was, Was::Waiting { .. })).count() as u64;
        let went = |goes: Goes| out.iter().filter(|held| held.goes == Some(goes)).count() as u64;
        let delayed = self.book.delay().len().saturating_sub(self.book.held());
        let left_delayed = left(|was| matches!(was, Was::Waiting { .. })) - left_held;
        let fresh = self.book.departed().unfinished_below(self.book.next_seq());
        let letters = self.book.letters().counts();
        Counts {
            ready: fresh.saturating_sub(left(|was| *was == Was::Fresh)),
            delayed: delayed.saturating_sub(left_delayed),
            held: self.book.held().saturating_sub(left_held),
            key_wait: (self.book.blocked() + self.keys.all_passed().len() as u64)
                .saturating_sub(left(|was| *was == Was::Blocked)),
            in_flight: out.len() as u64,
            settling: Settling {
                over: went(Goes::Out),
                delayed: went(Goes::Waits { deferred: false }),
                held: went(Goes::Waits { deferred: true }),
            },
            letters_open: letters.open,
            letters_replaying: letters.replaying,
            letters_succeeded: letters.succeeded,
            letters_discarded: letters.discarded,
            letters_erased: letters.erased,
            accepted: self.book.next_seq(),
            key_order_voided: 0,
        }
    }

    /// The creation times of the oldest messages, as far as they are known without a search.
    pub(crate) fn oldest(&mut self) -> Result<Oldest, EngineError> {
        let ready = self.ready.first(self.book.departed(), self.book.next_seq())?;
        let ready = ready.and_then(|wire| Message::from_wire(wire.clone()).ok());
        let ready = ready.map(|message| message.created());
        let returned = self.in_flight.first_returned_created();
        let delayed = self.book.delay().first(DELAYED_LOOKED_AT).filter_map(|(_, pointer)| {
            // Damage is reported when the turn of the message comes; here it only means that the time is unknown.
            let frame = self.contents.journal().read(pointer.at, u64::from(pointer.len)).ok()?;
            Some(Content::of(&frame)?.meta.created)
        });
        let known = |created: &Time| *created > Time::ZERO;
        let ready = ready.into_iter().chain(returned).filter(known).min();
        let pending = ready.into_iter().chain(delayed.filter(known)).min();
        Ok(Oldest { pending, ready, letter: self.book.oldest_letter()? })
    }
}
