//! Retention by the clock: a sweep every hour for as long as the pipeline runs.

use std::time::Duration;

use super::actions::Actions;
use super::discards::Discarded;
use super::error::ActionError;
use crate::handle::{HandleError, PipelineHandle};

const EVERY: Duration = Duration::from_hours(1);
const FIRST_AFTER: Duration = Duration::from_secs(5);

/// Sweeps a moment after it begins, since letters may still be read then, and every hour from then on, until the pipeline
/// stops. `report` gets the result of each sweep.
pub async fn sweep_hourly(
    actions: Actions,
    handle: PipelineHandle,
    keep: Duration,
    report: impl Fn(Result<Discarded, ActionError>),
) {
    let mut pause = FIRST_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        pause = EVERY;
        let swept = actions.expire(&handle, keep).await;
        if matches!(swept, Err(ActionError::Handle(HandleError::Stopped(_)))) {
            return;
        }
        report(swept);
    }
}
