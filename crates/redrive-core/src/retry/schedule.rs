//! How long to wait before retry n, before jitter.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::Class;
use crate::time::millis;

/// The upper bound on every delay, whatever was configured or computed.
pub const DELAY_MAX: Duration = Duration::from_hours(720);

/// A user's function for the delay before retry n (counted from 1) of a failure class.
pub type CustomDelay = Arc<dyn Fn(u32, Class) -> Duration + Send + Sync>;

/// How long retries wait.
#[derive(Clone)]
pub enum Schedule {
    /// One step per retry; retries beyond the last step repeat it.
    Tiers(Vec<Duration>),
    /// `base · multiplier^(n−1)`, so that the first delay is always `base`.
    Exponential {
        /// The first delay.
        base: Duration,
        /// The factor between consecutive delays.
        multiplier: f64,
        /// The longest delay.
        cap: Option<Duration>,
    },
    /// The same delay every time.
    Fixed(Duration),
    /// The result of the function, up to [`DELAY_MAX`].
    Custom(CustomDelay),
}

impl Schedule {
    /// The delay before retry n (from 1), in milliseconds, capped but without jitter. Defined for every `n`.
    pub fn delay_ms(&self, n: u32, class: Class) -> u64 {
        self.uncapped_ms(n, class).min(self.cap_ms())
    }

    /// The delay without the cap of the schedule, for jitters that cap afterwards; still at most [`DELAY_MAX`].
    pub fn uncapped_ms(&self, n: u32, class: Class) -> u64 {
        let delay_ms = match self {
            Self::Tiers(tiers) => self.tier(n).map_or(0, |tier| millis(tiers[usize::from(tier)])),
            Self::Exponential { base, multiplier, .. } => grown_ms(millis(*base), *multiplier, n),
            Self::Fixed(delay) => millis(*delay),
            // The user's code runs on a thread that must not die. After a panic the retry waits for the longest allowed
            // delay, where it will be noticed, and nothing else is affected.
            Self::Custom(delay) => {
                catch_unwind(AssertUnwindSafe(|| millis(delay(n, class)))).unwrap_or(u64::MAX)
            }
        };
        delay_ms.min(millis(DELAY_MAX))
    }

    /// The longest delay of the schedule.
    pub fn cap_ms(&self) -> u64 {
        match self {
            Self::Exponential { cap: Some(cap), .. } => millis(*cap).min(millis(DELAY_MAX)),
            _ => millis(DELAY_MAX),
        }
    }

    /// The smallest delay of the schedule, the base of decorrelated jitter.
    pub fn base_ms(&self) -> u64 {
        self.delay_ms(1, Class::Transient)
    }

    /// The tier of retry n, if the schedule has tiers.
    pub fn tier(&self, n: u32) -> Option<u8> {
        match self {
            Self::Tiers(tiers) => {
                let last = tiers.len().checked_sub(1)?;
                u8::try_from(last.min(n.saturating_sub(1) as usize)).ok()
            }
            _ => None,
        }
    }

    /// The first tier that is long enough for a delay the schedule did not choose (Retry-After, a deferral), else the
    /// last.
    pub fn tier_for(&self, delay_ms: u64) -> Option<u8> {
        match self {
            Self::Tiers(tiers) => {
                let last = tiers.len().checked_sub(1)?;
                let fits = tiers.iter().position(|tier| millis(*tier) >= delay_ms);
                u8::try_from(fits.unwrap_or(last)).ok()
            }
            _ => None,
        }
    }
}

/// Floating point on purpose: a power that is too large becomes infinite and is then capped. Shifting an integer would
/// wrap, and a wrapped delay is an immediate retry.
fn grown_ms(base_ms: u64, multiplier: f64, n: u32) -> u64 {
    let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
    let delay = base_ms as f64 * multiplier.powi(exponent);
    // NaN becomes the maximum here too.
    delay.min(millis(DELAY_MAX) as f64).round() as u64
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tiers(tiers) => f.debug_tuple("Tiers").field(tiers).finish(),
            Self::Exponential { base, multiplier, cap } => f
                .debug_struct("Exponential")
                .field("base", base)
                .field("multiplier", multiplier)
                .field("cap", cap)
                .finish(),
            Self::Fixed(delay) => f.debug_tuple("Fixed").field(delay).finish(),
            Self::Custom(_) => f.write_str("Custom(fn)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn exponential(base: Duration, cap: Option<Duration>) -> Schedule {
        Schedule::Exponential { base, multiplier: 2.0, cap }
    }

    fn delays_s(schedule: &Schedule, retries: u32) -> Vec<u64> {
        (1..=retries).map(|n| schedule.delay_ms(n, Class::Transient) / 1_000).collect()
    }

    #[test]
    fn exponential_delays_start_at_the_base_and_double() {
        assert_eq!(delays_s(&exponential(secs(1), None), 3), [1, 2, 4]); // S0-2
        assert_eq!(delays_s(&exponential(secs(2), Some(secs(120))), 5), [2, 4, 8, 16, 32]); // S1-2 S1-3 S1-8
        assert_eq!(delays_s(&exponential(secs(1), None), 5), [1, 2, 4, 8, 16]); // S3-2 S3-3
        assert_eq!(delays_s(&exponential(secs(5), None), 4), [5, 10, 20, 40]); // S3-10
        assert_eq!(delays_s(&Schedule::Fixed(secs(60)), 3), [60, 60, 60]); // S3-11
    }

    #[test]
    fn exponential_delays_stay_at_the_cap() {
        let schedule = exponential(secs(2), Some(secs(120))); // S1-5
        assert_eq!(delays_s(&schedule, 9)[5..], [64, 120, 120, 120]);
        let worker = exponential(Duration::from_millis(100), Some(secs(2))); // S4-2 S4-4
        let delays: Vec<_> = (1..=7).map(|n| worker.delay_ms(n, Class::Transient)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    }

    #[test]
    fn a_high_attempt_number_gives_the_longest_delay_and_not_an_instant_retry() {
        // S4-10: `base << attempt` overflowed to a negative duration, and the retries came at once.
        for n in [31, 32, 33, 63, 64, 65, 1_000, u32::MAX] {
            assert_eq!(
                exponential(secs(1), Some(secs(120))).delay_ms(n, Class::Transient),
                120_000,
                "retry {n}"
            );
            assert_eq!(
                exponential(secs(1), None).delay_ms(n, Class::Transient),
                millis(DELAY_MAX),
                "retry {n}"
            );
        }
    }

    #[test]
    fn delays_beyond_fifteen_minutes_are_kept() {
        // S1-29: the 900 s limit of other queues does not apply here.
        assert_eq!(exponential(secs(2), None).delay_ms(10, Class::Transient), 1_024_000);
    }

    #[test]
    fn each_retry_has_its_tier_and_further_ones_repeat_the_last() {
        let schedule = Schedule::Tiers(vec![secs(5), secs(30), secs(300)]);
        assert_eq!(delays_s(&schedule, 5), [5, 30, 300, 300, 300]);
        let tiers: Vec<_> = (1..=4).map(|n| schedule.tier(n)).collect();
        assert_eq!(tiers, [Some(0), Some(1), Some(2), Some(2)]);
        assert_eq!(exponential(secs(1), None).tier(1), None);
        assert_eq!(Schedule::Tiers(vec![]).tier(1), None);
        assert_eq!(Schedule::Tiers(vec![]).tier_for(1), None);
    }

    #[test]
    fn a_delay_from_elsewhere_waits_in_the_first_tier_that_holds_it() {
        let schedule = Schedule::Tiers(vec![secs(5), secs(30), secs(300)]);
        for (delay_ms, tier) in [(0, 0), (5_000, 0), (5_001, 1), (300_000, 2), (7_200_000, 2)] {
            assert_eq!(schedule.tier_for(delay_ms), Some(tier), "{delay_ms} ms");
        }
        assert_eq!(Schedule::Fixed(secs(1)).tier_for(0), None);
    }

    #[test]
    fn a_custom_schedule_sees_the_retry_and_the_class_and_is_bounded() {
        // S3-15
        let schedule = Schedule::Custom(Arc::new(|n, class| match class {
            Class::RateLimited => Duration::MAX,
            _ => Duration::from_secs(u64::from(n) * 7),
        }));
        assert_eq!(schedule.delay_ms(3, Class::Transient), 21_000);
        assert_eq!(schedule.delay_ms(1, Class::RateLimited), millis(DELAY_MAX));
        assert_eq!(format!("{schedule:?}"), "Custom(fn)");
    }

    #[test]
    fn nonsense_numbers_give_a_long_delay_and_never_a_panic() {
        for multiplier in [f64::NAN, f64::INFINITY] {
            let schedule = Schedule::Exponential { base: secs(1), multiplier, cap: Some(secs(9)) };
            assert_eq!(schedule.delay_ms(2, Class::Transient), 9_000);
        }
    }
}
