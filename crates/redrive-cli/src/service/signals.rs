//! SIGTERM and ^C: the first asks for an end in good order, the second ends the process now.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exit::{Exit, Failed};

/// A process manager may tell a supervisor and its worker at once, and the supervisor passes it on: that is one SIGTERM.
const ECHO: Duration = Duration::from_secs(1);

/// Whether a signal asked for the end. Clones see the same.
#[derive(Clone, Debug)]
pub struct Signals {
    asked: watch::Receiver<bool>,
}

impl Signals {
    /// Listens from now on. Must be called inside a runtime that stays.
    pub fn listen() -> Result<Self, Failed> {
        Self::listen_with(Duration::ZERO)
    }

    /// The same for the worker of a supervisor, which may hear one SIGTERM twice.
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
                    // A second signal: do not wait. What is accepted is on disk; what runs is run again.
                    std::process::exit(i32::from(Exit::Interrupted.code()));
                }
                asked_before = true;
                // No receiver any more is an end too.
                let _ = ask.send(true);
            }
        });
        Ok(Self { asked })
    }

    /// Ready once a signal arrived.
    pub async fn asked(mut self) {
        // The sender lives as long as the runtime; if it is gone, so is everything else.
        let _ = self.asked.wait_for(|asked| *asked).await;
    }
}
