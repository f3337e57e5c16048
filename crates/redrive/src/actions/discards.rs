//! Discards that can be taken back: each is recorded with its letters before they change.

use std::collections::BTreeSet;
use std::time::Duration;

use redrive_core::Time;

use super::action::{Action, ActionKind, ActionStep};
use super::error::ActionError;
use super::log::ActionLog;
use super::unfinished::RunningAction;
use crate::engine::{LetterStanding, LetterState};
use crate::handle::PipelineHandle;

/// How long a resolved letter is kept, counted from its death, so that a discard can be taken back.
pub const RESOLVED_RETENTION: Duration = Duration::from_hours(30 * 24);
/// Letters that are changed or queried in one batch.
const BATCH_MAX: usize = 1024;
/// A job number that no replay has, for queries that need only the state of letters.
const NO_JOB: u64 = u64::MAX;

/// The result of a discard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// Name of the discard, such as `d-9`; `None` if no letter was open, in which case nothing was recorded.
    pub id: Option<String>,
    /// Letters that were open and are now discarded.
    pub discarded: u64,
    /// Until when the whole discard can be undone.
    pub undo_until: Option<Time>,
}

/// The result of undoing a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Letters that were discarded and are open again.
    pub restored: u64,
}

/// Discards those of the letters that are open. It is recorded twice: what was asked for, before the first letter changes,
/// and what was done. A crash in between leaves the first alone, and whoever finds that finishes it.
pub(super) async fn discard(
    log: &ActionLog,
    handle: &PipelineHandle,
    ids: &[u64],
    actor: &str,
    reason: &str,
) -> Result<Discarded, ActionError> {
    let _alone = log.alone().await;
    let open = in_state(handle, ids, LetterState::Open).await?;
    let Some(oldest) = open.iter().map(|(_, letter)| letter.dead_at).min() else {
        return Ok(Discarded { id: None, discarded: 0, undo_until: None });
    };
    let now = handle.now();
    let ids: Vec<u64> = open.iter().map(|(id, _)| *id).collect();
    let action = Action::new(now, actor, ActionKind::Discard, handle.name()).note(reason);
    let id = log.next_name('d');
    let action = action.of(id.clone(), ids.len() as u64);
    let asked = Action { ids, step: ActionStep::Asked, ..action };
    let mut running = log.record_running(asked.clone()).await?;
    let discarded = discard_each(handle, &asked.ids, actor, &mut running).await?;
    let count = discarded.len() as u64;
    record_done(log, asked, discarded).await?;
    running.end().await;
    // The engine counts from a letter's death, so an old one may go with the next cleaning.
    let undo_until = Some(oldest.plus(RESOLVED_RETENTION).max(now));
    Ok(Discarded { id: Some(id), discarded: count, undo_until })
}

/// Undoes a discard: reopens those of its letters that are still discarded and that no later discard has taken over.
/// If there are none, nothing is recorded.
pub(super) async fn undo(
    log: &ActionLog,
    handle: &PipelineHandle,
    id: &str,
    actor: &str,
) -> Result<Restored, ActionError> {
    let _alone = log.alone().await;
    let discard = log.discard_named(id).await?;
    if discard.pipeline != handle.name() {
        return Err(ActionError::OtherPipeline { id: id.to_owned(), pipeline: discard.pipeline });
    }
    let ids = still_discarded(log, handle, discard.clone()).await?;
    if discard.step == ActionStep::Asked && handle.shared_records().is_none() {
        // It was interrupted, and nobody shall go on with it.
        record_done(log, discard, ids.clone()).await?;
    }
    if ids.is_empty() {
        return Ok(Restored { restored: 0 });
    }
    let action = Action::new(handle.now(), actor, ActionKind::Undo, handle.name());
    let asked = Action { ids, step: ActionStep::Asked, ..action };
    let asked = Action { letters: asked.ids.len() as u64, id: Some(id.to_owned()), ..asked };
    let mut running = log.record_running(asked.clone()).await?;
    let restored = restore_each(handle, &asked.ids, actor, &mut running).await?;
    let count = restored.len() as u64;
    record_done(log, asked, restored).await?;
    running.end().await;
    Ok(Restored { restored: count })
}

/// The second record, with the letters that were changed.
async fn record_done(log: &ActionLog, asked: Action, ids: Vec<u64>) -> Result<(), ActionError> {
    log.record(Action { letters: ids.len() as u64, ids, step: ActionStep::Done, ..asked }).await
}

/// The letters that are discarded by `discard` and by no later one.
async fn still_discarded(
    log: &ActionLog,
    handle: &PipelineHandle,
    discard: Action,
) -> Result<Vec<u64>, ActionError> {
    let later = log.discarded_after(discard.clone()).await?;
    let ids: Vec<u64> = discard.ids.into_iter().filter(|id| !later.contains(id)).collect();
    let discarded = in_state(handle, &ids, LetterState::Discarded).await?;
    Ok(discarded.into_iter().map(|(id, _)| id).collect())
}

/// Does the rest of a discard, unless it was undone since, and records what came of all of it. A letter that died since is
/// left: that is another failure than the one that was discarded.
pub(super) async fn finish_discard(
    log: &ActionLog,
    handle: &PipelineHandle,
    discard: Action,
    is_undone: bool,
    running: &mut RunningAction,
) -> Result<(), ActionError> {
    if discard.ids.is_empty() {
        // Its letters were too many to be shared, so it stays unfinished here.
        return Ok(());
    }
    if !is_undone {
        let open = in_state(handle, &discard.ids, LetterState::Open).await?;
        let left = open.into_iter().filter(|(_, letter)| letter.dead_at <= discard.at);
        let left: Vec<u64> = left.map(|(id, _)| id).collect();
        discard_each(handle, &left, &discard.actor, running).await?;
    }
    let discarded = still_discarded(log, handle, discard.clone()).await?;
    record_done(log, discard, discarded).await
}

/// Does the rest of an undo of a discard, and records what came of all of it.
pub(super) async fn finish_undo(
    log: &ActionLog,
    handle: &PipelineHandle,
    undo: Action,
    running: &mut RunningAction,
) -> Result<(), ActionError> {
    let discard = log.discard_named(undo.id.as_deref().unwrap_or_default()).await?;
    // An earlier version has not recorded the letters of an undo.
    let meant = if undo.ids.is_empty() { discard.ids.clone() } else { undo.ids.clone() };
    if meant.is_empty() {
        return Ok(());
    }
    let left = still_discarded(log, handle, Action { ids: meant.clone(), ..discard }).await?;
    restore_each(handle, &left, &undo.actor, running).await?;
    let discarded = in_state(handle, &meant, LetterState::Discarded).await?;
    let discarded: BTreeSet<u64> = discarded.into_iter().map(|(id, _)| id).collect();
    let restored = meant.into_iter().filter(|id| !discarded.contains(id)).collect();
    record_done(log, undo, restored).await
}

/// The pipeline of a discard.
pub(super) async fn pipeline_of(log: &ActionLog, id: &str) -> Result<String, ActionError> {
    Ok(log.discard_named(id).await?.pipeline)
}

/// Returns the letters that were open.
async fn discard_each(
    handle: &PipelineHandle,
    ids: &[u64],
    actor: &str,
    running: &mut RunningAction,
) -> Result<Vec<u64>, ActionError> {
    let mut discarded = Vec::with_capacity(ids.len());
    for part in ids.chunks(BATCH_MAX) {
        discarded.extend(changed(part, &handle.discard_by(Some(actor), part).await?));
        running.beat().await;
    }
    Ok(discarded)
}

/// Returns the letters that were discarded.
async fn restore_each(
    handle: &PipelineHandle,
    ids: &[u64],
    actor: &str,
    running: &mut RunningAction,
) -> Result<Vec<u64>, ActionError> {
    let mut restored = Vec::with_capacity(ids.len());
    for part in ids.chunks(BATCH_MAX) {
        restored.extend(changed(part, &handle.undo_by(Some(actor), part).await?));
        running.beat().await;
    }
    Ok(restored)
}

fn changed(ids: &[u64], changed: &[bool]) -> impl Iterator<Item = u64> {
    ids.iter().zip(changed).filter(|(_, changed)| **changed).map(|(id, _)| *id)
}

/// Those of `ids` that are in `state`, sorted and without duplicates.
async fn in_state(
    handle: &PipelineHandle,
    ids: &[u64],
    state: LetterState,
) -> Result<Vec<(u64, LetterStanding)>, ActionError> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let mut found = Vec::new();
    for part in ids.chunks(BATCH_MAX) {
        let standings = handle.letter_standings(NO_JOB, part).await?;
        let letters = part.iter().zip(standings).filter_map(|(id, letter)| Some((*id, letter?)));
        found.extend(letters.filter(|(_, letter)| letter.state == state));
    }
    Ok(found)
}
