//! Finishes actions that a crash interrupted: those of other processes if several share the letters, otherwise those
//! of this process's previous run.

use std::time::Duration;

use tokio::time::Instant;

use super::action::{Action, ActionKind};
use super::error::ActionError;
use super::log::ActionLog;
use super::unfinished::{RunningAction, Unfinished};
use super::{discards, edits, erasures};
use crate::handle::{HandleError, PipelineHandle};

/// Interval between looks for actions that other processes left unfinished.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Finishes actions that other processes left unfinished, until the pipeline stops.
pub(super) async fn for_others(log: ActionLog, handle: PipelineHandle) {
    let mut unfinished = Unfinished::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if matches!(handle.counts().await, Err(HandleError::Stopped(_))) {
            return;
        }
        let running = log.group().unfinished(handle.name());
        for record in unfinished.overdue(&running, Instant::now()) {
            let _alone = log.alone().await;
            let mut running = log.group().running(handle.name(), Some(&record));
            // If the record is missing, nothing was begun: it is written after the `running` mark and before the
            // first change.
            let finished = match log.group().recorded(&record) {
                Some(action) => finish(&log, &handle, action, &mut running).await,
                None => Ok(()),
            };
            // On failure, try again at the next look.
            if finished.is_ok() {
                running.end().await;
            }
        }
    }
}

/// Finishes actions that this process had begun before it ended.
pub(super) async fn own(log: ActionLog, handle: PipelineHandle) {
    let Ok(unfinished) = log.unfinished(handle.name()).await else { return };
    for action in unfinished {
        let _alone = log.alone().await;
        // If one fails, the next start finds it again.
        let _ = finish(&log, &handle, action, &mut RunningAction::new(None)).await;
    }
}

async fn finish(
    log: &ActionLog,
    handle: &PipelineHandle,
    action: Action,
    running: &mut RunningAction,
) -> Result<(), ActionError> {
    let id = action.id.clone().unwrap_or_default();
    match action.action {
        ActionKind::Erase => erasures::finish(log, handle, action, running).await,
        ActionKind::Compact => erasures::finish_compact(log, handle, action).await.map(drop),
        ActionKind::Edit => edits::finish(log, handle, action).await,
        ActionKind::Discard => {
            let is_undone = log.group().named(ActionKind::Undo, &id).is_some();
            discards::finish_discard(log, handle, action, is_undone, running).await
        }
        ActionKind::Undo => discards::finish_undo(log, handle, action, running).await,
        _ => Ok(()),
    }
}
