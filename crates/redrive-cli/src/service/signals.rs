//! SIGTERM and ^C: the first asks for an end in good order, the second ends the process now.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{Exit, Failed};

/// Whether somebody asked for the end. Clones hear the same.
#[derive(Clone, Debug)]
pub struct Signals {
    asked: watch::Receiver<bool>,
}

impl Signals {
    /// Listens from now on. Must be called inside a runtime that stays.
    pub fn listen() -> Result<Self, Failed> {
        let failed = |error: std::io::Error| Failed::new(Exit::Storage, format!("no signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let (ask, asked) = watch::channel(false);
        tokio::spawn(async move {
            for times in 0.. {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if times > 0 {
                    // Whoever asks twice does not want to wait. What is accepted is on disk; what runs is run again.
                    std::process::exit(i32::from(Exit::Interrupted.code()));
                }
                // Nobody listening any more is an end too.
                let _ = ask.send(true);
            }
        });
        Ok(Self { asked })
    }

    /// Ready once somebody asked.
    pub async fn asked(mut self) {
        // The sender lives as long as the runtime; if it is gone, so is everything else.
        let _ = self.asked.wait_for(|asked| *asked).await;
    }
}
