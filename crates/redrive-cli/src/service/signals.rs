//! SIGTERM and ^C: the first requests a clean shutdown, the second ends the process immediately.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exit::{Exit, Failed};

/// A process manager may signal a supervisor and its worker at once, and the supervisor passes the signal on: that
/// counts as one SIGTERM.
const ECHO: Duration = Duration::from_secs(1);

/// Whether a signal requested shutdown. Clones share the state.
#[derive(Clone, Debug)]
pub struct Signals {
    asked: watch::Receiver<bool>,
}

impl Signals {
    /// Starts listening. Must be called inside a runtime that stays.
    pub fn listen() -> Result<Self, Failed> {
        Self::listen_with(Duration::ZERO)
    }

    /// The same for the worker of a supervisor, which may receive one SIGTERM twice.
    pub fn listen_as_worker() -> Result<Self, Failed> {
        Self::listen_with(ECHO)
    }

    fn listen_with(echo: Duration) -> Result<Self, Failed> {
        let failed = |error: std::io::Error| Failed::new(Exit::Storage, format!("no signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let (ask, asked) = watch::channel(false);
        tokio::spawn(async move {
            let mut first_terminate: Option<Instant> = None;
            let mut asked_before = false;
            loop {
                tokio::select! {
                    _ = terminate.recv() => {
                        let first = *first_terminate.get_or_insert_with(Instant::now);
                        if asked_before && first.elapsed() < echo {
                            continue;
                        }
                    }
                    _ = interrupt.recv() => {}
                }
                if asked_before {
                    // A second signal: do not wait. Accepted messages are on disk; running ones are repeated.
                    std::process::exit(i32::from(Exit::Interrupted.code()));
                }
                asked_before = true;
                // If there is no receiver, shutdown is under way already.
                let _ = ask.send(true);
            }
        });
        Ok(Self { asked })
    }

    /// Completes once a signal arrived.
    pub async fn asked(mut self) {
        // The sender lives as long as the runtime.
        let _ = self.asked.wait_for(|asked| *asked).await;
    }
}
