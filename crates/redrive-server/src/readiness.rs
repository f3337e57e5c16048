//! Whether the process wants traffic: `/readyz` says so to load balancers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Shared between the server and whoever starts and stops the pipelines.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    phase: Arc<AtomicU8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
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
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Stopping,
        }
    }

    /// The pipelines run. Does nothing once the process is stopping: there is no way back.
    pub fn ready(&self) {
        let _ = self.phase.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// No more traffic, please; requests are still answered.
    pub fn stopping(&self) {
        self.phase.store(2, Ordering::Relaxed);
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
