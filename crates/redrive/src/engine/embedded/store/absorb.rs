//! What the writer and the keeper have done, taken into the book and into what may start.

use std::ops::ControlFlow;

use super::store::Store;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexError, IndexTables, LineSlot};
use crate::engine::embedded::journal::batch::Written;
use crate::engine::embedded::journal::frame::{Frame, KIND_LOG};
use crate::engine::embedded::journal::reader::Scanned;
use crate::engine::embedded::journal::record::{Was, kind};
use crate::engine::embedded::state::book::Folded;
use crate::engine::embedded::write::command::Note;
use crate::engine::seam::EngineError;

impl<D: Disk, S: IndexTables> Store<D, S> {
    pub(crate) fn take_in(&mut self, note: Note) -> Result<(), EngineError> {
        match note {
            Note::Committed { written, ticket, fresh_until } => {
                if let Some(written) = written {
                    self.fold(&written, fresh_until)?;
                }
                if let Some(ticket) = ticket {
                    self.tickets.durable(ticket);
                }
            }
            Note::Applied => self.applied(),
            Note::Loaded { entries, limit } => {
                let (in_flight, keys) = (&self.in_flight, &self.keys);
                let out = |due: u64, seq: u64| {
                    let is = |was: Was| was == Was::Waiting { due };
                    in_flight.get(seq).is_some_and(|held| is(held.was))
                        || keys.passed(seq).is_some_and(|passed| is(passed.was))
                };
                self.book.load_delayed(entries, limit, |(due, seq)| out(*due, *seq));
            }
            Note::Scanned { relocation, next } => self.scanned(relocation, next)?,
            Note::Failed(error) => self.fail(error),
        }
        Ok(())
    }

    /// A batch is durable: the book follows it, and what was in flight is settled.
    fn fold(&mut self, written: &Written, fresh_until: Option<u64>) -> Result<(), EngineError> {
        let offered = self.ready.follows_on() && !written.bytes.is_empty();
        let mut changes = Vec::new();
        match fresh_until {
            // They are read from the journal when their turn comes.
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

    /// A batch that was not kept in memory.
    fn fold_from_journal(&mut self, written: &Written, changes: &mut Vec<Folded>) -> Result<(), EngineError> {
        let mut failed = None;
        self.contents.journal().clone().scan(written.start, written.end, |scanned| {
            let folded = match scanned {
                Scanned::Frame(frame) => self.fold_frame(&frame, changes),
                // What it said is lost; its number is not.
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

    /// Lets the first of a key's line go if nothing of the key is out.
    pub(crate) fn release(&mut self, hash: u64) -> Result<(), EngineError> {
        if !self.keys.wants_release(hash) {
            return Ok(());
        }
        if let Some((key, LineSlot::Blocked(_))) = self.book.first_in_line(hash)? {
            self.keys.release(key, self.ready.next_seq());
        }
        Ok(())
    }
}
