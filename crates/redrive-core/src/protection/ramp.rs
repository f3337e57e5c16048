//! How many calls may run after a breaker has closed: few at first, twice as many after each good second, half after a
//! bad one. A backlog must not overload a sink that has just recovered.
//!
//! From half of the limit on it grows in small steps, so that a sink that came back with reduced capacity is not hit
//! with twice what it can take. A bad second shows how many calls are too many: from half of that number on the steps
//! are small.

use std::time::Duration;

use super::reload::Reload;
use crate::{Ratio, Time};

const STEP: Duration = Duration::from_secs(1);
/// A second in which more than this share of the calls failed is bad. Higher than the failures of an ordinary day.
const BAD: Ratio = Ratio::percent(25);
/// One failure is no trend.
const BAD_MIN: u32 = 2;
/// How many good seconds at the limit end the ramp.
const GOOD_AT_LIMIT: u32 = 10;

/// Raises the number of calls step by step after an outage.
#[derive(Clone, Debug)]
pub struct Ramp {
    limit: usize,
    permits: usize,
    /// Below this the permits double; above it they grow by `step`.
    careful_from: usize,
    step: usize,
    /// The limit on calls per second, in addition to concurrency.
    reload: Option<Reload>,
    second_began: Time,
    calls: u32,
    failed: u32,
    good_at_limit: u32,
}

impl Ramp {
    /// Starts with as many permits as there were probes.
    pub fn new(probes: u32, limit: usize, now: Time) -> Self {
        let permits = (probes as usize).clamp(1, limit.max(1));
        let (careful_from, step) = ((limit / 2).max(permits), (limit / 8).max(1));
        Self {
            limit: limit.max(1),
            permits,
            careful_from,
            step,
            reload: None,
            second_began: now,
            calls: 0,
            failed: 0,
            good_at_limit: 0,
        }
    }

    /// Adds a limit on calls per second.
    #[must_use]
    pub fn with_reload(self, reload: Option<Reload>) -> Self {
        Self { reload, ..self }
    }

    /// The initial permits, and how long they take to reach the limit if all goes well.
    pub fn forecast(probes: u32, limit: usize) -> (usize, Duration) {
        let mut ramp = Self::new(probes, limit, Time::ZERO);
        let (from, mut took) = (ramp.permits, Duration::ZERO);
        while ramp.permits < ramp.limit {
            took += STEP;
            ramp.ended(true);
            ramp.tick(Time::ZERO.plus(took));
        }
        (from, took)
    }

    /// How many calls may run at once now.
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// The current limit on calls per second, if there is one.
    pub fn per_second(&self) -> Option<f64> {
        self.reload.as_ref().map(Reload::per_second)
    }

    /// How many more calls may start now.
    pub fn room(&self, running: usize) -> usize {
        let room = self.permits.saturating_sub(running);
        self.reload.as_ref().map_or(room, |reload| room.min(reload.room()))
    }

    /// Records the start of a call.
    pub fn started(&mut self) {
        if let Some(reload) = &mut self.reload {
            reload.started();
        }
    }

    /// How many may run once the ramp is over.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Records the end of a call. `is_good` says how the sink is doing, not whether the message was at fault.
    pub fn ended(&mut self, is_good: bool) {
        self.calls = self.calls.saturating_add(1);
        self.failed = self.failed.saturating_add(u32::from(!is_good));
    }

    /// Evaluates the past second, if it is over. Seconds without calls are ignored.
    pub fn tick(&mut self, now: Time) {
        if let Some(reload) = &mut self.reload {
            reload.tick(now);
        }
        if now < self.second_began {
            self.second_began = now;
        }
        if now.since(self.second_began) < STEP || self.calls == 0 {
            return;
        }
        let is_bad = self.failed >= BAD_MIN
            && u64::from(self.failed) * 10_000 > u64::from(self.calls) * BAD.basis_points();
        let is_short = self.reload.as_mut().is_some_and(|reload| reload.second_over(is_bad, now));
        if is_bad {
            self.permits = (self.permits / 2).max(1);
            (self.careful_from, self.step) = (self.permits, (self.limit / 32).max(1));
            self.good_at_limit = 0;
        } else if self.permits < self.limit {
            let next = if self.permits < self.careful_from {
                (self.permits * 2).min(self.careful_from)
            } else {
                self.permits + self.step
            };
            self.permits = next.min(self.limit);
        } else if !is_short {
            self.good_at_limit += 1;
        }
        (self.second_began, self.calls, self.failed) = (now, 0, 0);
    }

    /// Whether the limit was sustained long enough without holding back calls per second: from here on only the
    /// concurrency limit applies.
    pub fn is_over(&self) -> bool {
        self.good_at_limit >= GOOD_AT_LIMIT
    }

    /// When the current second ends, or the next call may start.
    pub fn next_wake(&self) -> Option<Time> {
        let second = (self.calls > 0).then(|| self.second_began.plus(STEP));
        second.into_iter().chain(self.reload.as_ref().and_then(Reload::next_wake)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_millis(1_000_000 + second * 1_000)
    }

    /// Simulates seconds in which a sink of this capacity is called with all permits.
    fn run(ramp: &mut Ramp, seconds: std::ops::Range<u64>, capacity: usize) -> Vec<usize> {
        seconds
            .map(|second| {
                (0..ramp.permits()).for_each(|call| ramp.ended(call < capacity));
                ramp.tick(at(second + 1));
                ramp.permits()
            })
            .collect()
    }

    #[test]
    fn permits_grow_each_good_second_up_to_the_limit() {
        let mut ramp = Ramp::new(5, 64, at(0));
        assert_eq!(run(&mut ramp, 0..8, 1_000), [10, 20, 32, 40, 48, 56, 64, 64]);
        assert_eq!(Ramp::forecast(5, 64), (5, Duration::from_secs(7)));
        assert!(!ramp.is_over());
        run(&mut ramp, 8..18, 1_000);
        assert!(ramp.is_over());
    }

    #[test]
    fn a_bad_second_halves_them_and_makes_the_next_steps_small() {
        let mut ramp = Ramp::new(5, 64, at(0));
        let permits = run(&mut ramp, 0..60, 32);
        assert_eq!(permits[..7], [10, 20, 32, 40, 48, 24, 26], "40 of which 8 fail are a good second");
        assert!(permits[10..].iter().all(|permits| *permits <= 44), "{permits:?}");
        assert!(!ramp.is_over(), "a sink with half its strength is never called with all permits");
    }

    #[test]
    fn with_a_limit_on_calls_per_second_it_is_over_once_that_holds_nothing_back() {
        let mut ramp = Ramp::new(5, 64, at(0)).with_reload(Some(Reload::new(500.0, 2.0, at(0))));
        let mut second = |second: u64, wanted: usize| {
            let mut started = 0;
            for ms in 0..1_000 {
                ramp.tick(Time::from_millis(at(second).as_millis() + ms));
                while ramp.room(0) > 0 && started < wanted * (ms as usize + 1) / 1_000 {
                    ramp.started();
                    ramp.ended(true);
                    started += 1;
                }
            }
            (started, ramp.is_over())
        };
        let backlog: Vec<_> = (0..29).map(|at| second(at, 1_000_000)).collect();
        assert!(backlog.iter().all(|(started, is_over)| *started <= 1_101 && !is_over), "{backlog:?}");
        let after: Vec<_> = (29..60).map(|at| second(at, 500)).collect();
        assert!(after.iter().all(|(started, _)| *started == 500), "{after:?}");
        assert!(!after[5].1 && after[15].1, "{after:?}");
    }

    #[test]
    fn seconds_without_calls_say_nothing() {
        let mut ramp = Ramp::new(5, 64, at(0));
        ramp.tick(at(50));
        assert_eq!(ramp.permits(), 5);
        ramp.ended(true);
        ramp.tick(at(51));
        assert_eq!(ramp.permits(), 10);
    }

    #[test]
    fn there_is_always_one_permit_and_never_more_than_the_limit() {
        let mut ramp = Ramp::new(5, 2, at(0));
        assert_eq!(ramp.permits(), 2);
        let mut low = Ramp::new(5, 64, at(0));
        run(&mut low, 0..20, 0);
        assert_eq!(low.permits(), 1);
        ramp.ended(true);
        ramp.tick(at(9));
        assert_eq!(ramp.permits(), 2);
    }
}
