//! Discards that can be taken back: each is recorded with its letters before they change.

use std::time::Duration;

use redrive_core::Time;

use super::action::{Action, ActionKind};
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

/// Discards those of `ids` that are open. The record is written first: a crash in between leaves a record of letters
/// that are still open, but never a discarded letter without a record to restore it by.
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
    let action = Action { ids: ids.clone(), ..action }.of(id.clone(), ids.len() as u64);
    let mut running = log.record_running(action).await?;
    let discarded = discard_each(handle, &ids, actor, &mut running).await;
    running.end().await;
    let discarded = discarded?;
    // The engine counts retention from the letter's death, so the next cleaning may remove an old one.
    let undo_until = Some(oldest.plus(RESOLVED_RETENTION).max(now));
    Ok(Discarded { id: Some(id), discarded, undo_until })
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
    let ids = still_discarded(log, handle, discard).await?;
    if ids.is_empty() {
        return Ok(Restored { restored: 0 });
    }
    let action = Action::new(handle.now(), actor, ActionKind::Undo, handle.name());
    let mut running = log.record_running(action.of(id, ids.len() as u64)).await?;
    let restored = restore_each(handle, &ids, actor, &mut running).await;
    running.end().await;
    Ok(Restored { restored: restored? })
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

/// Completes an interrupted discard. Letters that died after it was requested stay: that is a different failure.
pub(super) async fn finish_discard(
    handle: &PipelineHandle,
    discard: Action,
    running: &mut RunningAction,
) -> Result<(), ActionError> {
    let open = in_state(handle, &discard.ids, LetterState::Open).await?;
    let left = open.into_iter().filter(|(_, letter)| letter.dead_at <= discard.at);
    let left: Vec<u64> = left.map(|(id, _)| id).collect();
    discard_each(handle, &left, &discard.actor, running).await.map(drop)
}

/// Completes an interrupted undo of a discard.
pub(super) async fn finish_undo(
    log: &ActionLog,
    handle: &PipelineHandle,
    id: &str,
    actor: &str,
    running: &mut RunningAction,
) -> Result<(), ActionError> {
    let left = still_discarded(log, handle, log.discard_named(id).await?).await?;
    restore_each(handle, &left, actor, running).await.map(drop)
}

/// The pipeline of a discard.
pub(super) async fn pipeline_of(log: &ActionLog, id: &str) -> Result<String, ActionError> {
    Ok(log.discard_named(id).await?.pipeline)
}

async fn discard_each(
    handle: &PipelineHandle,
    ids: &[u64],
    actor: &str,
    running: &mut RunningAction,
) -> Result<u64, ActionError> {
    let mut discarded = 0;
    for part in ids.chunks(BATCH_MAX) {
        discarded += count(&handle.discard_by(Some(actor), part).await?);
        running.beat().await;
    }
    Ok(discarded)
}

async fn restore_each(
    handle: &PipelineHandle,
    ids: &[u64],
    actor: &str,
    running: &mut RunningAction,
) -> Result<u64, ActionError> {
    let mut restored = 0;
    for part in ids.chunks(BATCH_MAX) {
        restored += count(&handle.undo_by(Some(actor), part).await?);
        running.beat().await;
    }
    Ok(restored)
}

fn count(changed: &[bool]) -> u64 {
    changed.iter().filter(|changed| **changed).count() as u64
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
