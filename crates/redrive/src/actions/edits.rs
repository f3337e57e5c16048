//! Edits of letters: planned, recorded with their letters, carried out, and recorded again with the letters that
//! changed.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use redrive_core::text::number::grouped;

use super::action::{Action, ActionKind, ActionStep};
use super::error::ActionError;
use super::log::ActionLog;
use crate::engine::continued::continued_id;
use crate::engine::edit::EDITS_MAX;
use crate::engine::{EditAnswer, Letter, LetterEdit, LetterState, LetterVersion};
use crate::handle::{HandleError, PipelineHandle};
use crate::letters::edit::change::is_ambiguous;
use crate::letters::edit::json_text::{JsonFault, JsonText};
use crate::letters::edit::{Condition, Difference, EditFault, MessageChange, MessageIds, differences};

/// Bounds of one batch of edits: the number of letters, and the bytes of their messages.
pub(super) const BATCH_MAX: usize = 100;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How often an edit is attempted on a letter that keeps changing meanwhile.
const TRIES_MAX: u32 = 3;
/// How many skipped letters are named.
const NAMED_MAX: usize = 10;

/// The edit to make to each letter of a selection.
///
/// ```
/// use redrive::actions::{ActionError, Actions, EditWish};
/// use redrive::letters::edit::{MessageChange, MessageIds};
/// use redrive::PipelineHandle;
///
/// async fn set_header(actions: &Actions, orders: &PipelineHandle) -> Result<(), ActionError> {
///     let change = MessageChange {
///         set_headers: vec![("region".to_owned(), "eu".to_owned())],
///         ..MessageChange::default()
///     };
///     let wish = EditWish { change, ids: MessageIds::New, ..EditWish::default() };
///     let edited = actions.edit(orders, &[17], &wish, "alice").await?;
///     println!("{} letters edited", edited.letters);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct EditWish {
    /// The change.
    pub change: MessageChange,
    /// Only letters whose payload matches.
    pub condition: Option<Condition>,
    /// Only letters that still have this payload: the one that the author of the edit saw.
    pub was: Option<Bytes>,
    /// A payload for each letter, by its number, instead of one for all. Letters that are not listed are not edited.
    pub payloads: Option<HashMap<u64, NewPayload>>,
    /// Whether an edited message whose receiver may have seen it keeps its id or gets a new one.
    pub ids: MessageIds,
}

/// A new payload for one letter, and the payload it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPayload {
    /// The new payload.
    pub payload: Bytes,
    /// The payload it was made from. A letter with a different payload is refused.
    pub was: Bytes,
}

/// The effect of an edit, planned or done.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EditPlan {
    /// The edit's name, or the one it would get now; `None` if no letter would change.
    pub id: Option<String>,
    /// Letters that change.
    pub letters: u64,
    /// Of those, letters with an attempt whose end is unknown: the receiver may have applied the message.
    pub ambiguous: u64,
    /// Letters that match and already have these values.
    pub unchanged: u64,
    /// Letters whose payload is not JSON although the condition or the change needs JSON.
    pub not_json: Skipped,
    /// Letters that match and cannot be changed.
    pub refused: Skipped,
    /// The first letter that changes, and its differences.
    pub first: Option<(u64, Vec<Difference>)>,
}

/// Letters that an edit leaves unchanged, and why.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Skipped {
    /// How many there are.
    pub count: u64,
    /// The first few of them.
    pub letters: Vec<u64>,
    /// Why the first was skipped.
    pub why: Option<String>,
}

impl Skipped {
    pub(super) fn add(&mut self, letter: u64, why: impl FnOnce() -> String) {
        self.count += 1;
        self.why.get_or_insert_with(why);
        if self.letters.len() < NAMED_MAX {
            self.letters.push(letter);
        }
    }
}

/// What an edit does to one letter.
enum Planned {
    /// The letter does not match.
    NotMeant,
    Unchanged,
    NotJson(String),
    Refused(String),
    Edit {
        edit: Box<LetterEdit>,
        ambiguous: bool,
    },
}

impl EditWish {
    /// The changed fields, for the action log. Never a value.
    fn fields(&self) -> Vec<String> {
        let payloads = self.payloads.iter().map(|_| "payload".to_owned());
        payloads.chain(self.change.fields()).collect()
    }

    /// Pure: what the edit named `edit` does to a letter.
    fn plan(&self, letter: &Letter, edit: &str) -> Planned {
        if letter.state != LetterState::Open {
            return Planned::Refused(why(EditAnswer::NotOpen(letter.state)));
        }
        if let Some(condition) = &self.condition {
            match JsonText::parse(letter.message.payload().unwrap_or_default()) {
                Ok(payload) if condition.holds(&payload) => {}
                Ok(_) => return Planned::NotMeant,
                Err(fault) => return Planned::NotJson(fault.to_string()),
            }
        }
        let (change, was) = match &self.payloads {
            None => (Cow::Borrowed(&self.change), self.was.as_ref()),
            Some(payloads) => {
                let Some(new) = payloads.get(&letter.id) else { return Planned::NotMeant };
                let change = MessageChange { payload: Some(new.payload.clone()), ..self.change.clone() };
                (Cow::Owned(change), Some(&new.was))
            }
        };
        if was.is_some_and(|was| *was != letter.message.payload().unwrap_or_default()) {
            return Planned::Refused("its payload has changed since it was read".to_owned());
        }
        let ambiguous = is_ambiguous(letter);
        let new_id = match continued_id(letter.message.id(), edit) {
            _ if !ambiguous || self.ids != MessageIds::New => None,
            Some(id) => Some(id),
            None => {
                let why = "its id is too long to be made into a new one; --same-id edits it as it is";
                return Planned::Refused(why.to_owned());
            }
        };
        // Compare without the new id, which alone is no reason for an edit.
        let changed = match change.apply(&letter.message, None) {
            Ok(None) => return Planned::Unchanged,
            Ok(Some(_)) if letter.edits.len() >= EDITS_MAX => {
                return Planned::Refused(format!("it was edited {EDITS_MAX} times; undo an edit first"));
            }
            Ok(Some(changed)) => match &new_id {
                Some(id) => change.apply(&letter.message, Some(id)),
                None => Ok(Some(changed)),
            },
            Err(fault) => Err(fault),
        };
        match changed {
            Ok(Some(message)) => {
                let edit = LetterEdit { letter: letter.id, from: LetterVersion::of(letter), message };
                Planned::Edit { edit: Box::new(edit), ambiguous }
            }
            Ok(None) => Planned::Unchanged,
            Err(EditFault::Json(JsonFault::NotJson(why))) => Planned::NotJson(why),
            Err(fault) => Planned::Refused(fault.to_string()),
        }
    }
}

/// Whether the new id is already the id of another message, as far as this pipeline remembers.
async fn is_taken(handle: &PipelineHandle, letter: &Letter, edit: &LetterEdit) -> Result<bool, HandleError> {
    let id = edit.message.id();
    if letter.message.id() == id {
        return Ok(false);
    }
    match handle.message(id).await {
        Ok(None) | Err(HandleError::NotRemembered(_)) => {}
        Ok(Some(_)) => return Ok(true),
        Err(error) => return Err(error),
    }
    for number in handle.letters_of(id).await?.unwrap_or_default() {
        let other = handle.letter(number).await?;
        if other.is_some_and(|other| other.id != letter.id && other.message.id() == id) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn taken(edit: &LetterEdit) -> String {
    format!("its new id would be `{}`, which another message has", edit.message.id())
}

/// What an edit of these letters would do now. Changes nothing.
pub(super) async fn plan_edit(
    log: &ActionLog,
    handle: &PipelineHandle,
    ids: &[u64],
    wish: &EditWish,
) -> Result<EditPlan, ActionError> {
    Ok(planned(log, handle, ids, wish).await?.0)
}

/// Edits those of `ids` that are open and match. The edit is recorded twice: as planned, before the first letter
/// changes, so that every edit has a name; and as done. If a crash leaves only the first record, [`finish`] adds the
/// second.
pub(super) async fn edit(
    log: &ActionLog,
    handle: &PipelineHandle,
    ids: &[u64],
    wish: &EditWish,
    actor: &str,
) -> Result<EditPlan, ActionError> {
    let _alone = log.alone().await;
    let (plan, ids) = planned(log, handle, ids, wish).await?;
    if ids.is_empty() {
        return Ok(plan);
    }
    if plan.ambiguous > 0 && wish.ids == MessageIds::Undecided {
        return Err(ActionError::Ambiguous { ambiguous: plan.ambiguous, letters: plan.letters });
    }
    let action = Action::new(handle.now(), actor, ActionKind::Edit, handle.name());
    let action = Action { ids: ids.clone(), fields: wish.fields(), step: ActionStep::Asked, ..action };
    let edit = log.next_name('e');
    let planned = action.of(edit.clone(), ids.len() as u64);
    let mut running = log.record_running(planned.clone()).await?;
    let refused = plan.refused.clone();
    let mut run = EditRun { handle, wish, actor, edit: &edit, done: Vec::new(), refused };
    let mut rest = &ids[..];
    while !rest.is_empty() {
        rest = run.some(rest).await?;
        running.beat().await;
    }
    let EditRun { done, refused, .. } = run;
    let letters = done.len() as u64;
    record_done(log, planned, done).await?;
    running.end().await;
    Ok(EditPlan { id: Some(edit), letters, refused, ..plan })
}

/// Records the outcome of an edit whose process ended halfway. Letters without the edit stay unchanged, since the new
/// values are stored nowhere.
pub(super) async fn finish(
    log: &ActionLog,
    handle: &PipelineHandle,
    planned: Action,
) -> Result<(), ActionError> {
    let edit = planned.id.clone().unwrap_or_default();
    let undone = log.undone_letters(&edit).await?;
    let mut done = Vec::new();
    for id in &planned.ids {
        let letter = handle.letter(*id).await?;
        if undone.contains(id) || letter.is_some_and(|letter| letter.edits.contains(&edit)) {
            done.push(*id);
        }
    }
    record_done(log, planned, done).await
}

/// Writes the second record, which lists the letters that changed.
async fn record_done(log: &ActionLog, planned: Action, mut done: Vec<u64>) -> Result<(), ActionError> {
    done.sort_unstable();
    let letters = done.len() as u64;
    let note = (letters < planned.letters).then(|| format!("{} planned", grouped(planned.letters)));
    log.record(Action { ids: done, letters, note, step: ActionStep::Done, ..planned }).await
}

/// The plan, and the letters that it would change.
async fn planned(
    log: &ActionLog,
    handle: &PipelineHandle,
    ids: &[u64],
    wish: &EditWish,
) -> Result<(EditPlan, Vec<u64>), ActionError> {
    let name = log.next_name('e');
    let (mut plan, mut changing) = (EditPlan::default(), Vec::new());
    for id in ids {
        let Some(letter) = handle.letter(*id).await? else { continue };
        match wish.plan(&letter, &name) {
            Planned::NotMeant => {}
            Planned::Unchanged => plan.unchanged += 1,
            Planned::NotJson(why) => plan.not_json.add(*id, || why),
            Planned::Refused(why) => plan.refused.add(*id, || why),
            Planned::Edit { edit, .. } if is_taken(handle, &letter, &edit).await? => {
                plan.refused.add(*id, || taken(&edit));
            }
            Planned::Edit { edit, ambiguous } => {
                plan.ambiguous += u64::from(ambiguous);
                if plan.first.is_none() {
                    plan.first = Some((*id, differences(&letter.message, &edit.message)));
                }
                changing.push(*id);
            }
        }
    }
    plan.letters = changing.len() as u64;
    plan.id = (!changing.is_empty()).then_some(name);
    Ok((plan, changing))
}

/// An edit that is being carried out.
struct EditRun<'a> {
    handle: &'a PipelineHandle,
    wish: &'a EditWish,
    actor: &'a str,
    edit: &'a str,
    done: Vec<u64>,
    refused: Skipped,
}

impl EditRun<'_> {
    /// Edits the first few of these letters, and returns the rest.
    async fn some<'i>(&mut self, ids: &'i [u64]) -> Result<&'i [u64], ActionError> {
        let (mut taken, mut bytes, mut edits) = (0, 0, Vec::new());
        for id in ids.iter().take(BATCH_MAX) {
            if bytes >= BATCH_BYTES_MAX {
                break;
            }
            taken += 1;
            let Some(edit) = self.edit_of(*id).await? else { continue };
            bytes += edit.message.wire().len();
            edits.push(edit);
        }
        for _ in 0..TRIES_MAX {
            if edits.is_empty() {
                break;
            }
            let letters: Vec<u64> = edits.iter().map(|edit| edit.letter).collect();
            let answers = self.handle.edit_by(Some(self.actor), self.edit, edits).await?;
            edits = Vec::new();
            for (letter, answer) in letters.into_iter().zip(answers) {
                match answer {
                    EditAnswer::Done => self.done.push(letter),
                    EditAnswer::Changed => edits.extend(self.edit_of(letter).await?),
                    refused => self.refused.add(letter, || why(refused)),
                }
            }
        }
        for edit in edits {
            self.refused.add(edit.letter, || why(EditAnswer::Changed));
        }
        Ok(&ids[taken..])
    }

    /// The edit of a letter as it is now; `None` if there is nothing to write.
    async fn edit_of(&mut self, id: u64) -> Result<Option<LetterEdit>, ActionError> {
        let Some(letter) = self.handle.letter(id).await? else { return Ok(None) };
        // An earlier batch, whose answer was lost, has already edited it.
        if letter.edits.last().is_some_and(|last| last == self.edit) {
            self.done.push(id);
            return Ok(None);
        }
        match self.wish.plan(&letter, self.edit) {
            Planned::Edit { ambiguous: true, .. } if self.wish.ids == MessageIds::Undecided => {
                self.refused.add(id, || "an attempt has ended without an answer since".to_owned());
                Ok(None)
            }
            Planned::Edit { edit, .. } if is_taken(self.handle, &letter, &edit).await? => {
                self.refused.add(id, || taken(&edit));
                Ok(None)
            }
            Planned::Edit { edit, .. } => Ok(Some(*edit)),
            Planned::NotMeant | Planned::Unchanged => Ok(None),
            Planned::NotJson(why) | Planned::Refused(why) => {
                self.refused.add(id, || why);
                Ok(None)
            }
        }
    }
}

fn why(answer: EditAnswer) -> String {
    match answer {
        EditAnswer::Done => "done".to_owned(),
        EditAnswer::NotFound => "there is no such letter any more".to_owned(),
        EditAnswer::NotOpen(state) => format!("it is {} by now", state.name()),
        EditAnswer::Changed => "it changed while it was edited".to_owned(),
        EditAnswer::TooMany => format!("it was edited {EDITS_MAX} times; undo an edit first"),
        EditAnswer::TooLarge => "the message and its versions before are too large together".to_owned(),
        EditAnswer::Damaged => "its stored bytes are damaged".to_owned(),
    }
}
