//! The letters of a store and their states, as its frames tell them to somebody who only reads.

use std::collections::{BTreeMap, HashMap};

use super::frame::Frame;
use super::record::{Ended, LetterChanged, SlotCopy, Stored, Was, get_seqs, kind};
use crate::engine::letter::LetterState;

/// The letters met so far and their states.
#[derive(Default)]
pub(super) struct Letters(HashMap<u64, LetterState>);

impl Letters {
    fn set(&mut self, seq: u64, state: LetterState) {
        if let Some(letter) = self.0.get_mut(&seq) {
            *letter = state;
        }
    }

    pub(super) fn fold_letter_log(&mut self, frame: &Frame) -> Option<()> {
        match frame.kind {
            kind::DEAD => {
                let stored = Stored::read(frame.body.clone())?;
                self.0.insert(frame.tag, stored.state.unwrap_or(LetterState::Open));
            }
            kind::LETTER_SLOT => self.set(frame.tag, SlotCopy::read(frame.body.clone())?.state),
            kind::PURGED => {
                self.0.remove(&frame.tag);
            }
            _ => {}
        }
        Some(())
    }

    pub(super) fn fold_journal(&mut self, frame: &Frame) -> Option<()> {
        match frame.kind {
            kind::DEAD => {
                Stored::read(frame.body.clone())?;
                self.0.insert(frame.tag, LetterState::Open);
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
                self.0.remove(&seq);
            }),
            _ => {}
        }
        Some(())
    }

    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for state in self.0.values() {
            *counts.entry(state.name()).or_default() += 1;
        }
        counts
    }
}
