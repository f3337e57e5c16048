//! Counts recent calls and failures in time slots, so that memory does not grow with traffic.

use std::ops::Range;
use std::time::Duration;

use crate::Time;
use crate::time::millis;

/// The number of slots. Old calls leave the window in steps of a twentieth.
const SLOTS: usize = 20;

/// Counts calls of the last `span`.
#[derive(Clone, Debug)]
pub struct Window {
    slot_ms: u64,
    slots: [WindowSlot; SLOTS],
    /// When the first call since the last clearing was added.
    began: Option<Time>,
    /// The slot of the last call, and its range of milliseconds: most calls fall into the same slot, and need no
    /// division.
    at: usize,
    at_ms: Range<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowSlot {
    number: u64,
    calls: u32,
    failed: u32,
}

/// The totals of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sum {
    /// All calls.
    pub calls: u32,
    /// Calls that failed.
    pub failed: u32,
}

impl Window {
    /// Creates a window over `span`.
    pub fn new(span: Duration) -> Self {
        let slot_ms = millis(span).div_ceil(SLOTS as u64).max(1);
        Self { slot_ms, slots: [WindowSlot::default(); SLOTS], began: None, at: 0, at_ms: 0..0 }
    }

    /// Counts a call.
    pub fn add(&mut self, now: Time, failed: bool) {
        if !self.at_ms.contains(&now.as_millis()) {
            self.turn_to(now);
        }
        let slot = &mut self.slots[self.at];
        slot.calls = slot.calls.saturating_add(1);
        slot.failed = slot.failed.saturating_add(u32::from(failed));
    }

    fn turn_to(&mut self, now: Time) {
        self.began = self.began.or(Some(now));
        let number = self.number(now);
        self.at = (number % SLOTS as u64) as usize;
        self.at_ms = (number - 1) * self.slot_ms..number.saturating_mul(self.slot_ms);
        let slot = &mut self.slots[self.at];
        if slot.number != number {
            *slot = WindowSlot { number, ..WindowSlot::default() };
        }
    }

    /// Changes the outcome of a call that was added at `at`. Does nothing if it is no longer in the window.
    pub fn amend(&mut self, at: Time, failed: bool) {
        let number = self.number(at);
        let slot = &mut self.slots[(number % SLOTS as u64) as usize];
        if slot.number == number {
            slot.failed =
                if failed { (slot.failed + 1).min(slot.calls) } else { slot.failed.saturating_sub(1) };
        }
    }

    /// The totals of the window before `now`. Slots in the future, after a clock was set back, do not count.
    pub fn sum(&self, now: Time) -> Sum {
        let last = self.number(now);
        let within = |slot: &&WindowSlot| slot.number <= last && last - slot.number < SLOTS as u64;
        self.slots.iter().filter(within).fold(Sum::default(), |sum, slot| Sum {
            calls: sum.calls.saturating_add(slot.calls),
            failed: sum.failed.saturating_add(slot.failed),
        })
    }

    /// Calls per second in the busiest slot of the window before `now`; `None` without a call. A slot that has just
    /// begun counts as at least one second.
    pub fn busiest(&self, now: Time) -> Option<f64> {
        let last = self.number(now);
        let within =
            |slot: &&WindowSlot| slot.number <= last && last - slot.number < SLOTS as u64 && slot.calls > 0;
        let per_second = |slot: &WindowSlot| {
            let begins = Time::from_millis((slot.number - 1) * self.slot_ms).max(self.began.unwrap_or(now));
            let ends = Time::from_millis(slot.number * self.slot_ms).min(now);
            f64::from(slot.calls) / ends.since(begins).as_secs_f64().max(1.0)
        };
        self.slots.iter().filter(within).map(per_second).max_by(f64::total_cmp)
    }

    /// Whether the window has been counting for its full length.
    pub fn is_full(&self, now: Time) -> bool {
        let span = Duration::from_millis(self.slot_ms * SLOTS as u64);
        self.began.is_some_and(|began| now.since(began) >= span)
    }

    /// Forgets all calls.
    pub fn clear(&mut self) {
        self.slots = [WindowSlot::default(); SLOTS];
        (self.began, self.at_ms) = (None, 0..0);
    }

    /// The number of the slot. Numbers begin at 1, so that an unused slot matches no time.
    fn number(&self, now: Time) -> u64 {
        now.as_millis() / self.slot_ms + 1
    }
}

impl Sum {
    /// Whether the failed calls are at least this share.
    pub fn reaches(&self, share: crate::Ratio) -> bool {
        u64::from(self.failed) * 10_000 >= u64::from(self.calls) * share.basis_points()
    }

    /// Whether the failed calls are more than this share.
    pub fn exceeds(&self, share: crate::Ratio) -> bool {
        u64::from(self.failed) * 10_000 > u64::from(self.calls) * share.basis_points()
    }

    /// The failed calls in percent, rounded down.
    pub fn percent(&self) -> u32 {
        (u64::from(self.failed) * 100 / u64::from(self.calls.max(1))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ratio;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::new(Duration::from_secs(10));
        window.add(at(0), true);
        window.add(at(5_000), false);
        assert_eq!(window.sum(at(5_000)), Sum { calls: 2, failed: 1 });
        assert_eq!(window.sum(at(10_000)), Sum { calls: 1, failed: 0 });
        assert_eq!(window.sum(at(60_000)), Sum::default());
        assert!(window.is_full(at(10_000)) && !window.is_full(at(9_999)));
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_no_ghosts() {
        let mut window = Window::new(Duration::from_secs(10));
        (0..50).for_each(|_| window.add(at(600_000), true));
        window.add(at(0), false);
        assert_eq!(window.sum(at(0)), Sum { calls: 1, failed: 0 });
    }

    #[test]
    fn what_a_call_came_to_can_be_amended_while_it_is_in_the_window() {
        let mut window = Window::new(Duration::from_secs(10));
        window.add(at(0), true);
        window.add(at(3_000), false);
        window.amend(at(0), false);
        assert_eq!(window.sum(at(3_000)), Sum { calls: 2, failed: 0 });
        window.amend(at(3_000), true);
        assert_eq!(window.sum(at(3_000)), Sum { calls: 2, failed: 1 });
        window.add(at(10_000), false);
        window.amend(at(0), true);
        assert_eq!(window.sum(at(10_000)), Sum { calls: 2, failed: 1 }, "what is over stays as it is");
    }

    #[test]
    fn shares_are_exact() {
        let half = Sum { calls: 20, failed: 10 };
        assert!(half.reaches(Ratio::percent(50)) && !half.exceeds(Ratio::percent(50)));
        assert!(Sum { calls: 20, failed: 11 }.exceeds(Ratio::percent(50)));
        assert_eq!(Sum { calls: 500, failed: 282 }.percent(), 56);
    }
}
