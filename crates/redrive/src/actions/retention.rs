//! Retention, where somebody asked for it: open letters that died long ago are discarded, recorded like every discard.

use std::time::Duration;

use super::actions::Actions;
use super::discards::{self, Discarded};
use super::error::ActionError;
use super::log::ActionLog;
use crate::engine::LetterState;
use crate::handle::{HandleError, PipelineHandle};

/// Who discards them, in the action log.
pub const RETENTION_ACTOR: &str = "retention";
const EVERY: Duration = Duration::from_hours(1);
const FIRST_AFTER: Duration = Duration::from_secs(5);
/// Letters of one sweep; the next one goes on.
const SWEEP_MAX: usize = 100_000;
/// Letters that are looked at in one go, between deliveries.
const LOOK_MAX: usize = 1_000;

/// Sweeps a moment after it begins, since letters may still be read then, and every hour from then on, until the pipeline
/// stops. `told` hears of each sweep.
pub async fn sweep_hourly(
    actions: Actions,
    handle: PipelineHandle,
    keep: Duration,
    told: impl Fn(Result<Discarded, ActionError>),
) {
    let mut pause = FIRST_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        pause = EVERY;
        let swept = actions.expire(&handle, keep).await;
        if matches!(swept, Err(ActionError::Handle(HandleError::Stopped(_)))) {
            return;
        }
        told(swept);
    }
}

/// Discards open letters that died at least `keep` ago, with one line in the action log for all of them. Like every
/// discarded letter they are forgotten later, and can be taken back until then.
pub(super) async fn expire(
    log: &ActionLog,
    handle: &PipelineHandle,
    keep: Duration,
) -> Result<Discarded, ActionError> {
    let (now, mut expired, mut after) = (handle.now(), Vec::new(), None);
    while expired.len() < SWEEP_MAX {
        let scan = handle.scan_letters(Some(LetterState::Open), after, LOOK_MAX, LOOK_MAX).await?;
        let old = scan.letters.iter().filter(|letter| letter.dead_at.plus(keep) <= now);
        expired.extend(old.map(|letter| letter.id));
        after = scan.next;
        if after.is_none() {
            break;
        }
    }
    let reason = format!("died more than {} ago", redrive_core::duration::print(keep));
    discards::discard(log, handle, &expired, RETENTION_ACTOR, &reason).await
}
