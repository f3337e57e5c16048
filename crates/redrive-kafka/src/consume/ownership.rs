//! Whether the assigned partitions are certainly ours, and what waits while they are not.

use std::time::{Duration, Instant};

use redrive::internal::engine::{Settlement, Ticket};

/// Whether the assigned partitions are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Ours,
    /// The group wants them back, and waits until then for in-flight messages.
    Revoked {
        until: Instant,
    },
    /// They were released; the polling thread will confirm it.
    Released,
}

/// What to do about a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revocation {
    None,
    /// Release the partitions once nothing is in flight, or now if it is late.
    Drain {
        is_late: bool,
    },
    Done,
}

#[derive(Debug)]
pub(crate) struct Ownership {
    claim: Claim,
    /// Set after a gap in which others may have been given the partitions: nothing starts until a commit with a later
    /// round than this is accepted.
    unsure_since: Option<u64>,
    /// Batches that were settled during such a doubt.
    deferred: Vec<(Ticket, Vec<Settlement>)>,
    last_heard: Instant,
    /// A longer gap between two calls makes the ownership uncertain.
    gap_max: Duration,
    drain: Duration,
}

impl Ownership {
    pub fn new(now: Instant, gap_max: Duration, drain: Duration) -> Self {
        let (claim, deferred) = (Claim::Ours, Vec::new());
        Self { claim, unsure_since: None, deferred, last_heard: now, gap_max, drain }
    }

    /// Whether the group has not asked for the partitions.
    pub fn is_ours(&self) -> bool {
        self.claim == Claim::Ours
    }

    pub fn is_released(&self) -> bool {
        self.claim == Claim::Released
    }

    pub fn is_unsure(&self) -> bool {
        self.unsure_since.is_some()
    }

    /// Whether messages may be started.
    pub fn is_certain(&self) -> bool {
        self.is_ours() && !self.is_unsure()
    }

    /// Notes a gap between calls. A process that was frozen does not know what the group did; an accepted commit tells.
    pub fn notice_gap(&mut self, now: Instant, round: u64, has_partitions: bool) {
        if now.duration_since(self.last_heard) > self.gap_max && has_partitions {
            self.unsure_since = Some(round);
        }
        self.last_heard = now;
    }

    /// Notes that a commit was accepted. Returns whether that ended a doubt.
    pub fn committed(&mut self, round: u64) -> bool {
        self.unsure_since.take_if(|since| round > *since).is_some()
    }

    pub fn revoked(&mut self, now: Instant) {
        self.claim = Claim::Revoked { until: now + self.drain };
        // A member that is asked to give up partitions still owns them.
        self.unsure_since = None;
    }

    pub fn revocation(&self, now: Instant) -> Revocation {
        match self.claim {
            Claim::Ours => Revocation::None,
            Claim::Revoked { until } => Revocation::Drain { is_late: now > until },
            Claim::Released => Revocation::Done,
        }
    }

    pub fn released(&mut self) {
        self.claim = Claim::Released;
    }

    /// Starts over, after the partitions are gone or others were assigned.
    pub fn reset(&mut self) {
        self.claim = Claim::Ours;
        self.unsure_since = None;
    }

    /// Whether a batch has to wait: others may have delivered its messages in the meantime, and a copy would be a
    /// duplicate.
    pub fn defers(&self) -> bool {
        self.is_unsure() && self.is_ours()
    }

    pub fn defer(&mut self, ticket: Ticket, batch: Vec<Settlement>) {
        self.deferred.push((ticket, batch));
    }

    pub fn take_deferred(&mut self) -> Vec<(Ticket, Vec<Settlement>)> {
        std::mem::take(&mut self.deferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn after_a_gap_only_a_later_commit_makes_certain_again() {
        let now = Instant::now();
        let mut ownership = Ownership::new(now, SECOND * 10, SECOND);
        ownership.notice_gap(now + SECOND * 9, 4, true);
        assert!(ownership.is_certain());
        ownership.notice_gap(now + SECOND * 20, 5, true);
        assert!(ownership.is_unsure() && ownership.defers());
        assert!(!ownership.committed(5) && ownership.is_unsure(), "that commit was begun before the gap");
        assert!(ownership.committed(6) && ownership.is_certain());
        ownership.notice_gap(now + SECOND * 60, 7, false);
        assert!(ownership.is_certain(), "without partitions there is nothing to lose");
    }

    #[test]
    fn revoked_partitions_are_drained_and_released() {
        let now = Instant::now();
        let mut ownership = Ownership::new(now, SECOND * 10, SECOND);
        assert_eq!(ownership.revocation(now), Revocation::None);
        ownership.revoked(now);
        assert_eq!(ownership.revocation(now + SECOND), Revocation::Drain { is_late: false });
        assert_eq!(ownership.revocation(now + SECOND * 2), Revocation::Drain { is_late: true });
        ownership.released();
        assert!(ownership.revocation(now) == Revocation::Done && !ownership.is_ours());
        ownership.reset();
        assert!(ownership.is_certain());
    }
}
