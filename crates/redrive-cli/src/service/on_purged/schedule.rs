//! When to try an announcement: at once, then after longer and longer waits. Pure; the clock is an argument.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use redrive::Time;
use redrive::internal::subscriptions::EndpointId;
use tokio::time::Instant;

/// The waits after the first failures; the last one repeats.
const WAITS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_mins(1),
    Duration::from_mins(5),
    Duration::from_mins(10),
];
/// This many failures in a row mean that the receiver is down, not that it refuses one purge.
const IN_A_ROW: u32 = 3;
/// The maximum number of purges whose failures are remembered.
const FAILED_MAX: usize = 10_000;
/// The number of recently announced purges that are remembered.
const MADE_MAX: usize = 1_000;

/// A purge: its time and endpoint.
pub(super) type PurgeKey = (Time, EndpointId);

#[derive(Debug, Default)]
pub(super) struct AnnounceSchedule {
    /// How often each failed, and when it is due again.
    failed: HashMap<PurgeKey, (u32, Instant)>,
    /// Failures since the last success.
    in_a_row: u32,
    paused_until: Option<Instant>,
    /// Recently announced purges. If several processes follow one log, a process may read its own purge after
    /// announcing it.
    made: VecDeque<PurgeKey>,
}

impl AnnounceSchedule {
    /// Whether nothing is tried now because the receiver is down.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// The number of the attempt, if it is due.
    pub(super) fn due(&self, purge: PurgeKey, now: Instant) -> Option<u32> {
        match self.failed.get(&purge) {
            None => Some(1),
            Some((failures, due)) => (now >= *due).then_some(failures + 1),
        }
    }

    pub(super) fn was_made(&self, purge: PurgeKey) -> bool {
        self.made.contains(&purge)
    }

    pub(super) fn succeeded(&mut self, purge: PurgeKey) {
        self.failed.remove(&purge);
        (self.in_a_row, self.paused_until) = (0, None);
        if self.made.len() >= MADE_MAX {
            self.made.pop_front();
        }
        self.made.push_back(purge);
    }

    /// Records a failure; returns the wait until the next attempt.
    pub(super) fn failed(&mut self, purge: PurgeKey, now: Instant) -> Duration {
        let failures = self.failed.get(&purge).map_or(0, |(failures, _)| *failures) + 1;
        let after = wait(failures);
        if self.failed.len() < FAILED_MAX || self.failed.contains_key(&purge) {
            self.failed.insert(purge, (failures, now + after));
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row >= IN_A_ROW {
            self.paused_until = Some(now + wait(self.in_a_row / IN_A_ROW));
        }
        after
    }
}

fn wait(failures: u32) -> Duration {
    let last = WAITS.len() - 1;
    WAITS[last.min(failures.saturating_sub(1) as usize)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(number: u64) -> PurgeKey {
        (Time::from_millis(number), EndpointId::from_number(number))
    }

    #[test]
    fn a_purge_that_fails_waits_longer_each_time_and_holds_up_no_other() {
        let (mut schedule, mut now) = (AnnounceSchedule::default(), Instant::now());
        for (failures, wait) in [1, 10, 60, 300, 600, 600].into_iter().enumerate() {
            assert_eq!(schedule.due(purge(1), now), Some(failures as u32 + 1));
            assert_eq!(schedule.failed(purge(1), now), Duration::from_secs(wait));
            assert_eq!(schedule.due(purge(1), now), None);
            assert_eq!(schedule.due(purge(2), now), Some(1));
            schedule.succeeded(purge(2));
            assert!(!schedule.is_paused(now));
            now += Duration::from_secs(wait);
        }
        schedule.succeeded(purge(1));
        assert_eq!(schedule.due(purge(1), now), Some(1));
    }

    #[test]
    fn a_receiver_that_refuses_everything_is_tried_less_and_less_often() {
        let (mut schedule, now) = (AnnounceSchedule::default(), Instant::now());
        let fail = |schedule: &mut AnnounceSchedule| {
            for number in 1..=3 {
                schedule.failed(purge(number), now);
            }
        };
        fail(&mut schedule);
        assert!(schedule.is_paused(now) && !schedule.is_paused(now + Duration::from_secs(1)));
        (0..20).for_each(|_| fail(&mut schedule));
        assert!(schedule.is_paused(now + Duration::from_secs(599)));
        assert!(!schedule.is_paused(now + Duration::from_mins(10)), "it is never given up");
        schedule.succeeded(purge(1));
        assert!(!schedule.is_paused(now));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut schedule, now) = (AnnounceSchedule::default(), Instant::now());
        for number in 0..2 * FAILED_MAX as u64 {
            schedule.failed(purge(number), now);
            schedule.succeeded(purge(1_000_000 + number));
        }
        assert!(schedule.failed.len() <= FAILED_MAX && schedule.made.len() <= MADE_MAX);
        assert!(schedule.was_made(purge(1_000_000 + 2 * FAILED_MAX as u64 - 1)));
        assert!(!schedule.was_made(purge(1_000_000)));
    }
}
