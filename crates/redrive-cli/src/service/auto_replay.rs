//! Starts the controller of a pipeline with automatic replay.

use redrive::internal::replay::auto;
use redrive::replay::AutoReplay;
use redrive_server::Service;
use tokio::runtime::Runtime;

/// Runs until the pipeline stops.
pub(super) fn start(runtime: &Runtime, service: &Service, pipeline: &str, settings: AutoReplay) {
    let Ok(served) = service.find(pipeline) else { return };
    let (handle, replays, actions) =
        (served.handle.clone(), service.replays.clone(), service.actions.clone());
    let pipeline = pipeline.to_owned();
    runtime.spawn(async move {
        let failed = |error: &auto::AutoReplayError| {
            tracing::warn!(target: "redrive::replay", pipeline, "auto-replay could not continue: {error}");
        };
        auto::run(settings, handle, replays, actions, failed).await;
    });
}
