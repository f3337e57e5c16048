//! What frames of the journal and of the letter log say about dead letters.

use redrive_core::{Reason, Time};

use super::book::{Book, Folded};
use crate::engine::embedded::index::tables::{IndexError, IndexTables, LetterSlot, Pointer};
use crate::engine::embedded::journal::frame::{Frame, frame_len};
use crate::engine::embedded::journal::record::{LetterMoved, SlotCopy, Stored, kind};
use crate::engine::letter::LetterState;

impl<S: IndexTables> Book<S> {
    pub(crate) fn dead(
        &mut self,
        seq: u64,
        stored: &Stored,
        pointer: Pointer,
        folded: &mut impl FnMut(Folded),
    ) -> Result<(), IndexError> {
        self.leave_state(seq, stored.was, stored.key)?;
        self.leave_line(seq, stored.key, folded);
        // Also at its first death: a crash may have left a copy in the letter log that the journal knows nothing of.
        let before = self.letter(seq)?;
        if let Some(before) = &before {
            self.live.sub(before.pointer);
            self.count_letter(before.state, false);
            self.letter_ids.remove(&(before.id_hash, seq));
        }
        let slot = LetterSlot {
            pointer,
            state: LetterState::Open,
            reason: stored.reason.unwrap_or(Reason::Corrupt),
            dead_at: Time::from_millis(stored.dead_at),
            replays: stored.meta.replays,
            jobs: stored.jobs.clone(),
            key: stored.key,
            id_hash: self.id_hash_of(&stored.wire),
        };
        self.put_letter(seq, slot);
        folded(Folded::Settled(seq));
        Ok(())
    }

    pub(crate) fn put_letter(&mut self, seq: u64, slot: LetterSlot) {
        self.live.add(slot.pointer);
        self.count_letter(slot.state, true);
        self.oldest_open = self.oldest_open.min(seq);
        if let Some(hash) = slot.key
            && slot.state == LetterState::Open
        {
            self.doors.set((hash, seq), ());
        }
        self.letter_ids.set((slot.id_hash, seq), ());
        self.letters.set(seq, slot);
    }

    pub(crate) fn replaying(&mut self, seq: u64, stored: &Stored) -> Result<(), IndexError> {
        self.set_letter(seq, LetterState::Replaying)?;
        if let Some(slot) = self.letter(seq)? {
            let (replays, jobs) = (stored.meta.replays, stored.jobs.clone());
            self.letters.set(seq, LetterSlot { replays, jobs, ..slot });
        }
        Ok(())
    }

    pub(crate) fn set_letter(&mut self, seq: u64, state: LetterState) -> Result<(), IndexError> {
        let Some(mut slot) = self.letter(seq)? else { return Ok(()) };
        self.count_letter(slot.state, false);
        self.count_letter(state, true);
        self.oldest_open = self.oldest_open.min(seq);
        if let Some(hash) = slot.key {
            match (slot.state, state) {
                (LetterState::Open, LetterState::Open) => {}
                (LetterState::Open, _) => self.doors.remove(&(hash, seq)),
                (_, LetterState::Open) => self.doors.set((hash, seq), ()),
                _ => {}
            }
        }
        slot.state = state;
        self.letters.set(seq, slot);
        Ok(())
    }

    pub(crate) fn count_letter(&mut self, state: LetterState, add: bool) {
        let count = match state {
            LetterState::Open => &mut self.open,
            LetterState::Replaying => &mut self.replaying,
            LetterState::Succeeded => &mut self.succeeded,
            LetterState::Discarded => &mut self.discarded,
        };
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
    }

    pub(crate) fn letter_moved(&mut self, moved: &LetterMoved) -> Result<(), IndexError> {
        if let Some(mut slot) = self.letter(moved.seq)?
            && slot.pointer.at == moved.from
        {
            self.live.sub(slot.pointer);
            slot.pointer = Pointer::new(moved.to, moved.len);
            self.live.add(slot.pointer);
            self.letters.set(moved.seq, slot);
        }
        Ok(())
    }

    pub(crate) fn purged(&mut self, seq: u64) -> Result<(), IndexError> {
        if let Some(slot) = self.letter(seq)? {
            self.live.sub(slot.pointer);
            self.count_letter(slot.state, false);
            if let Some(hash) = slot.key {
                self.doors.remove(&(hash, seq));
            }
            self.letter_ids.remove(&(slot.id_hash, seq));
            self.letters.remove(&seq);
        }
        Ok(())
    }

    /// Follows one frame of the letter log, when everything is built anew. It comes before the journal, whose frames
    /// say what became of these letters later.
    pub fn fold_letter(&mut self, frame: &Frame, at: u64) -> Result<(), IndexError> {
        let pointer = Pointer::new(at, frame_len(frame.body.len()) as u32);
        let seq = frame.tag;
        match frame.kind {
            kind::DEAD => {
                let Some(stored) = Stored::read(frame.body.clone()) else { return Ok(()) };
                self.purged(seq)?;
                let slot = LetterSlot {
                    pointer,
                    state: stored.state.unwrap_or(LetterState::Open),
                    reason: stored.reason.unwrap_or(Reason::Corrupt),
                    dead_at: Time::from_millis(stored.dead_at),
                    replays: stored.meta.replays,
                    jobs: stored.jobs,
                    key: stored.key,
                    id_hash: self.id_hash_of(&stored.wire),
                };
                self.put_letter(seq, slot);
                Ok(())
            }
            kind::LETTER_SLOT => match SlotCopy::read(frame.body.clone()) {
                Some(copy) => {
                    self.set_letter(seq, copy.state)?;
                    if let Some(slot) = self.letter(seq)? {
                        self.letters.set(seq, LetterSlot { replays: copy.replays, jobs: copy.jobs, ..slot });
                    }
                    Ok(())
                }
                None => Ok(()),
            },
            kind::PURGED => self.purged(seq),
            _ => Ok(()),
        }
    }
}
