//! The dead-letter rate guard: when a pipeline suddenly gives up most of its messages, a person should look before the
//! rest follows. A wrong table of classes, or a deploy that refuses everything, empties a queue into the dead letters
//! within a minute, each of them rightly decided.

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
    /// More than this share of what came to an end is a dead letter; `100%` turns the guard off.
    pub share: Ratio,
    /// The time over which that share is taken.
    pub over: Duration,
    /// … and so many times as many as usual.
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

/// Fewer dead letters within the span than this are no flood.
pub const FLOOD_MIN: u32 = 100;
/// Spans that the baseline looks back on.
const BASELINE_SPANS: u32 = 60;

/// Notices a flood of dead letters.
#[derive(Clone, Debug)]
pub struct Guard {
    settings: GuardSettings,
    now: Window,
    /// The same over a longer time, which says what is usual.
    usual: Window,
    /// An operator has accepted the flood, until it is over.
    is_waved_through: bool,
}

/// Why the guard has stepped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Messages that became dead letters.
    pub dead: u32,
    /// Messages that came to an end.
    pub of: u32,
    /// Within which time.
    pub within: Duration,
}

impl Guard {
    /// A guard that has seen nothing.
    pub fn new(settings: GuardSettings) -> Self {
        let usual = settings.over.saturating_mul(BASELINE_SPANS);
        Self { now: Window::new(settings.over), usual: Window::new(usual), settings, is_waved_through: false }
    }

    /// A message came to its end. Says once that there is a flood; the caller pauses the pipeline and, later, calls
    /// [`Self::resumed`].
    pub fn ended(&mut self, is_dead: bool, now: Time) -> Option<Flood> {
        self.now.add(now, is_dead);
        self.usual.add(now, is_dead);
        if !is_dead {
            return None;
        }
        let sum = self.now.sum(now);
        if !self.is_flood(sum, now) {
            // What was waved through is over once the share is down, and not because a window has only just begun.
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
        // What is usual is what came before this flood, per span.
        let usual = self.usual.sum(now).failed.saturating_sub(sum.failed);
        let per_span = u64::from(usual) / u64::from(BASELINE_SPANS);
        u64::from(sum.failed) > per_span.saturating_mul(u64::from(self.settings.times_baseline))
    }

    /// The pipeline is resumed: counting begins again. With `anyway` this flood may pass.
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
        // About 575 of what ended in the last minute are good.
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
        // It is resumed each time; after a while this is its usual share.
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
