//! Starts the retention sweeps of a pipeline that is configured to discard old letters.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redrive::actions::{Discarded, sweep_hourly};
use redrive_server::Service;
use tokio::runtime::Runtime;

/// Runs until the pipeline stops.
pub(super) fn start(runtime: &Runtime, service: &Service, pipeline: &str, keep: Duration) {
    let Ok(served) = service.find(pipeline) else { return };
    let (handle, actions, expired) = (served.handle.clone(), service.actions.clone(), served.expired.clone());
    let pipeline = pipeline.to_owned();
    let replays = service.replays.clone();
    runtime.spawn(sweep_hourly(actions, handle, keep, replays, move |swept| match swept {
        Ok(Discarded { discarded: 0, .. }) => {}
        Ok(Discarded { id, discarded, .. }) => {
            expired.fetch_add(discarded, Ordering::Relaxed);
            let id = id.unwrap_or_default();
            tracing::info!(pipeline, discarded, id, "old letters were discarded by letter_retention");
        }
        Err(error) => tracing::warn!(pipeline, "letter_retention could not be applied: {error}"),
    }));
}
