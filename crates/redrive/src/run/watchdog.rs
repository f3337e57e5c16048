//! Notices a handler that neither comes back nor yields: no timeout can end it, only the end of the process.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dispatch::CallId;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A handler that is stuck.
#[derive(Clone, Debug)]
pub struct Stuck {
    pub pipeline: Arc<str>,
    pub message_id: String,
    /// How long it has been running.
    pub after: Duration,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pipeline, message_id, after } = self;
        write!(
            f,
            "{pipeline}: the handler of {message_id} has not come back for {after:?} and does not yield"
        )
    }
}

pub(crate) type OnStuck = Arc<dyn Fn(&Stuck) + Send + Sync>;

/// Watches the call that has run for the longest, by the monotonic clock: a wall clock that is set, or a machine that was
/// asleep, makes nobody stuck.
pub(crate) struct Watchdog {
    on_stuck: Option<OnStuck>,
    patience: Duration,
    looked: Instant,
    watched: Option<(CallId, Instant)>,
}

impl Watchdog {
    /// A handler that yields ends at its timeout; one that has not ended after twice as long does not.
    pub(crate) fn new(on_stuck: Option<OnStuck>, timeout: Duration) -> Self {
        Self { on_stuck, patience: timeout.saturating_mul(2), looked: Instant::now(), watched: None }
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.on_stuck.is_some() && self.looked.elapsed() >= LOOK_EVERY
    }

    /// `longest` is the call that has run for the longest. How long it has been stuck, if it is.
    pub(crate) fn look(&mut self, longest: Option<CallId>) -> Option<Duration> {
        let now = Instant::now();
        self.looked = now;
        match (longest, self.watched) {
            (Some(call), Some((watched, since))) if call == watched => {
                let after = now - since;
                (after >= self.patience).then_some(after)
            }
            (longest, _) => {
                self.watched = longest.map(|call| (call, now));
                None
            }
        }
    }

    pub(crate) fn tell(&self, stuck: &Stuck) {
        if let Some(on_stuck) = &self.on_stuck {
            on_stuck(stuck);
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("patience", &self.patience).finish_non_exhaustive()
    }
}
