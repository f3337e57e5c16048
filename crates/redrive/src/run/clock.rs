//! The clock of a run: the wall clock, or one that a test controls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive_core::Time;

/// The clock that determines when messages are due.
pub trait Clock: Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Time;

    /// Called when nothing runs and the next work is at `due`. A virtual clock may jump there and return `true`; the
    /// wall clock returns `false`, so that the thread sleeps.
    fn idle_until(&self, due: Time) -> bool {
        let _ = due;
        false
    }
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Truncated rather than rounded, because a delivery must not be early by a fraction of a millisecond.
        Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock for tests that skips every wait: minutes of backoff pass in no time. Handler timeouts are real.
///
/// ```
/// use redrive::{MemoryStores, Message, Pipeline, Redrive, VirtualClock};
///
/// let redrive = Redrive::builder()
///     .engine(MemoryStores::new())
///     .clock(VirtualClock::default())
///     .pipeline(Pipeline::new("orders").handler_fn(|_: Message| async { Ok(()) }))
///     .build()?;
/// # Ok::<(), redrive::BuildError>(())
/// ```
#[derive(Debug)]
pub struct VirtualClock {
    now_ms: AtomicU64,
}

impl VirtualClock {
    /// A clock that starts at `now`.
    pub fn starting_at(now: Time) -> Self {
        Self { now_ms: AtomicU64::new(now.as_millis()) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, span: Duration) {
        let moved = self.now().plus(span).as_millis();
        self.now_ms.fetch_max(moved, Ordering::SeqCst);
    }
}

impl Default for VirtualClock {
    /// Starts at a realistic time, far from zero.
    fn default() -> Self {
        Self::starting_at(Time::from_millis(1_700_000_000_000))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn idle_until(&self, due: Time) -> bool {
        self.now_ms.fetch_max(due.as_millis(), Ordering::SeqCst) < due.as_millis()
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn idle_until(&self, due: Time) -> bool {
        (**self).idle_until(due)
    }
}
