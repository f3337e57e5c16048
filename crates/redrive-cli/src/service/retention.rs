//! Discards open letters that are older than the configuration allows, once an hour.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redrive::actions::Discarded;
use redrive_server::Service;
use tokio::runtime::Runtime;

const EVERY: Duration = Duration::from_hours(1);
/// Not at once: letters may still be read.
const FIRST_AFTER: Duration = Duration::from_secs(5);

/// Runs until the process ends.
pub(super) fn start(runtime: &Runtime, service: &Service, pipeline: &str, keep: Duration) {
    let Ok(served) = service.find(pipeline) else { return };
    let (handle, actions, expired) = (served.handle.clone(), service.actions.clone(), served.expired.clone());
    let pipeline = pipeline.to_owned();
    runtime.spawn(async move {
        let mut pause = FIRST_AFTER;
        loop {
            tokio::time::sleep(pause).await;
            pause = EVERY;
            match actions.expire(&handle, keep).await {
                Ok(Discarded { discarded: 0, .. }) => {}
                Ok(Discarded { id, discarded, .. }) => {
                    expired.fetch_add(discarded, Ordering::Relaxed);
                    let id = id.unwrap_or_default();
                    tracing::info!(pipeline, discarded, id, "old letters were discarded by letter_retention");
                }
                Err(error) => tracing::warn!(pipeline, "letter_retention could not be applied: {error}"),
            }
        }
    });
}
