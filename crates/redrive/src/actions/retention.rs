//! Retention, where configured: discards open letters that died long ago, recorded like every discard.

use std::time::Duration;

use super::discards::{self, Discarded};
use super::error::ActionError;
use super::log::ActionLog;
use crate::engine::LetterState;
use crate::handle::PipelineHandle;
use crate::replay::Replays;

/// The actor of these discards in the action log.
pub const RETENTION_ACTOR: &str = "retention";
/// The most letters that one sweep discards; the next one continues.
const SWEEP_MAX: usize = 100_000;
/// Letters that are scanned in one batch, between deliveries.
const LOOK_MAX: usize = 1_000;

/// Discards open letters that died at least `keep` ago, with one line in the action log for all of them. Like every
/// discarded letter they are forgotten later, and can be taken back until then. Letters that wait in a replay job stay: somebody
/// has decided to deliver them.
pub(super) async fn expire(
    log: &ActionLog,
    handle: &PipelineHandle,
    keep: Duration,
    replays: &Replays,
) -> Result<Discarded, ActionError> {
    let (now, mut expired, mut after) = (handle.now(), Vec::new(), None);
    let taken = replays.taken(handle).await;
    while expired.len() < SWEEP_MAX {
        let scan = handle.scan_letters(Some(LetterState::Open), after, LOOK_MAX, LOOK_MAX).await?;
        let old = scan.letters.iter().filter(|letter| letter.dead_at.plus(keep) <= now);
        let old = old.filter(|letter| taken.job_of(letter.id).is_none());
        expired.extend(old.map(|letter| letter.id));
        after = scan.next;
        if after.is_none() {
            break;
        }
    }
    let reason = format!("died more than {} ago", redrive_core::duration::print(keep));
    discards::discard(log, handle, &expired, RETENTION_ACTOR, &reason).await
}
