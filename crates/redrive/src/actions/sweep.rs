//! Hourly retention sweeps while the pipeline runs.

use std::time::Duration;

use super::actions::Actions;
use super::discards::Discarded;
use super::error::ActionError;
use crate::handle::{HandleError, PipelineHandle};
use crate::lease::Lease;
use crate::replay::Replays;

const EVERY: Duration = Duration::from_hours(1);
const FIRST_AFTER: Duration = Duration::from_secs(5);
/// Names the process that sweeps, if several share the letters.
const LEASE: &str = "lease/retention";
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After this many tries it sweeps without the lease: a letter that two processes discard is discarded once, only
/// recorded twice.
const LOOKS_MAX: usize = 120;

/// Sweeps every hour until the pipeline stops, for the first time after a few seconds, since letters may still be
/// loading. `report` gets the result of each sweep.
pub async fn sweep_hourly(
    actions: Actions,
    handle: PipelineHandle,
    keep: Duration,
    replays: Replays,
    report: impl Fn(Result<Discarded, ActionError>),
) {
    let mut pause = FIRST_AFTER;
    let mut lease = Lease::new(LEASE, actions.process_name());
    loop {
        tokio::time::sleep(pause).await;
        pause = EVERY;
        let swept = sweep(&actions, &handle, keep, &replays, &mut lease).await;
        if matches!(swept, Err(ActionError::Handle(HandleError::Stopped(_)))) {
            return;
        }
        report(swept);
    }
}

/// Runs one sweep. Processes that share the letters take turns: two sweeps at once would each find and record the
/// same letters.
async fn sweep(
    actions: &Actions,
    handle: &PipelineHandle,
    keep: Duration,
    replays: &Replays,
    lease: &mut Lease,
) -> Result<Discarded, ActionError> {
    let Some(shared) = handle.shared_records() else { return actions.expire(handle, keep, replays).await };
    for _ in 0..LOOKS_MAX {
        if lease.look(&shared).await {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let mut swept = std::pin::pin!(actions.expire(handle, keep, replays));
    loop {
        tokio::select! {
            swept = &mut swept => return swept,
            () = tokio::time::sleep(LOOK_EVERY) => {
                lease.look(&shared).await;
            }
        }
    }
}
