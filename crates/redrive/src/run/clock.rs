//! The one clock of a run: the wall clock, or one that a test moves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive_core::Time;

/// Tells the time by which messages come due.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Time;

    /// Nothing runs, and only time can bring the next work, at `due`. A clock that can be moved may jump there and say
    /// `true`; the wall clock lets the thread sleep.
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
        // Cut, not rounded up: a delivery must not be early by a part of a millisecond.
        Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock for tests that jumps over every wait: minutes of backoff pass in no time. Handler timeouts stay real.
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
    /// Begins on a day that is far from zero, as real time is.
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
