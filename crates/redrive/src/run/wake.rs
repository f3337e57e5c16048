//! Sleep and wake of the dispatch thread, without a syscall while it is busy anyway.

use std::time::Duration;

use crate::sync::{AtomicU8, OnceLock, Ordering, Thread, current, park_timeout};

const AWAKE: u8 = 0;
const CALLED: u8 = 1;
const ASLEEP: u8 = 2;

/// One sleeper, any number of wakers. A call that comes while it is awake makes its next sleep return at once, so that
/// nothing that happened between its last look and its sleep is missed.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    state: AtomicU8,
    sleeper: OnceLock<Thread>,
}

impl Wake {
    pub(crate) fn call(&self) {
        if self.state.swap(CALLED, Ordering::SeqCst) == ASLEEP
            && let Some(sleeper) = self.sleeper.get()
        {
            sleeper.unpark();
        }
    }

    /// Sleeps until called, at most for `longest`. Always from the same thread. Whether it was called.
    pub(crate) fn sleep(&self, longest: Duration) -> bool {
        self.sleeper.get_or_init(current);
        let asleep = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        if asleep.is_ok() {
            park_timeout(longest);
        }
        self.state.swap(AWAKE, Ordering::SeqCst) == CALLED
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const HANG_GUARD: Duration = Duration::from_mins(5);

    #[test]
    fn a_call_before_the_sleep_is_not_missed() {
        let wake = Wake::default();
        wake.call();
        assert!(wake.sleep(HANG_GUARD));
        assert!(!wake.sleep(Duration::from_millis(1)), "one call ends one sleep");
    }

    #[test]
    fn a_call_from_another_thread_ends_the_sleep() {
        let wake = Arc::new(Wake::default());
        let waker = Arc::clone(&wake);
        let began = Instant::now();
        let caller = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            waker.call();
        });
        wake.sleep(HANG_GUARD);
        caller.join().unwrap();
        assert!(began.elapsed() < HANG_GUARD);
    }
}
