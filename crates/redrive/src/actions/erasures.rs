//! Erases letters for good: recorded before the first one changes and again when all are erased, completed after a
//! crash, and answered once every copy that can be overwritten is.

use std::time::Duration;

use redrive_core::Time;
use tokio::runtime::Handle;

use super::action::{Action, ActionKind, ActionStep};
use super::error::ActionError;
use super::log::ActionLog;
use super::unfinished::RunningAction;
use crate::engine::{EraseAnswer, EraseOrder, LetterStanding, LetterState, WipeProgress};
use crate::handle::PipelineHandle;

/// Letters that are erased in one batch; deliveries wait meanwhile.
const BATCH_MAX: usize = 256;
/// Letters that are queried in one batch.
const STANDINGS_MAX: usize = 1_024;
/// A job number that no replay has, for queries that need only the state of letters.
const NO_JOB: u64 = u64::MAX;
/// Interval at which overwriting is polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Polls before the answer reports the parts that are left: half a minute, less than a client waits.
const LOOKS_MAX: u32 = 1_500;

/// The result of an erasure.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Erased {
    /// Letters that were erased by it.
    pub erased: u64,
    /// Letters that were erased before.
    pub already: u64,
    /// Letters that were refused because they are being replayed.
    pub in_replay: u64,
    /// Letters that do not exist any more.
    pub not_found: u64,
    /// Progress of overwriting the stored copies.
    pub wiped: WipeProgress,
}

impl Erased {
    fn count(&mut self, answer: EraseAnswer) {
        *match answer {
            EraseAnswer::Done => &mut self.erased,
            EraseAnswer::Already => &mut self.already,
            EraseAnswer::InReplay => &mut self.in_replay,
            EraseAnswer::NotFound => &mut self.not_found,
        } += 1;
    }
}

/// Erases payload, headers, key, tenant and error texts of letters, in every copy that the engine owns. It cannot be
/// undone. It is recorded twice: as asked for, before the first letter changes, and as done. If a crash leaves only
/// the first record, [`finish`] completes the erasure.
pub(super) async fn erase(
    log: &ActionLog,
    handle: &PipelineHandle,
    ids: &[u64],
    actor: &str,
    reason: &str,
) -> Result<Erased, ActionError> {
    let mut done = Erased::default();
    {
        let _alone = log.alone().await;
        let ids = erasable(handle, ids, Time::MAX, &mut done).await?;
        if !ids.is_empty() {
            let action = Action::new(handle.now(), actor, ActionKind::Erase, handle.name()).note(reason);
            let action = action.of(log.next_name('x'), ids.len() as u64);
            let asked = Action { ids: ids.clone(), step: ActionStep::Asked, ..action };
            let mut running = log.record_running(asked.clone()).await?;
            erase_each(handle, &asked, &ids, &mut done, &mut running).await?;
            record_done(log, handle, asked).await?;
            running.end().await;
        }
    }
    // Needed even if all of them were erased before, because that may have been a moment ago.
    done.wiped = wipe(handle).await?;
    Ok(done)
}

/// Completes an erasure that was asked for, and records its outcome. Letters that died since are left alone: their
/// content is not what the request was about.
pub(super) async fn finish(
    log: &ActionLog,
    handle: &PipelineHandle,
    asked: Action,
    running: &mut RunningAction,
) -> Result<(), ActionError> {
    let mut done = Erased::default();
    let left = erasable(handle, &asked.ids, asked.at, &mut done).await?;
    erase_each(handle, &asked, &left, &mut done, running).await?;
    record_done(log, handle, asked).await?;
    wipe(handle).await.map(drop)
}

async fn erase_each(
    handle: &PipelineHandle,
    asked: &Action,
    ids: &[u64],
    done: &mut Erased,
    running: &mut RunningAction,
) -> Result<(), ActionError> {
    let order = EraseOrder { by: asked.actor.clone(), reason: asked.note.clone().unwrap_or_default() };
    for part in ids.chunks(BATCH_MAX) {
        let answers = handle.erase(order.clone(), part).await?;
        answers.into_iter().for_each(|answer| done.count(answer));
        running.beat().await;
    }
    Ok(())
}

/// Writes the second record, which lists the letters that are erased now.
async fn record_done(log: &ActionLog, handle: &PipelineHandle, asked: Action) -> Result<(), ActionError> {
    let mut erased = Vec::with_capacity(asked.ids.len());
    for part in asked.ids.chunks(STANDINGS_MAX) {
        let standings = handle.letter_standings(NO_JOB, part).await?;
        let is_erased = |letter: &LetterStanding| letter.state == LetterState::Erased;
        let letters = part.iter().zip(standings).filter(|(_, letter)| letter.as_ref().is_some_and(is_erased));
        erased.extend(letters.map(|(id, _)| *id));
    }
    let letters = erased.len() as u64;
    log.record(Action { ids: erased, letters, step: ActionStep::Done, ..asked }).await
}

/// Those of `ids` that can be erased and died at `until` or before, sorted and without duplicates. The others are
/// counted in `done`.
async fn erasable(
    handle: &PipelineHandle,
    ids: &[u64],
    until: Time,
    done: &mut Erased,
) -> Result<Vec<u64>, ActionError> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let mut erasable = Vec::new();
    for part in ids.chunks(STANDINGS_MAX) {
        let standings = handle.letter_standings(NO_JOB, part).await?;
        for (id, letter) in part.iter().zip(standings) {
            let letter = letter.filter(|letter| letter.dead_at <= until);
            match letter.map_or(Some(EraseAnswer::NotFound), |letter| EraseAnswer::refusal(letter.state)) {
                Some(refusal) => done.count(refusal),
                None => erasable.push(*id),
            }
        }
    }
    Ok(erasable)
}

/// Deletes finished data now, and records who asked for it and how many records were deleted.
pub(super) async fn compact(
    log: &ActionLog,
    handle: &PipelineHandle,
    actor: &str,
) -> Result<WipeProgress, ActionError> {
    let _alone = log.alone().await;
    let action = Action::new(handle.now(), actor, ActionKind::Compact, handle.name());
    let asked = Action { step: ActionStep::Asked, ..action.of(log.next_name('c'), 0) };
    let running = log.record_running(asked.clone()).await?;
    let wiped = finish_compact(log, handle, asked).await?;
    running.end().await;
    Ok(wiped)
}

/// Deletes finished data and records the outcome, also for a process that ended halfway.
pub(super) async fn finish_compact(
    log: &ActionLog,
    handle: &PipelineHandle,
    asked: Action,
) -> Result<WipeProgress, ActionError> {
    let wiped = wipe(handle).await?;
    log.record(Action { letters: wiped.deleted, step: ActionStep::Done, ..asked }).await?;
    Ok(wiped)
}

/// Waits until the copies of erased letters are overwritten and finished records are deleted from topics. The wait is
/// bounded; the engine continues on its own.
async fn wipe(handle: &PipelineHandle) -> Result<WipeProgress, ActionError> {
    let mut wiped = handle.wipe().await?;
    for _ in 0..LOOKS_MAX {
        if wiped.parts_left == 0 {
            break;
        }
        if Handle::try_current().is_ok() {
            tokio::time::sleep(LOOK_EVERY).await;
        } else {
            std::thread::yield_now();
        }
        wiped = handle.wipe().await?;
    }
    Ok(wiped)
}
