//! Sleep and wake-up of the dispatch thread, without a syscall while it is busy.

use std::time::Duration;

use crate::sync::{AtomicU8, OnceLock, Ordering, Thread, current, park_timeout};

const AWAKE: u8 = 0;
const CALLED: u8 = 1;
const ASLEEP: u8 = 2;

/// One sleeper, any number of wakers. A call while the sleeper is awake makes its next sleep return at once, so that
/// no event between its last check and its sleep is missed.
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

    /// Sleeps until called, at most for `longest`. Always call this from the same thread. Returns whether it was
    /// called.
    pub(crate) fn sleep(&self, longest: Duration) -> bool {
        self.sleeper.get_or_init(current);
        let asleep = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        if asleep.is_ok() {
            park_timeout(longest);
        }
        self.state.swap(AWAKE, Ordering::SeqCst) == CALLED
    }
}
