//! Erasing letters: each gets a tombstone in place of its frame, then every other copy is overwritten, segment by segment.

use std::collections::HashSet;

use redrive_core::{Message, Meta};

use super::contents::damaged_message;
use super::store::Store;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LetterSlot};
use crate::engine::embedded::journal::record::{Stored, Was};
use crate::engine::embedded::write::command::Command;
use crate::engine::erase::{EraseAnswer, EraseOrder, WipeProgress, tombstone, untitled};
use crate::engine::history::History;
use crate::engine::letter::LetterState;
use crate::engine::seam::EngineError;
use redrive_core::Time;

impl<D: Disk, S: IndexTables> Store<D, S> {
    /// Writes tombstones. The letters are recorded first: a crash in between leaves a record of letters that are as they
    /// were, never copies that nobody overwrites.
    pub(super) fn erase(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        self.check()?;
        let (mut answers, mut stones, mut chosen) = (Vec::new(), Vec::new(), HashSet::new());
        for seq in ids {
            let slot = self.waiting.book.asked_letter(*seq)?;
            answers.push(match slot {
                None => EraseAnswer::NotFound,
                Some(_) if chosen.contains(seq) => EraseAnswer::Already,
                Some(slot) => {
                    if let Some(refusal) = EraseAnswer::refusal(slot.state) {
                        refusal
                    } else {
                        stones.push((*seq, self.tombstone_of(*seq, slot, order, now)?));
                        chosen.insert(*seq);
                        EraseAnswer::Done
                    }
                }
            });
        }
        if !stones.is_empty() {
            let erased: Vec<u64> = stones.iter().map(|(seq, _)| *seq).collect();
            let recorded = self.erasures.record(&erased).map_err(|error| recording(&error));
            self.guard(recorded)?;
            let ticket = self.tickets.issue();
            self.workers.post(Command::EditLetters { ticket, letters: stones });
            self.wait_for(ticket)?;
            self.tending.want_wiped(erased);
        }
        Ok(answers)
    }

    /// Goes on with overwriting, also where nobody else polls.
    pub(super) fn wipe_on(&mut self) -> Result<WipeProgress, EngineError> {
        let absorbed = self.absorb();
        self.guard(absorbed)?;
        let tended = self.tend();
        self.guard(tended)?;
        Ok(WipeProgress { parts_left: self.tending.wipes_left(), ..WipeProgress::default() })
    }

    /// Confirms what is to be overwritten, before the first copy is.
    pub(super) fn confirm_erasures(&mut self) -> Result<(), EngineError> {
        if !self.upkeep_of(|tending, parts| tending.begins_to_wipe(parts)) {
            return Ok(());
        }
        let contents = &self.waiting.contents;
        let (journal, letter_log) = (contents.journal().end(), contents.letter_log().end());
        self.erasures.confirm(journal, letter_log).map_err(|error| recording(&error))
    }

    /// A segment was overwritten.
    pub(super) fn segment_wiped(&mut self) -> Result<(), EngineError> {
        let Some(wiped) = self.tending.wiped() else { return Ok(()) };
        self.erasures.settle(&*wiped).map_err(|error| recording(&error))
    }

    /// A letter as its tombstone is written.
    fn tombstone_of(
        &self,
        seq: u64,
        slot: LetterSlot,
        order: &EraseOrder,
        now: Time,
    ) -> Result<Stored, EngineError> {
        let stored = self.waiting.contents.stored_letter(&slot)?;
        let message = stored.as_ref().and_then(|stored| Message::from_wire(stored.wire.clone()).ok());
        let message = message.map_or_else(|| damaged_message(seq), Ok)?;
        let stone =
            tombstone(&message, order, now).map_err(|error| EngineError::Damaged(error.to_string()))?;
        let history = stored.as_ref().map(|stored| History::from_raw(stored.history.clone()));
        let history = history.unwrap_or_default();
        let group = match &stored {
            Some(stored) => stored.fingerprint(&self.options.grouping, slot.reason),
            None => self.options.grouping.of(slot.reason, None),
        };
        let meta = stored.as_ref().map(|stored| stored.meta).unwrap_or_default();
        Ok(Stored {
            was: Was::Letter,
            key: slot.key,
            due: None,
            jobs: slot.jobs,
            reason: Some(slot.reason),
            state: Some(LetterState::Erased),
            dead_at: slot.dead_at.as_millis(),
            moved_from: 0,
            meta: Meta { replays: slot.replays, ..meta },
            history: history.without_texts().raw().clone(),
            group: Some(untitled(group)),
            options: stored.and_then(|stored| stored.options),
            replaced: Vec::new(),
            wire: stone.wire().clone(),
        })
    }
}

fn recording(error: &std::io::Error) -> EngineError {
    EngineError::Storage(format!("recording which letters are erased: {error}"))
}
