//! Edits of letters and their undo, compared with the model.

use redrive_core::{Message, Time};

use super::check::{Check, Violation, violation};
use super::command::Pick;
use super::suite::{Suite, failed};
use crate::engine::EngineError;
use crate::engine::edit::{EDITS_MAX, EditAnswer, LetterEdit, LetterVersion};
use crate::engine::letter::{Letter, LetterState};

impl Suite {
    /// Gives a letter a new message, sometimes from a version that it does not have.
    pub(super) fn edit(&mut self, which: Pick) -> Check {
        let Some(letter) = self.editable(which)? else { return Ok(()) };
        self.edits += 1;
        let (edit, id) = (format!("e-{}", self.edits), letter.id);
        let mut from = LetterVersion::of(&letter);
        let stale = which.is_multiple_of(7);
        if stale {
            from.dead_at = Time::from_millis(from.dead_at.as_millis() + 1);
        }
        let message = edited(&letter.message, &edit)?;
        let edits = [LetterEdit { letter: id, from, message: message.clone() }];
        let answer = match self.harness.engine().edit_letters(&edit, &edits, self.now.into()) {
            Err(EngineError::Unavailable(_)) => return Ok(()),
            answers => answers.map_err(failed)?.first().copied(),
        };
        let expected = match letter.state {
            LetterState::Open if stale => EditAnswer::Changed,
            LetterState::Open if letter.edits.len() >= EDITS_MAX => EditAnswer::TooMany,
            LetterState::Open => EditAnswer::Done,
            state => EditAnswer::NotOpen(state),
        };
        if answer != Some(expected) {
            return violation(
                "edit",
                format!("{id} {edit}: {answer:?} and not {expected:?}, was {letter:?}"),
            );
        }
        if expected == EditAnswer::Done {
            let tracked = self.model.tracked(id)?;
            let before = std::mem::replace(&mut tracked.message, message);
            tracked.edits.push((edit, before));
            self.offer_again(id)?;
        }
        self.versions(id)
    }

    /// Undoes the last edit of a letter, or tries to undo one that it does not have.
    pub(super) fn undo_edit(&mut self, which: Pick) -> Check {
        let Some(letter) = self.editable(which)? else { return Ok(()) };
        let last = letter.edits.last().filter(|_| !which.is_multiple_of(7)).cloned();
        let edit = last.clone().unwrap_or_else(|| "e-none".to_owned());
        let answer = match self.harness.engine().undo_edit(&edit, &[letter.id], self.now.into()) {
            Err(EngineError::Unavailable(_)) => return Ok(()),
            answers => answers.map_err(failed)?.first().copied(),
        };
        let expected = match (letter.state, last) {
            (LetterState::Open, Some(_)) => EditAnswer::Done,
            (LetterState::Open, None) => EditAnswer::Changed,
            (state, _) => EditAnswer::NotOpen(state),
        };
        if answer != Some(expected) {
            let id = letter.id;
            return violation(
                "edit",
                format!("{id} undo {edit}: {answer:?} and not {expected:?}, was {letter:?}"),
            );
        }
        if expected == EditAnswer::Done {
            let tracked = self.model.tracked(letter.id)?;
            if let Some((_, before)) = tracked.edits.pop() {
                tracked.message = before;
            }
        }
        self.versions(letter.id)
    }

    /// A letter about which the model is certain. If a letter may exist twice, a copy from before the edit may run.
    pub(super) fn editable(&mut self, which: Pick) -> Result<Option<Letter>, Violation> {
        let id = self.letter_id(which);
        let Some(letter) = self.harness.engine().letter(id).map_err(failed)? else { return Ok(None) };
        self.model.check_letter(&letter)?;
        Ok(if self.model.twins { None } else { Some(letter) })
    }

    /// Checks a letter and all versions before its edits against the model.
    fn versions(&mut self, id: u64) -> Check {
        let Some(letter) = self.harness.engine().letter(id).map_err(failed)? else { return Ok(()) };
        self.model.check_letter(&letter)?;
        for (edit, before) in self.model.tracked(id)?.edits.clone() {
            let shown = self.harness.engine().message_before(id, &edit).map_err(failed)?;
            if shown.as_ref() != Some(&before) {
                return violation("edit", format!("{id} before {edit} was {before:?}, shown is {shown:?}"));
            }
        }
        Ok(())
    }
}

/// The same message with another payload.
fn edited(message: &Message, edit: &str) -> Result<Message, Violation> {
    let mut builder = Message::builder(message.id()).created(message.created()).payload(edit.to_owned());
    if let Some(key) = message.key() {
        builder = builder.key(key.to_vec());
    }
    if let Some(deadline) = message.deadline() {
        builder = builder.deadline(deadline);
    }
    builder.build().map_err(|error| Violation::new("edit", error.to_string()))
}
