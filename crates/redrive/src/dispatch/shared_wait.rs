//! A Retry-After that applies to all messages of a sink: until when nothing is sent, and which answer asked for it.
//!
//! It has its own bound (`retry_after_shared_max`), far below that of the message that received it: one answer must not
//! stop a pipeline for a day. An operator can lift it.

#![warn(missing_docs)]

use std::time::Duration;

use redrive_core::{FailureKind, Time};

/// A Retry-After that all messages of a sink wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedWait {
    /// When the receiver asked for it.
    pub since: Time,
    /// When it is over.
    pub until: Time,
    /// The wait that the sink asked for, within `retry_after_max`; longer than the actual wait if that was cut.
    pub asked: Duration,
    /// The message that received it.
    pub message_id: String,
    /// The kind of failure that carried it.
    pub kind: FailureKind,
}

impl AskedWait {
    /// Whether the wait is shorter than asked for.
    pub fn is_cut(&self) -> bool {
        self.asked > self.until.since(self.since)
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// In full.
    Served,
    /// Earlier than asked for: the sink may ask again.
    Cut,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SharedWait {
    asked: Option<AskedWait>,
    is_over: bool,
}

impl SharedWait {
    /// Records that the sink asked for a wait. Returns whether no wait was running.
    pub(super) fn ask(&mut self, wait: AskedWait) -> bool {
        let is_new = self.asked.is_none() || self.is_over;
        if is_new || self.asked.as_ref().is_some_and(|asked| asked.until < wait.until) {
            (self.asked, self.is_over) = (Some(wait), false);
        }
        is_new
    }

    /// Ends the wait when it is over. A clock that was set back does not prolong it.
    pub(super) fn tick(&mut self, now: Time) -> Option<Over> {
        let asked = self.asked.as_mut().filter(|_| !self.is_over)?;
        if now < asked.since {
            (asked.until, asked.since) = (now.plus(asked.until.since(asked.since)), now);
        }
        if now < asked.until {
            return None;
        }
        self.is_over = true;
        Some(if asked.is_cut() { Over::Cut } else { Over::Served })
    }

    /// Ends the wait, on an operator's order. Returns whether there was one.
    pub(super) fn lift(&mut self) -> bool {
        let waits = self.now().is_some();
        self.is_over = true;
        waits
    }

    /// The sink accepted a message, so a wait that is over is forgotten.
    pub(super) fn answered(&mut self) {
        if self.is_over {
            self.asked = None;
        }
    }

    /// The current wait.
    pub(super) fn now(&self) -> Option<&AskedWait> {
        self.asked.as_ref().filter(|_| !self.is_over)
    }

    /// Whether the sink asked for a wait and has not accepted anything since.
    pub(super) fn is_unanswered(&self) -> bool {
        self.asked.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + second * 1_000)
    }

    fn wait(since: u64, seconds: u64, asked: u64) -> AskedWait {
        AskedWait {
            since: at(since),
            until: at(since + seconds),
            asked: Duration::from_secs(asked),
            message_id: "o-1".into(),
            kind: FailureKind::Status(429),
        }
    }

    #[test]
    fn the_longest_wait_counts_and_ends_at_its_time() {
        let mut shared = SharedWait::default();
        assert!(shared.ask(wait(0, 10, 10)));
        assert!(!shared.ask(wait(1, 4, 4)) && !shared.ask(wait(2, 20, 20)));
        assert_eq!(shared.now().map(|wait| wait.until), Some(at(22)));
        assert_eq!((shared.tick(at(21)), shared.tick(at(22))), (None, Some(Over::Served)));
        assert!(shared.now().is_none() && shared.is_unanswered());
        shared.answered();
        assert!(!shared.is_unanswered());
    }

    #[test]
    fn one_that_was_cut_says_so() {
        let mut shared = SharedWait::default();
        shared.ask(wait(0, 300, 86_400));
        assert!(shared.now().is_some_and(AskedWait::is_cut));
        assert_eq!(shared.tick(at(300)), Some(Over::Cut));
        assert!(shared.ask(wait(301, 300, 86_400)), "it asks again");
    }

    #[test]
    fn an_operator_lifts_it() {
        let mut shared = SharedWait::default();
        assert!(!shared.lift());
        shared.ask(wait(0, 300, 86_400));
        assert!(shared.lift() && !shared.lift());
        assert!(shared.now().is_none() && shared.tick(at(1)).is_none());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_prolong_it() {
        let mut shared = SharedWait::default();
        shared.ask(wait(1_000, 10, 10));
        assert_eq!(shared.tick(at(0)), None);
        assert_eq!(shared.now().map(|wait| wait.until), Some(at(10)));
    }
}
