//! The cleaner: reads the oldest segment and determines what must be copied forward.
//!
//! It uses the tables of a checkpoint that includes everything that has left the segment. Later changes are taken into
//! account by the owner of the store before anything is written. No message in the segment can become live again, so
//! nothing is missed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Message, Meta, Time};

use crate::engine::delay::DelayKey;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{
    IndexError, IndexTables, LetterSlot, LineSlot, OnRebuild, Pointer, Space, Table,
};
use crate::engine::embedded::journal::frame::Frame;
use crate::engine::embedded::journal::reader::{Reader, Scanned};
use crate::engine::embedded::journal::record::{
    AcceptedBody, Ended, FLAG_BLOCKED, LetterChanged, ReplacedWire, Seen, SlotCopy, Stored, Was, get_seqs,
    kind,
};
use crate::engine::embedded::state::book::key_hash;
use crate::engine::embedded::state::lines::LineKey;
use crate::engine::embedded::write::command::Relocation;
use crate::engine::embedded::write::writer::LETTER_LOG;
use crate::engine::letter::LetterState;
use crate::engine::overlay::Far;

/// How much is copied forward in one step.
const PIECE_BYTES_MAX: usize = 4 << 20;

/// A part of a segment to scan.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    pub from: u64,
    pub to: u64,
    /// Whether it is a segment of the letter log.
    pub letters: bool,
    pub now: Time,
}

#[derive(Debug)]
pub struct Cleaner<D: Disk, S> {
    pub tables: Arc<S>,
    pub journal: Reader<D>,
    pub letters: Reader<D>,
    pub dedup: Option<Duration>,
    /// The seed with which the book hashes keys.
    pub hash_seed: u64,
    /// How long resolved letters are kept.
    pub resolved_retention: Duration,
}

impl<D: Disk, S: IndexTables> Cleaner<D, S> {
    /// Returns what is still needed of this piece, and where to continue.
    pub fn scan(&self, piece: &Piece) -> Result<(Relocation, Option<u64>), IndexError> {
        let mut kept = Relocation::default();
        let mut failed = None;
        let reader = if piece.letters { &self.letters } else { &self.journal };
        let next = reader.scan(piece.from, piece.to, |scanned| {
            let Scanned::Frame(frame) = scanned else { return ControlFlow::Continue(()) };
            let looked = if piece.letters {
                self.letter_frame(&frame, piece, &mut kept)
            } else {
                self.frame(&frame, piece, &mut kept)
            };
            if let Err(error) = looked {
                failed = Some(error);
                return ControlFlow::Break(());
            }
            if kept.bytes < PIECE_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let next = next.map_err(|error| IndexError::Damaged(error.to_string()))?;
        Ok((kept, (next < piece.to).then_some(next)))
    }

    fn frame(&self, frame: &Frame, piece: &Piece, kept: &mut Relocation) -> Result<(), IndexError> {
        match frame.kind {
            kind::ACCEPTED => self.accepted(frame, piece, kept),
            kind::WAITING | kind::MOVED => self.stored(frame, kept),
            kind::DEAD => self.dead(frame, frame.position, piece, kept),
            kind::ENDED => Ended::read_all(&frame.body)
                .filter(|ended| ended.letter)
                .try_for_each(|ended| self.letter_state(ended.seq, piece, kept)),
            kind::LETTER_STATE => match LetterChanged::read(frame.body.clone()) {
                Some(changed) => changed.seqs.iter().try_for_each(|seq| self.letter_state(*seq, piece, kept)),
                None => Ok(()),
            },
            kind::PURGED => get_seqs(&frame.body).try_for_each(|seq| self.letter_state(seq, piece, kept)),
            kind::SEEN => {
                for seen in Seen::read_all(frame.body.clone()) {
                    self.seen(seen, piece, kept);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn accepted(&self, frame: &Frame, piece: &Piece, kept: &mut Relocation) -> Result<(), IndexError> {
        let Some(body) = AcceptedBody::read(frame.body.clone()) else { return Ok(()) };
        let Ok(message) = Message::from_wire(body.wire.clone()) else { return Ok(()) };
        if self.dedup.is_some() {
            let id = bytes::Bytes::copy_from_slice(message.id().as_bytes());
            self.seen(Seen { seq: frame.tag, at: body.at, id }, piece, kept);
        }
        let meta = Meta { created: message.created(), deadline: message.deadline(), ..Meta::default() };
        let stored = Stored {
            was: Was::Fresh,
            key: None,
            due: body.due,
            jobs: Vec::new(),
            reason: None,
            state: None,
            dead_at: 0,
            moved_from: frame.position,
            meta,
            history: bytes::Bytes::new(),
            group: None,
            options: None,
            replaced: Vec::new(),
            wire: body.wire,
        };
        self.carry(frame, stored, kept)
    }

    fn stored(&self, frame: &Frame, kept: &mut Relocation) -> Result<(), IndexError> {
        let Some(stored) = Stored::read(frame.body.clone()) else { return Ok(()) };
        if stored.was == Was::Letter {
            self.keep_slot(frame.tag, kept)?;
        }
        let stored = Stored { moved_from: frame.position, ..stored };
        self.carry(frame, stored, kept)
    }

    /// Keeps a message if the tables point at this frame.
    fn carry(&self, frame: &Frame, stored: Stored, kept: &mut Relocation) -> Result<(), IndexError> {
        let seq = frame.tag;
        if let Some(due) = stored.due {
            let table = Table { tables: &*self.tables, space: Space::Delay, on_rebuild: OnRebuild::Wait };
            let pointer = Far::<DelayKey, Pointer>::get(&table, &(due, seq))?;
            if pointer.is_some_and(|pointer| pointer.at == frame.position) {
                kept.bytes += stored.len_hint();
                kept.moves.push((0, seq, stored.own()));
                return Ok(());
            }
        }
        let key = self.blocked_at(&stored, seq, frame.position)?;
        if key.is_some() {
            kept.bytes += stored.len_hint();
            kept.moves.push((FLAG_BLOCKED, seq, Stored { key, ..stored }.own()));
        }
        Ok(())
    }

    /// The key hash of a blocked message whose content is at `position`.
    fn blocked_at(&self, stored: &Stored, seq: u64, position: u64) -> Result<Option<u64>, IndexError> {
        let Ok(message) = Message::from_wire(stored.wire.clone()) else { return Ok(None) };
        let Some(key) = message.key() else { return Ok(None) };
        let hash = key_hash(key, self.hash_seed);
        let table = Table { tables: &*self.tables, space: Space::Lines, on_rebuild: OnRebuild::Wait };
        let slot = Far::<LineKey, LineSlot>::get(&table, &(hash, seq))?;
        let here = |slot: &LineSlot| matches!(slot, LineSlot::Blocked(pointer) if pointer.at == position);
        Ok(slot.filter(here).map(|_| hash))
    }

    fn slot(&self, seq: u64) -> Result<Option<LetterSlot>, IndexError> {
        let table = Table { tables: &*self.tables, space: Space::Letters, on_rebuild: OnRebuild::Wait };
        Far::<u64, LetterSlot>::get(&table, &seq)
    }

    /// Keeps a letter whose content is at `position` for the letter log, or purges it if it was resolved long enough
    /// ago.
    fn dead(
        &self,
        frame: &Frame,
        position: u64,
        piece: &Piece,
        kept: &mut Relocation,
    ) -> Result<(), IndexError> {
        let seq = frame.tag;
        let Some(slot) = self.slot(seq)?.filter(|slot| slot.pointer.at == position) else { return Ok(()) };
        if self.is_over(&slot, piece) {
            kept.purge.push(seq);
            return Ok(());
        }
        let Some(stored) = Stored::read(frame.body.clone()) else { return Ok(()) };
        let meta = Meta { replays: slot.replays, ..stored.meta };
        let stored = Stored { state: Some(slot.state), jobs: slot.jobs, meta, ..stored };
        kept.bytes += stored.len_hint();
        kept.letters.push((seq, stored.own(), position));
        Ok(())
    }

    fn is_over(&self, slot: &LetterSlot, piece: &Piece) -> bool {
        let resolved = matches!(slot.state, LetterState::Succeeded | LetterState::Discarded);
        resolved && piece.now.since(slot.dead_at) >= self.resolved_retention
    }

    /// Handles a frame with a letter's state: if the letter is in the letter log, its state is kept there.
    fn letter_state(&self, seq: u64, piece: &Piece, kept: &mut Relocation) -> Result<(), IndexError> {
        match self.slot(seq)? {
            None => kept.slots.push((seq, None)),
            Some(slot) if slot.pointer.at & LETTER_LOG != 0 && self.is_over(&slot, piece) => {
                kept.purge.push(seq);
            }
            Some(_) => self.keep_slot(seq, kept)?,
        }
        kept.bytes += 32;
        Ok(())
    }

    fn keep_slot(&self, seq: u64, kept: &mut Relocation) -> Result<(), IndexError> {
        if let Some(slot) = self.slot(seq)?
            && slot.pointer.at & LETTER_LOG != 0
        {
            kept.slots
                .push((seq, Some(SlotCopy { state: slot.state, replays: slot.replays, jobs: slot.jobs })));
        }
        Ok(())
    }

    fn letter_frame(&self, frame: &Frame, piece: &Piece, kept: &mut Relocation) -> Result<(), IndexError> {
        match frame.kind {
            kind::DEAD => self.dead(frame, frame.position | LETTER_LOG, piece, kept),
            _ => Ok(()),
        }
    }

    fn seen(&self, seen: Seen, piece: &Piece, kept: &mut Relocation) {
        let Some(window) = self.dedup else { return };
        if piece.now.since(Time::from_millis(seen.at)) < window {
            kept.bytes += 18 + seen.id.len();
            kept.seen.push(seen);
        }
    }
}

impl Stored {
    /// Copies the bytes, so that the read buffer they came in can be freed.
    fn own(self) -> Self {
        let history = bytes::Bytes::copy_from_slice(&self.history);
        let wire = bytes::Bytes::copy_from_slice(&self.wire);
        let own = |version: ReplacedWire| ReplacedWire {
            wire: bytes::Bytes::copy_from_slice(&version.wire),
            edit: version.edit,
        };
        let replaced = self.replaced.into_iter().map(own).collect();
        let options = self.options.map(|options| bytes::Bytes::copy_from_slice(&options));
        Self { history, options, replaced, wire, ..self }
    }
}
