//! Whether the process wants traffic: `/readyz` reports it to load balancers.

use std::sync::Arc;

use tokio::sync::watch;

/// Shared between the server and the owner of the pipelines.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    phase: Arc<watch::Sender<Phase>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Phase {
    #[default]
    Starting,
    Ready,
    Stopping,
}

impl Phase {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }
}

impl Readiness {
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Marks the pipelines as running. Does nothing once the process is stopping, which is final.
    pub fn ready(&self) {
        self.phase.send_if_modified(|phase| {
            let is_starting = *phase == Phase::Starting;
            if is_starting {
                *phase = Phase::Ready;
            }
            is_starting
        });
    }

    /// Asks for no more traffic; requests are still answered.
    pub fn stopping(&self) {
        self.phase.send_replace(Phase::Stopping);
    }

    /// Waits until the process is stopping.
    pub(crate) async fn stopped(&self) {
        // The sender is held here, so it cannot be dropped.
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Stopping).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_is_for_good() {
        let readiness = Readiness::default();
        assert_eq!(readiness.phase(), Phase::Starting);
        readiness.ready();
        assert_eq!(readiness.phase(), Phase::Ready);
        readiness.stopping();
        readiness.ready();
        assert_eq!(readiness.phase(), Phase::Stopping);
    }
}
