//! Retention by the clock: a sweep every hour for as long as the pipeline runs.

use std::time::Duration;

use super::actions::Actions;
use super::discards::Discarded;
use super::error::ActionError;
use crate::handle::{HandleError, PipelineHandle};
use crate::lease::Lease;
use crate::replay::Replays;

const EVERY: Duration = Duration::from_hours(1);
const FIRST_AFTER: Duration = Duration::from_secs(5);
/// The record that names the process that sweeps, where several share the letters.
const LEASE: &str = "lease/retention";
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many looks it sweeps whoever else does: a letter that two discard is discarded once and only recorded twice.
const LOOKS_MAX: usize = 120;

/// Sweeps a moment after it begins, since letters may still be read then, and every hour from then on, until the pipeline
/// stops. `report` gets the result of each sweep.
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

/// One sweep. Where several processes share the letters they go one after the other: two at the same time would each find the same
/// letters and record them.
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
