//! A store's pending messages and letters, read from its frames.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::engine::embedded::journal::frame::Frame;
use crate::engine::embedded::journal::record::{Ended, LetterChanged, SlotCopy, Stored, Was, get_seqs, kind};
use crate::engine::letter::LetterState;

/// The messages read so far that are pending, and the letters with their states.
#[derive(Default)]
pub(crate) struct Letters {
    letters: HashMap<u64, LetterState>,
    pending: HashSet<u64>,
}

impl Letters {
    fn set(&mut self, seq: u64, state: LetterState) {
        if let Some(letter) = self.letters.get_mut(&seq) {
            *letter = state;
        }
    }

    pub(crate) fn fold_letter_log(&mut self, frame: &Frame) -> Option<()> {
        match frame.kind {
            kind::DEAD => {
                let stored = Stored::read(frame.body.clone())?;
                self.letters.insert(frame.tag, stored.state.unwrap_or(LetterState::Open));
            }
            kind::LETTER_SLOT => self.set(frame.tag, SlotCopy::read(frame.body.clone())?.state),
            kind::PURGED => {
                self.letters.remove(&frame.tag);
            }
            _ => {}
        }
        Some(())
    }

    pub(crate) fn fold_journal(&mut self, frame: &Frame) -> Option<()> {
        self.fold_pending(frame);
        match frame.kind {
            kind::DEAD => {
                let stored = Stored::read(frame.body.clone())?;
                let erased = stored.state.filter(|state| *state == LetterState::Erased);
                self.letters.insert(frame.tag, erased.unwrap_or(LetterState::Open));
            }
            kind::WAITING if Stored::read(frame.body.clone())?.was == Was::Letter => {
                self.set(frame.tag, LetterState::Replaying);
            }
            kind::ENDED => {
                for ended in Ended::read_all(&frame.body).filter(|ended| ended.letter) {
                    self.set(ended.seq, LetterState::Succeeded);
                }
            }
            kind::LETTER_STATE => {
                let changed = LetterChanged::read(frame.body.clone())?;
                changed.seqs.iter().for_each(|seq| self.set(*seq, changed.state));
            }
            kind::PURGED => get_seqs(&frame.body).for_each(|seq| {
                self.letters.remove(&seq);
            }),
            _ => {}
        }
        Some(())
    }

    fn fold_pending(&mut self, frame: &Frame) {
        match frame.kind {
            kind::ACCEPTED | kind::WAITING | kind::MOVED => {
                self.pending.insert(frame.tag);
            }
            kind::DEAD => {
                self.pending.remove(&frame.tag);
            }
            kind::DONE => get_seqs(&frame.body).for_each(|seq| {
                self.pending.remove(&seq);
            }),
            kind::ENDED => Ended::read_all(&frame.body).for_each(|ended| {
                self.pending.remove(&ended.seq);
            }),
            _ => {}
        }
    }

    pub(crate) fn pending(&self) -> u64 {
        self.pending.len() as u64
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for state in self.letters.values() {
            *counts.entry(state.name()).or_default() += 1;
        }
        counts
    }
}
