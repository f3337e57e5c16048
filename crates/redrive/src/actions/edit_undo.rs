//! Undoes an edit: decides which letters get their previous message back, and why the others do not.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::Time;

use super::action::{Action, ActionKind};
use super::edits::{BATCH_MAX, Skipped};
use super::error::ActionError;
use super::log::ActionLog;
use crate::engine::{EditAnswer, Letter, LetterState};
use crate::handle::PipelineHandle;
use crate::letters::{Filter, SelectError, Selection};

/// The result of undoing an edit.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EditUndone {
    /// Letters whose previous message was restored.
    pub restored: u64,
    /// Letters that stay as they are, by reason.
    pub skipped: BTreeMap<NotUndone, Skipped>,
}

impl EditUndone {
    /// The number of letters that stay as they are.
    pub fn skipped_count(&self) -> u64 {
        self.skipped.values().map(|skipped| skipped.count).sum()
    }

    fn skip(&mut self, letter: u64, reason: NotUndone) {
        self.skipped.entry(reason).or_default().add(letter, || reason.text().to_owned());
    }
}

/// Why an edit of a letter is not undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NotUndone {
    /// The edit was undone before.
    UndoneAlready,
    /// The letter was edited again since.
    EditedAgain,
    /// The edited message was sent, or is about to be.
    Replayed,
    /// The letter was discarded since.
    Discarded,
    /// The letter was erased since, with all its versions.
    Erased,
    /// The letter does not have this edit.
    NotApplied,
    /// The letter was removed since.
    Gone,
    /// The letter's stored bytes are damaged.
    Damaged,
}

impl NotUndone {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::UndoneAlready,
        Self::EditedAgain,
        Self::Replayed,
        Self::Discarded,
        Self::Erased,
        Self::NotApplied,
        Self::Gone,
        Self::Damaged,
    ];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UndoneAlready => "undone_already",
            Self::EditedAgain => "edited_again",
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
            Self::Erased => "erased",
            Self::NotApplied => "not_applied",
            Self::Gone => "gone",
            Self::Damaged => "damaged",
        }
    }

    /// The reason in words, to be shown after a number of letters.
    pub const fn text(self) -> &'static str {
        match self {
            Self::UndoneAlready => "undone already",
            Self::EditedAgain => "edited again since",
            Self::Replayed => "replayed since",
            Self::Discarded => "discarded since",
            Self::Erased => "erased since",
            Self::NotApplied => "without this edit: never applied, or undone by another process",
            Self::Gone => "removed since",
            Self::Damaged => "with stored bytes that are damaged",
        }
    }

    const fn from_state(state: LetterState) -> Self {
        match state {
            LetterState::Open => Self::EditedAgain,
            LetterState::Replaying | LetterState::Succeeded => Self::Replayed,
            LetterState::Discarded => Self::Discarded,
            LetterState::Erased => Self::Erased,
        }
    }

    const fn from_answer(answer: EditAnswer) -> Option<Self> {
        match answer {
            EditAnswer::Done => None,
            EditAnswer::NotFound => Some(Self::Gone),
            EditAnswer::NotOpen(state) => Some(Self::from_state(state)),
            EditAnswer::Changed => Some(Self::EditedAgain),
            EditAnswer::TooMany | EditAnswer::TooLarge | EditAnswer::Damaged => Some(Self::Damaged),
        }
    }
}

/// An edit, as far as its record or its letters describe it.
struct PastEdit {
    id: String,
    letters: Vec<u64>,
    /// When it was made; `None` if its record is not available.
    at: Option<Time>,
    /// Letters for which it was undone before.
    undone: BTreeSet<u64>,
}

impl PastEdit {
    /// Pure: why a letter keeps its current message; `None` if the edit can be undone.
    fn stays(&self, id: u64, letter: Option<&Letter>) -> Option<NotUndone> {
        let Some(letter) = letter else { return Some(NotUndone::Gone) };
        if !letter.edits.contains(&self.id) {
            let reason = match letter.state {
                _ if self.undone.contains(&id) => NotUndone::UndoneAlready,
                // Erasing a letter also removes its versions.
                LetterState::Erased => NotUndone::Erased,
                _ => NotUndone::NotApplied,
            };
            return Some(reason);
        }
        if letter.state != LetterState::Open {
            return Some(NotUndone::from_state(letter.state));
        }
        if letter.edits.last() != Some(&self.id) {
            return Some(NotUndone::EditedAgain);
        }
        // It died after the edit, so the edited message was sent. Once a new id was used, the old one must not come
        // back.
        self.at.is_some_and(|at| letter.dead_at > at).then_some(NotUndone::Replayed)
    }
}

/// Undoes an edit: restores the previous message of the letters whose last edit it is and that were not replayed
/// since. If there are none, nothing is recorded. Any process that shares the letters can do it.
pub(super) async fn undo_edit(
    log: &ActionLog,
    handle: &PipelineHandle,
    id: &str,
    actor: &str,
) -> Result<EditUndone, ActionError> {
    let _alone = log.alone().await;
    let edit = past_edit(log, handle, id).await?;
    let (mut done, mut ids) = (EditUndone::default(), Vec::new());
    for letter in &edit.letters {
        match edit.stays(*letter, handle.letter(*letter).await?.as_ref()) {
            Some(reason) => done.skip(*letter, reason),
            None => ids.push(*letter),
        }
    }
    if ids.is_empty() {
        return Ok(done);
    }
    let action = Action::new(handle.now(), actor, ActionKind::EditUndo, handle.name());
    let action = Action { ids: ids.clone(), ..action };
    log.record(action.of(id, ids.len() as u64)).await?;
    for part in ids.chunks(BATCH_MAX) {
        let answers = handle.undo_edit_by(Some(actor), id, part).await?;
        for (letter, answer) in part.iter().zip(answers) {
            match NotUndone::from_answer(answer) {
                Some(reason) => done.skip(*letter, reason),
                None => done.restored += 1,
            }
        }
    }
    Ok(done)
}

/// Looks up the edit by its record, or by a scan of the letters if there is no record.
async fn past_edit(log: &ActionLog, handle: &PipelineHandle, id: &str) -> Result<PastEdit, ActionError> {
    if let Some(action) = log.find_named('e', id).await? {
        if action.pipeline != handle.name() {
            return Err(ActionError::OtherPipeline { id: id.to_owned(), pipeline: action.pipeline });
        }
        let undone = log.undone_letters(id).await?;
        return Ok(PastEdit { id: id.to_owned(), letters: action.ids, at: Some(action.at), undone });
    }
    let unknown = || ActionError::NoEdit { id: id.to_owned(), pipeline: handle.name().to_owned() };
    let filter = Filter::parse(&format!("edit:{id}")).map_err(|_| unknown())?;
    let selection = Selection { filter: Some(filter), ..Selection::default() };
    let letters = selection.freeze(handle).await.map_err(|error| match error {
        SelectError::Handle(error) => ActionError::Handle(error),
        _ => unknown(),
    })?;
    if letters.is_empty() {
        return Err(unknown());
    }
    Ok(PastEdit { id: id.to_owned(), letters, at: None, undone: BTreeSet::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_and_a_text_of_its_own() {
        let names: BTreeSet<_> = NotUndone::ALL.iter().map(|reason| reason.name()).collect();
        let texts: BTreeSet<_> = NotUndone::ALL.iter().map(|reason| reason.text()).collect();
        assert_eq!((names.len(), texts.len()), (NotUndone::ALL.len(), NotUndone::ALL.len()));
    }
}
