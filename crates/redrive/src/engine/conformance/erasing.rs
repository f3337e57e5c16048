//! Erasing letters, compared with the model.

use super::check::{Check, Violation, violation};
use super::command::Pick;
use super::situation::Position;
use super::suite::{IDLES_MAX, Suite, failed};
use crate::engine::EngineError;
use crate::engine::erase::{EraseAnswer, EraseOrder, tombstone};
use crate::engine::letter::LetterState;

impl Suite {
    /// Erases a letter, which is refused only during a replay, and sometimes waits until its copies are overwritten.
    pub(super) fn erase(&mut self, which: Pick) -> Check {
        let Some(letter) = self.editable(which)? else { return Ok(()) };
        let order = EraseOrder { by: "ops".to_owned(), reason: "ticket 881".to_owned() };
        let (id, now) = (letter.id, self.now);
        let answer = match self.harness.engine().erase_letters(&order, &[id], now) {
            Err(EngineError::Unavailable(_)) => return Ok(()),
            answers => answers.map_err(failed)?.first().copied(),
        };
        let expected = EraseAnswer::refusal(letter.state).unwrap_or(EraseAnswer::Done);
        if answer != Some(expected) {
            return violation("erase", format!("{id}: {answer:?} and not {expected:?}, was {letter:?}"));
        }
        if expected == EraseAnswer::Done {
            let stone = tombstone(&letter.message, &order, now);
            let stone = stone.map_err(|error| Violation::new("erase", error.to_string()))?;
            let tracked = self.model.tracked(id)?;
            tracked.message = stone;
            tracked.edits.clear();
            tracked.maybe = None;
            tracked.now.at = Position::Letter;
            // For a letter that has succeeded since, an engine may show the history as of its last death.
            (tracked.now.meta, tracked.now.history) = (letter.meta, letter.history.without_texts());
            if let Some(letter) = &mut tracked.now.letter {
                letter.state = LetterState::Erased;
            }
        }
        self.nothing_is_said(id)?;
        if which.is_multiple_of(3) { self.wiped() } else { Ok(()) }
    }

    /// Checks that the tombstone contains nothing of the message or of the errors.
    fn nothing_is_said(&mut self, id: u64) -> Check {
        let Some(letter) = self.harness.engine().letter(id).map_err(failed)? else { return Ok(()) };
        self.model.check_letter(&letter)?;
        let texts = letter.history.attempts().into_iter().any(|attempt| !attempt.error.is_empty());
        let is_silent = letter.group.title.is_empty() && !texts && letter.message.payload().is_none();
        if letter.state == LetterState::Erased && !is_silent {
            return violation("erase", format!("{id} still says something: {letter:?}"));
        }
        Ok(())
    }

    fn wiped(&mut self) -> Check {
        for _ in 0..IDLES_MAX {
            let now = self.now;
            if self.harness.engine().wipe(now).map_err(failed)?.parts_left == 0 {
                return Ok(());
            }
            self.harness.idle();
        }
        violation("erase", "the copies of erased letters are never overwritten".to_owned())
    }
}
