//! Erases the content of letters for good, and compacts resolved ones.

use redrive::LetterState;
use redrive_api::{Compacted, Erase, EraseAnswer, Erased, WouldErase};

use super::change::{Change, JsonBody, reason};
use super::{letters, selection};
use crate::answer::Json;
use crate::problem::Problem;

/// Erases letters in any state, unless the filter names one: erasing a person's data means all of it. Only `all` by
/// itself means open letters, as elsewhere.
pub(crate) async fn erase(
    change: Change,
    JsonBody { value: mut wish, .. }: JsonBody<Erase>,
) -> Result<Json<EraseAnswer>, Problem> {
    let Change { shared, served, actor } = change;
    let (given, now) = (wish.take_selection(), served.handle.now());
    let hidden = &served.redaction;
    let selection =
        if given.all { selection::open(given, hidden, now)? } else { selection::any(given, hidden, now)? };
    let (mut ids, mut in_replay, mut already) = (Vec::new(), 0_u64, 0);
    // Content that an edit removed from a message is still kept with its letter.
    selection
        .each_ever(&served.handle, |letter| match letter.state {
            LetterState::Erased => already += 1,
            LetterState::Replaying => {
                in_replay += 1;
                ids.push(letter.id);
            }
            LetterState::Open | LetterState::Succeeded | LetterState::Discarded => ids.push(letter.id),
        })
        .await?;
    if wish.dry_run {
        let would_erase = ids.len() as u64 - in_replay;
        return Ok(Json(EraseAnswer::Would(WouldErase { would_erase, in_replay, already })));
    }
    let reason = reason(wish.reason, letters::REASON_BYTES_MAX)?;
    let done = shared.service.actions.erase(&served.handle, &ids, &actor.0, &reason).await?;
    Ok(Json(EraseAnswer::Done(Erased {
        erased: done.erased,
        already: done.already + already,
        in_replay: done.in_replay,
        parts_left: done.wiped.parts_left,
        remains: done.wiped.remains,
    })))
}

pub(crate) async fn compact(Change { shared, served, actor }: Change) -> Result<Json<Compacted>, Problem> {
    let done = shared.service.actions.compact(&served.handle, &actor.0).await?;
    Ok(Json(Compacted { deleted: done.deleted, parts_left: done.parts_left, remains: done.remains }))
}
