//! Detects a handler that neither returns nor yields: no timeout can end it, only the end of the process.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dispatch::CallId;

/// Interval between looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The most time that counts between two looks. If a look is later than this, the whole process stood still: it was
/// stopped, its container was paused, or the machine was asleep. Then handlers had no time either.
const COUNTED_MAX: Duration = Duration::from_millis(500);

/// A stuck handler.
#[derive(Clone, Debug)]
pub struct Stuck {
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// The id of the message.
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

/// Watches the longest-running call and adds up its running time by the monotonic clock, so that neither a step of
/// the wall clock nor a standstill of the process makes a call stuck.
pub(crate) struct Watchdog {
    on_stuck: Option<OnStuck>,
    patience: Duration,
    looked: Instant,
    /// The watched call, and its running time so far.
    watched: Option<(CallId, Duration)>,
}

impl Watchdog {
    /// A handler that yields ends at its timeout, so one that runs for twice as long does not yield.
    pub(crate) fn new(on_stuck: Option<OnStuck>, timeout: Duration, now: Instant) -> Self {
        Self { on_stuck, patience: timeout.saturating_mul(2), looked: now, watched: None }
    }

    /// Whether a look is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.on_stuck.is_some() && now.duration_since(self.looked) >= LOOK_EVERY
    }

    /// Looks at `longest`, the longest-running call. Returns how long it has been running, if it is stuck.
    pub(crate) fn look(&mut self, longest: Option<CallId>, now: Instant) -> Option<Duration> {
        let passed = now.duration_since(self.looked).min(COUNTED_MAX);
        self.looked = now;
        let before = self.watched.filter(|(watched, _)| Some(*watched) == longest);
        let had = before.map_or(Duration::ZERO, |(_, had)| had + passed);
        self.watched = longest.map(|call| (call, had));
        (longest.is_some() && had >= self.patience).then_some(had)
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

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    /// Looks every 250 ms for `time`. Returns whether the call was found to be stuck.
    fn watch(dog: &mut Watchdog, call: CallId, now: &mut Instant, time: Duration) -> bool {
        (0..time.as_millis() / LOOK_EVERY.as_millis()).any(|_| {
            *now += LOOK_EVERY;
            assert!(dog.is_due(*now));
            dog.look(Some(call), *now).is_some()
        })
    }

    fn watchdog(now: Instant) -> Watchdog {
        Watchdog::new(Some(Arc::new(|_| {})), TIMEOUT, now)
    }

    #[test]
    fn a_call_is_stuck_after_twice_its_timeout() {
        let mut now = Instant::now();
        let mut dog = watchdog(now);
        assert!(!watch(&mut dog, CallId::of_slot(1), &mut now, Duration::from_secs(4)));
        assert!(!watch(&mut dog, CallId::of_slot(2), &mut now, Duration::from_secs(4)), "another call");
        assert!(watch(&mut dog, CallId::of_slot(2), &mut now, Duration::from_millis(250)));
    }

    // Regression: three of thirteen processes that were stopped for longer than 2 × timeout ended with exit code 70.
    #[test]
    fn time_in_which_the_process_stood_still_makes_nobody_stuck() {
        let mut now = Instant::now();
        let mut dog = watchdog(now);
        assert!(!watch(&mut dog, CallId::of_slot(1), &mut now, Duration::from_secs(1)));
        now += Duration::from_hours(8);
        assert_eq!(dog.look(Some(CallId::of_slot(1)), now), None);
        assert!(!watch(&mut dog, CallId::of_slot(1), &mut now, Duration::from_secs(2)));
        assert!(
            watch(&mut dog, CallId::of_slot(1), &mut now, Duration::from_secs(2)),
            "it had its time since"
        );
    }
}
