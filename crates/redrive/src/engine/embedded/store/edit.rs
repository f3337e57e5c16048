//! Edits of letters: a letter is written anew with another message, and the versions before it in the same frame. Whatever
//! reads, replays or moves a letter therefore needs to know nothing of edits.

use std::collections::HashSet;

use redrive_core::{Message, Meta};

use super::store::Store;
use crate::engine::edit::{EDIT_NAME_BYTES_MAX, EDITS_MAX, EditAnswer, LetterEdit};
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::embedded::journal::record::{ReplacedWire, Stored, Was};
use crate::engine::embedded::write::command::Command;
use crate::engine::letter::LetterState;
use crate::engine::seam::EngineError;

/// The largest letter with all of its versions. A frame holds more, but what fails later must still fit behind it.
const BYTES_MAX: usize = 48 << 20;

/// What becomes of one letter: how it is written, or why it is not.
type Revised = Result<Stored, EditAnswer>;

impl<D: Disk, S: IndexTables> Store<D, S> {
    pub(super) fn edit(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
    ) -> Result<Vec<EditAnswer>, EngineError> {
        if edit.len() > EDIT_NAME_BYTES_MAX {
            return Ok(vec![EditAnswer::TooLarge; letters.len()]);
        }
        self.revise(letters.iter().map(|letter| (letter.letter, letter)), |stored, letter| {
            let last = stored.replaced.last().map(|version| version.edit.as_str());
            if !letter.from.is_current(redrive_core::Time::from_millis(stored.dead_at), last) {
                return Err(EditAnswer::Changed);
            }
            if stored.replaced.len() >= EDITS_MAX {
                return Err(EditAnswer::TooMany);
            }
            let wire = std::mem::replace(&mut stored.wire, letter.message.wire().clone());
            stored.replaced.push(ReplacedWire { edit: edit.to_owned(), wire });
            if stored.len_hint() > BYTES_MAX { Err(EditAnswer::TooLarge) } else { Ok(()) }
        })
    }

    pub(super) fn take_edit_back(&mut self, edit: &str, ids: &[u64]) -> Result<Vec<EditAnswer>, EngineError> {
        self.revise(ids.iter().map(|seq| (*seq, ())), |stored, ()| {
            let before = stored.replaced.pop_if(|version| version.edit == edit);
            stored.wire = before.ok_or(EditAnswer::Changed)?.wire;
            Ok(())
        })
    }

    pub(super) fn replaced_message(&self, seq: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        let Some(slot) = self.waiting.book.asked_letter(seq)? else { return Ok(None) };
        let replaced = self.waiting.contents.replaced(&slot)?;
        let version = replaced.into_iter().find(|version| version.edit == edit);
        Ok(version.and_then(|version| Message::from_wire(version.wire).ok()))
    }

    /// Writes open letters anew, each at most once.
    fn revise<T>(
        &mut self,
        letters: impl Iterator<Item = (u64, T)>,
        change: impl Fn(&mut Stored, T) -> Result<(), EditAnswer>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let (mut answers, mut written, mut chosen) = (Vec::new(), Vec::new(), HashSet::new());
        for (seq, wish) in letters {
            let revised = match self.open_letter(seq)? {
                // The frame of the first is not written yet, so the second is about a version that is gone.
                _ if chosen.contains(&seq) => Err(EditAnswer::Changed),
                Err(refused) => Err(refused),
                Ok(mut stored) => change(&mut stored, wish).map(|()| stored),
            };
            answers.push(match revised {
                Ok(stored) => {
                    chosen.insert(seq);
                    written.push((seq, stored));
                    EditAnswer::Done
                }
                Err(refused) => refused,
            });
        }
        if !written.is_empty() {
            let ticket = self.tickets.issue();
            self.workers.post(Command::EditLetters { ticket, letters: written });
            self.wait_for(ticket)?;
        }
        Ok(answers)
    }

    /// An open letter as it would be written again.
    fn open_letter(&self, seq: u64) -> Result<Revised, EngineError> {
        let Some(slot) = self.waiting.book.asked_letter(seq)? else { return Ok(Err(EditAnswer::NotFound)) };
        if slot.state != LetterState::Open {
            return Ok(Err(EditAnswer::NotOpen(slot.state)));
        }
        let Some(stored) = self.waiting.contents.stored_letter(&slot)? else {
            return Ok(Err(EditAnswer::Damaged));
        };
        let meta = Meta { replays: slot.replays, ..stored.meta };
        Ok(Ok(Stored { was: Was::Letter, jobs: slot.jobs, meta, ..stored }))
    }
}
