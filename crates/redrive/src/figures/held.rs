//! How many messages are deferred now: deferrals whose time has not come, by the second.

use std::collections::BTreeMap;

use redrive_core::Time;

/// Seconds that are told apart. Beyond it everything later is one: a bound, and far more than any deferral needs.
const SECONDS_MAX: usize = 4_096;

/// Forgets what came due before it was asked. What an earlier process deferred is not known here; since one deferral is
/// minutes long at most, the number is right again soon after a start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deferred {
    by_second: BTreeMap<u64, u64>,
}

impl Deferred {
    pub(crate) fn add(&mut self, due: Time) {
        let second = due.as_millis() / 1_000;
        if self.by_second.len() >= SECONDS_MAX
            && let Some(mut last) = self.by_second.last_entry()
            && second > *last.key()
        {
            *last.get_mut() += 1;
            return;
        }
        *self.by_second.entry(second).or_default() += 1;
    }

    /// How many wait at `now`.
    pub(crate) fn waiting(&mut self, now: Time) -> u64 {
        self.by_second = self.by_second.split_off(&(now.as_millis() / 1_000));
        self.by_second.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_due_is_not_held_any_more() {
        let mut deferred = Deferred::default();
        [5_000, 5_400, 9_000].into_iter().for_each(|ms| deferred.add(Time::from_millis(ms)));
        assert_eq!(deferred.waiting(Time::from_millis(1_000)), 3);
        assert_eq!(deferred.waiting(Time::from_millis(6_000)), 1);
        assert_eq!(deferred.waiting(Time::from_millis(60_000)), 0);
    }

    #[test]
    fn its_size_is_bounded_and_nothing_is_lost_by_it() {
        let mut deferred = Deferred::default();
        (0..10_000).for_each(|second| deferred.add(Time::from_millis(second * 1_000)));
        assert!(deferred.by_second.len() <= SECONDS_MAX);
        assert_eq!(deferred.waiting(Time::ZERO), 10_000);
    }
}
