//! Limits how long a client may take to read its answer. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// A client that reads nothing for this long is disconnected.
const STALL_MAX: Duration = Duration::from_secs(10);
/// The same for a client that follows events: its stream must end after a complete event, which takes longer. There are
/// few such streams.
const FOLLOWER_STALL_MAX: Duration = Duration::from_mins(10);
/// Over any longer time it must read at least this much per second.
const BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

/// The time that a client has left to read what is written to it.
#[derive(Debug, Default)]
pub(crate) struct WritePace {
    /// Set while data waits to be read.
    deadline: Option<Instant>,
}

impl WritePace {
    /// Records that nothing could be written. Returns when to give up.
    pub fn blocked(&mut self, now: Instant) -> Instant {
        *self.deadline.get_or_insert(now + STALL_MAX)
    }

    /// Records that `bytes` were read, which extends the time accordingly, but never beyond a stall.
    pub fn taken(&mut self, bytes: usize, now: Instant) {
        if let Some(deadline) = &mut self.deadline {
            let earned =
                Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000 / BYTES_PER_SECOND_MIN));
            *deadline = (*deadline + earned).min(now + STALL_MAX);
        }
    }

    /// Like [`Self::blocked`], for a client that follows events.
    pub fn follower_blocked(&mut self, now: Instant) -> Instant {
        *self.deadline.get_or_insert(now + FOLLOWER_STALL_MAX)
    }

    /// Like [`Self::taken`], for a client that follows events, which may read slowly.
    pub fn follower_took(&mut self, now: Instant) {
        self.deadline = self.deadline.map(|_| now + FOLLOWER_STALL_MAX);
    }

    /// Everything was read.
    pub fn done(&mut self) {
        self.deadline = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many seconds a client survives that reads `bytes` once a second, up to an hour.
    fn lasts(bytes: usize) -> u64 {
        let began = Instant::now();
        let mut pace = WritePace::default();
        pace.blocked(began);
        for second in 1..=3_600 {
            let now = began + Duration::from_secs(second);
            if pace.blocked(now) <= now {
                return second;
            }
            pace.taken(bytes, now);
        }
        3_600
    }

    #[test]
    fn a_client_that_takes_nothing_is_cut_off_after_ten_seconds() {
        assert_eq!(lasts(0), 10);
    }

    #[test]
    fn a_byte_now_and_then_does_not_help() {
        assert_eq!(lasts(1), 11);
        assert!(lasts(16 * 1024) < 15, "a quarter of what is asked for");
    }

    #[test]
    fn a_client_that_keeps_the_pace_may_take_all_the_time_it_needs() {
        assert_eq!(lasts(64 * 1024), 3_600);
        assert_eq!(lasts(10 * 1024 * 1024), 3_600);
    }

    #[test]
    fn every_answer_begins_anew() {
        let now = Instant::now();
        let mut pace = WritePace::default();
        pace.blocked(now);
        pace.done();
        let later = now + Duration::from_mins(5);
        assert_eq!(pace.blocked(later), later + STALL_MAX);
    }
}
