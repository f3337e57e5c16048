//! While a sink is unreachable no messages are taken, so nothing would notice that one has expired. Once a minute the first
//! waiting messages are checked: those past their deadline or `hold_max` are dead-lettered; the others go back.

use std::time::Duration;

use redrive_core::Time;

/// How often waiting messages are checked.
const EVERY: Duration = Duration::from_mins(1);
/// How many are checked at once, at most.
pub(super) const LOOK_MAX: usize = 64;
/// The sweep ends after this many looks without an expired message. More than one, because with room for a single
/// message due and new ones are taken alternately.
const ENOUGH: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Sweep {
    began: Option<Time>,
    /// Looks left before the sweep ends; 0 while none is running.
    looks: u32,
}

impl Sweep {
    /// Begins a sweep if one is due, or resets if the sink is reachable again.
    pub(super) fn tick(&mut self, is_out_of_reach: bool, now: Time) {
        if !is_out_of_reach {
            *self = Self::default();
        } else if self.began.is_none_or(|began| now.since(began) >= EVERY || now < began) {
            (self.began, self.looks) = (Some(now), ENOUGH);
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.looks > 0
    }

    /// Records a look that found `over` expired messages.
    pub(super) fn looked(&mut self, over: usize) {
        if self.is_on() {
            self.looks = if over > 0 { ENOUGH } else { self.looks - 1 };
        }
    }

    /// When the next sweep begins.
    pub(super) fn next(&self) -> Option<Time> {
        self.began.map(|began| began.plus(EVERY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_once_a_minute_until_nobody_is_over() {
        let at = |second: u64| Time::from_millis(second * 1_000);
        let mut sweep = Sweep::default();
        sweep.tick(false, at(100));
        assert!(!sweep.is_on() && sweep.next().is_none());
        sweep.tick(true, at(100));
        for over in [64, 64, 0, 3, 0, 0] {
            assert!(sweep.is_on());
            sweep.looked(over);
        }
        assert!(!sweep.is_on());
        sweep.looked(5);
        sweep.tick(true, at(159));
        assert!(!sweep.is_on());
        assert_eq!(sweep.next(), Some(at(160)));
        sweep.tick(true, at(160));
        assert!(sweep.is_on());
        sweep.tick(false, at(161));
        assert!(!sweep.is_on(), "what can be sent is sent");
    }
}
