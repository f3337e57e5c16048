//! Starts the pipelines and the API, and shuts both down cleanly: unready, drained, stopped.

use std::future::Future;
use std::net::SocketAddr;

use redrive::{RunError, RunReport};
use redrive_server::Server;
use tokio::runtime::{Builder, Runtime};

use super::alerts::{Watched, Watching};
use super::assemble::Assembled;
use super::engine_failed::engine_failed;
use crate::exit::{Exit, Failed};

/// One runtime for handlers and one for the API, which answers whatever a handler does.
#[derive(Debug)]
pub struct Runtimes {
    pub handlers: Runtime,
    pub api: Runtime,
}

impl Runtimes {
    pub fn start() -> Result<Self, Failed> {
        let runtime = |name: &str, threads: Option<usize>| {
            let mut builder = Builder::new_multi_thread();
            builder.enable_all().thread_name(name);
            if let Some(threads) = threads {
                builder.worker_threads(threads);
            }
            builder.build().map_err(|error| Failed::new(Exit::Storage, format!("no threads: {error}")))
        };
        Ok(Self { handlers: runtime("redrive-handler", None)?, api: runtime("redrive-api", Some(2))? })
    }

    /// Shuts both down without waiting for blocked threads.
    pub fn leave(self) {
        self.handlers.shutdown_background();
        self.api.shutdown_background();
    }
}

/// The end of a run that was requested.
#[derive(Debug)]
pub struct RunEnd {
    pub report: RunReport,
}

/// Runs until `stop`. `started` is called with the API's address once everything runs.
pub fn run(
    runtimes: &Runtimes,
    assembled: Assembled,
    stop: impl Future<Output = ()> + Send + 'static,
    started: impl FnOnce(SocketAddr) -> Result<(), Failed>,
) -> Result<RunEnd, Failed> {
    let Assembled { redrive, service, server, findings, alerts, pills, dir, .. } = assembled;
    let Assembled { on_purged, log_scrubs, auto_replays, retentions, .. } = assembled;
    for finding in findings {
        tracing::warn!("{finding}");
    }
    // A pause is an operator's decision, which a restart keeps.
    for served in &service.pipelines {
        let name = served.handle.name();
        if service.actions.is_paused(name) && !served.handle.shares_pause() {
            let paused = runtimes.api.block_on(served.handle.pause());
            paused.map_err(|error| Failed::new(Exit::Storage, error.to_string()))?;
            tracing::warn!(
                pipeline = name,
                "paused before the restart, and still paused; `redrive resume {name}`"
            );
        }
    }
    for one in on_purged {
        one.start(&runtimes.api)?;
    }
    for one in log_scrubs {
        one.start(&runtimes.api);
    }
    for (pipeline, settings) in auto_replays {
        super::auto_replay::start(&runtimes.api, &service, &pipeline, settings);
    }
    for (pipeline, keep) in retentions {
        super::retention::start(&runtimes.api, &service, &pipeline, keep);
    }
    let watched = service.pipelines.iter().map(|served| Watched {
        handle: served.handle.clone(),
        subscriptions: served.subscriptions.clone(),
        replays: service.replays.clone(),
        actions: service.actions.clone(),
        redaction: served.redaction.clone(),
    });
    let watched = watched.collect();
    let server = Server::bind(server, service).map_err(|error| Failed::usage(error.to_string()))?;
    let (address, readiness) = (server.address(), server.readiness());
    let (close_api, api_closes) = tokio::sync::oneshot::channel::<()>();
    let api = runtimes.api.spawn(server.run(async {
        // The sender is dropped at the latest when the run ends.
        let _ = api_closes.await;
    }));
    let watching = Watching::start(&alerts, watched, pills, dir, &runtimes.api)?;
    started(address)?;
    readiness.ready();
    let ended = runtimes.handlers.block_on(async {
        let until = async {
            stop.await;
            readiness.stopping();
        };
        redrive.run_until(until).await
    });
    if let Some(watching) = watching {
        runtimes.api.block_on(watching.end());
    }
    drop(close_api);
    let served = runtimes.api.block_on(api);
    let report = ended.map_err(|error| run_failed(&error))?;
    match served {
        Ok(Ok(())) => Ok(RunEnd { report }),
        Ok(Err(error)) => Err(Failed::usage(error.to_string())),
        Err(error) => Err(Failed::new(Exit::Storage, format!("the API ended: {error}"))),
    }
}

fn run_failed(error: &RunError) -> Failed {
    match error {
        RunError::Engine { source, .. } => {
            let failed = engine_failed(source);
            Failed::new(failed.exit, error.to_string())
        }
        other => Failed::new(Exit::Storage, other.to_string()),
    }
}
