//! Lookups by id, compared with the model.

use super::check::{Check, violation};
use super::command::Pick;
use super::situation::{Position, Situation};
use super::suite::{Suite, failed};
use crate::engine::letter::LetterState;
use crate::engine::message_state::{MessagePhase, MessageState};
use crate::engine::seam::{DeliveryOrder, EngineError};

impl Suite {
    /// Looks up an id that was offered, or one that never was.
    pub(super) fn message(&mut self, which: Pick) -> Check {
        let nobody = which.is_multiple_of(16);
        let id = if nobody { 0 } else { 1 + u64::from(which) % self.ids.max(1) };
        self.message_named(&format!("m{id}"))
    }

    /// Looks up all ids that were ever used.
    pub(super) fn all_messages(&mut self) -> Check {
        (0..=self.ids).try_for_each(|id| self.message_named(&format!("m{id}")))
    }

    fn message_named(&mut self, id: &str) -> Check {
        let now = self.now;
        let answer = self.harness.engine().message(id, now);
        let Some(window) = self.model.options.dedup else {
            return match answer {
                Err(EngineError::NotRemembered) => Ok(()),
                other => violation("message", format!("ids are not remembered, but {id} is {other:?}")),
            };
        };
        let shown = answer.map_err(failed)?;
        if self.model.unanswered.iter().any(|(new, _)| new.message.id() == id) {
            // Only the engine knows which of the two acceptances is the latest.
            return Ok(());
        }
        let Some((seq, at)) = self.model.latest(id) else {
            return match shown {
                None => Ok(()),
                Some(shown) => violation("message", format!("{id} was never accepted, but {shown:?}")),
            };
        };
        let expired = self.model.high_water.since(at) >= window;
        let ordered = self.model.options.ordering == DeliveryOrder::Key;
        let tracked = self.model.tracked(seq)?;
        let may_wait_for_key = ordered && tracked.message.key().is_some();
        let before = tracked.clone();
        match shown {
            None if expired => Ok(()),
            None => violation("message", format!("{id} is not known, but is {before:?}")),
            Some(shown) => {
                if shown.id != id || shown.letter.is_some_and(|letter| letter != seq) {
                    return violation("message", format!("asked for {id} ({seq}), got {shown:?}"));
                }
                if !tracked.keep(|situation| agrees(&shown, situation, may_wait_for_key)) {
                    return violation("message", format!("{id} is shown as {shown:?}, known is {before:?}"));
                }
                Ok(())
            }
        }
    }
}

/// Whether an engine may show this state for a message in this situation.
fn agrees(shown: &MessageState, situation: &Situation, may_wait_for_key: bool) -> bool {
    let letter = situation.letter.as_ref();
    let of_letter = shown.letter.is_some() == letter.is_some() && shown.reason == letter.map(|l| l.reason);
    let story = shown.attempts == situation.meta.attempts
        && shown.deadline == situation.meta.deadline
        && shown.history == situation.history.attempts();
    let replayed = letter.is_some_and(|letter| letter.state == LetterState::Replaying);
    let is_shown_as = match situation.at {
        Position::InFlight(_) => shown.state == MessagePhase::InFlight && shown.due.is_none(),
        // Engines store nothing about successful messages but the success.
        Position::Done => return shown.state == MessagePhase::Succeeded && of_letter,
        Position::Letter => letter.is_some_and(|letter| shown.state == letter.state.into()),
        Position::Waiting(wait) => {
            let in_time = match (wait.due, shown.due) {
                (Some(due), Some(told)) => due <= told && told <= wait.due_latest,
                // It came due and waits for its key.
                (_, None) => may_wait_for_key || wait.due.is_none(),
                (None, Some(_)) => false,
            };
            let phase = match shown.state {
                MessagePhase::Replaying => replayed,
                MessagePhase::KeyWait => !replayed && may_wait_for_key,
                MessagePhase::Delayed => !replayed && shown.due.is_some() && !situation.meta.deferred,
                MessagePhase::Held => !replayed && shown.due.is_some() && situation.meta.deferred,
                MessagePhase::Ready => !replayed && wait.due.is_none(),
                _ => false,
            };
            in_time && phase
        }
    };
    is_shown_as && of_letter && story
}
