//! The dead-letter guard: if a pipeline suddenly dead-letters most of its messages, it pauses for a person to look
//! first. A wrong table of classes, or a deploy that rejects everything, can turn a whole queue into dead letters
//! within a minute, even though each decision is correct.

use std::time::Duration;

use super::window::{Sum, Window};
use crate::{Ratio, Time};

/// When the dead-letter guard pauses a pipeline.
///
/// ```
/// use redrive_core::GuardSettings;
/// use std::time::Duration;
///
/// let guard = GuardSettings { over: Duration::from_secs(300), ..GuardSettings::default() };
/// assert_eq!(guard.share.to_string(), "50%");
/// assert_eq!(GuardSettings::off().share.to_string(), "100%");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// Pauses if more than this share of the finished messages are dead letters; `100%` turns the guard off.
    pub share: Ratio,
    /// The time over which the share is measured.
    pub over: Duration,
    /// Pauses only if dead letters also exceed the usual number by this factor.
    pub times_baseline: u32,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self { share: Ratio::percent(50), over: Duration::from_mins(1), times_baseline: 10 }
    }
}

impl GuardSettings {
    /// A guard that never pauses a pipeline.
    pub fn off() -> Self {
        Self { share: Ratio::WHOLE, ..Self::default() }
    }
}

/// Fewer dead letters than this within the span are not a flood.
pub const FLOOD_MIN: u32 = 100;
/// The length of the baseline, in spans.
const BASELINE_SPANS: u32 = 60;

/// Detects a flood of dead letters.
#[derive(Clone, Debug)]
pub struct Guard {
    settings: GuardSettings,
    now: Window,
    /// The same counts over a longer time, as the baseline.
    usual: Window,
    /// An operator has accepted the flood; reset once it is over.
    is_waved_through: bool,
}

/// Why the guard paused the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Messages that became dead letters.
    pub dead: u32,
    /// Messages that finished.
    pub of: u32,
    /// The time in which they finished.
    pub within: Duration,
}

impl Guard {
    /// Creates a guard without history.
    pub fn new(settings: GuardSettings) -> Self {
        let usual = settings.over.saturating_mul(BASELINE_SPANS);
        Self { now: Window::new(settings.over), usual: Window::new(usual), settings, is_waved_through: false }
    }

    /// Records the end of a message. Returns the flood with every dead letter while there is one; the caller pauses the
    /// pipeline and, later, calls [`Self::resumed`].
    pub fn ended(&mut self, is_dead: bool, now: Time) -> Option<Flood> {
        self.now.add(now, is_dead);
        self.usual.add(now, is_dead);
        if !is_dead {
            return None;
        }
        let sum = self.now.sum(now);
        if !self.is_flood(sum, now) {
            // An accepted flood is over once the share has dropped, not because a window has just begun.
            if sum.calls >= FLOOD_MIN && !sum.exceeds(self.settings.share) {
                self.is_waved_through = false;
            }
            return None;
        }
        if self.is_waved_through {
            return None;
        }
        Some(Flood { dead: sum.failed, of: sum.calls, within: self.settings.over })
    }

    fn is_flood(&self, sum: Sum, now: Time) -> bool {
        if sum.failed < FLOOD_MIN || !sum.exceeds(self.settings.share) {
            return false;
        }
        // The baseline: dead letters before this flood, per span.
        let usual = self.usual.sum(now).failed.saturating_sub(sum.failed);
        let per_span = u64::from(usual) / u64::from(BASELINE_SPANS);
        u64::from(sum.failed) > per_span.saturating_mul(u64::from(self.settings.times_baseline))
    }

    /// Restarts counting after the pipeline was resumed. With `anyway` this flood is accepted.
    pub fn resumed(&mut self, anyway: bool) {
        self.now.clear();
        self.is_waved_through = anyway;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + second * 1_000)
    }

    fn flood(guard: &mut Guard, second: u64, dead: u32) -> Option<Flood> {
        (0..dead).find_map(|_| guard.ended(true, at(second)))
    }

    #[test]
    fn a_flood_of_dead_letters_is_noticed_once_it_is_one() {
        let mut guard = Guard::new(GuardSettings::default());
        (0..1_000)
            .for_each(|n| assert_eq!(guard.ended(n % 100 == 0, at(n / 10)), None, "1 % is a day like any"));
        // About 575 of the messages that finished in the last minute are good.
        let flood = flood(&mut guard, 100, 5_000).unwrap();
        assert!(flood.dead > 500 && flood.dead * 2 > flood.of, "{flood:?}");
    }

    #[test]
    fn few_dead_letters_are_no_flood() {
        let mut guard = Guard::new(GuardSettings::default());
        assert_eq!(flood(&mut guard, 0, FLOOD_MIN - 1), None);
        assert!(flood(&mut guard, 0, 1).is_some());
    }

    #[test]
    fn what_is_usual_is_no_flood() {
        let mut guard = Guard::new(GuardSettings::default());
        let mut floods = 0;
        // The pipeline is resumed each time; after a while this is its usual share.
        for second in 0..3_600 {
            (0..10).for_each(|_| {
                if guard.ended(true, at(second)).is_some() {
                    floods += 1;
                    guard.resumed(false);
                }
            });
        }
        assert!((1..60).contains(&floods), "{floods}");
        assert_eq!(flood(&mut guard, 3_600, 400), None);
    }

    #[test]
    fn who_resumes_anyway_is_not_asked_again_for_the_same_flood() {
        let mut guard = Guard::new(GuardSettings::default());
        assert!(flood(&mut guard, 0, 200).is_some());
        guard.resumed(true);
        assert_eq!(flood(&mut guard, 0, 40_000), None);
        for _ in 0..80_000 {
            guard.ended(false, at(30));
        }
        assert_eq!(guard.ended(true, at(30)), None);
        assert!(flood(&mut guard, 7_200, 1_000).is_some(), "the next one is another");
    }

    #[test]
    fn the_whole_is_never_exceeded() {
        let mut guard = Guard::new(GuardSettings::off());
        assert_eq!(flood(&mut guard, 0, 100_000), None);
    }
}
