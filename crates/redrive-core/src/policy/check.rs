//! Helpers of the validator: read one setting, and record its faults.

use std::time::Duration;

use super::faults::{PolicyFault, PolicyFaults};
use super::given::{Given, Word};
use crate::Ratio;
use crate::text::duration::print;

/// Bounds of the settings, and the defaults where neither the settings nor the profile set a value.
pub mod limits {
    use std::time::Duration;

    /// The maximum number of delay tiers.
    pub const TIERS_MAX: usize = 32;
    /// The maximum number of attempts.
    pub const ATTEMPTS_MAX: u32 = 1_000;
    /// The longest delay, TTL or hold: ten years.
    pub const SPAN_MAX: Duration = Duration::from_hours(87600);
    /// The longest timeout of a call.
    pub const TIMEOUT_MAX: Duration = Duration::from_hours(24);
    /// The maximum number of concurrent calls.
    pub const CONCURRENCY_MAX: u32 = 100_000;
    /// The maximum number of crashes before a poison pill is dead-lettered.
    pub const CRASH_THRESHOLD_MAX: u32 = 100;

    pub(in crate::policy) const RETRIES: u32 = 3;
    pub(in crate::policy) const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
    pub(in crate::policy) const RETRY_AFTER_SHARED_MAX: Duration = Duration::from_mins(5);
    pub(in crate::policy) const HOLD_MAX: Duration = Duration::from_hours(24);
    pub(in crate::policy) const CONCURRENCY: u32 = 64;
    pub(in crate::policy) const TIMEOUT: Duration = Duration::from_secs(30);
    pub(in crate::policy) const CRASH_THRESHOLD: u32 = 3;
    pub(in crate::policy) const CRASH_WINDOW: Duration = Duration::from_mins(5);
}

/// The shortest span above zero.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Reads settings and collects their faults. After a fault it continues with a valid value.
#[derive(Default)]
pub(super) struct Check {
    faults: Vec<PolicyFault>,
}

impl Check {
    pub(super) fn fault(
        &mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let (key, value, problem, fix) = (key.into(), value.into(), problem.into(), fix.into());
        self.faults.push(PolicyFault { key, value, item: None, problem, fix });
    }

    /// How many faults were found.
    pub(super) fn count(&self) -> usize {
        self.faults.len()
    }

    /// Replaces the fix of the fault with this index, if there is one.
    pub(super) fn rewrite_fix(&mut self, index: usize, fix: impl FnOnce(&str) -> String) {
        if let Some(fault) = self.faults.get_mut(index) {
            fault.fix = fix(&fault.fix);
        }
    }

    /// Returns the value read, or the faults if there are any.
    pub(super) fn finish<T>(self, read: T) -> Result<T, PolicyFaults> {
        if self.faults.is_empty() { Ok(read) } else { Err(PolicyFaults(self.faults)) }
    }

    /// Marks the faults since `from` as belonging to this item of a list.
    pub(super) fn of_item(&mut self, from: usize, item: usize) {
        self.faults[from..].iter_mut().for_each(|fault| fault.item = Some(item));
    }

    pub(super) fn word<T: Word>(&mut self, key: &str, given: Option<&Given<T>>, otherwise: T) -> T {
        let Some(given) = given else { return otherwise };
        given.read().unwrap_or_else(|| {
            let value = given.print();
            let problem = format!("`{key} = \"{value}\"` is not {}", T::KIND);
            self.fault(key, value, problem, format!("write it like {}", T::ACCEPTED));
            otherwise
        })
    }

    pub(super) fn span(
        &mut self,
        key: &str,
        given: Option<&Given<Duration>>,
        (min, max): (Duration, Duration),
        otherwise: Duration,
    ) -> Duration {
        let span = self.word(key, given, otherwise);
        if (min..=max).contains(&span) {
            return span;
        }
        let value = print(span);
        let nearest = span.clamp(min, max);
        let least = if nearest == min { "at least" } else { "at most" };
        let fix = print(nearest);
        let problem = format!("`{key} = \"{value}\"` must be {least} {fix}");
        self.fault(key, value, problem, format!("{key} = \"{fix}\""));
        otherwise
    }

    pub(super) fn number(&mut self, key: &str, given: Option<u32>, max: u32, otherwise: u32) -> u32 {
        let number = given.unwrap_or(otherwise);
        if (1..=max).contains(&number) {
            return number;
        }
        let problem = format!("`{key} = {number}` must lie between 1 and {max}");
        self.fault(key, number.to_string(), problem, format!("{key} = {}", number.clamp(1, max)));
        otherwise
    }

    pub(super) fn share_up_to_whole(
        &mut self,
        key: &str,
        given: Option<&Given<Ratio>>,
        otherwise: Ratio,
    ) -> Ratio {
        let share = self.word(key, given, otherwise);
        if share > Ratio::WHOLE {
            let problem = format!("`{key} = \"{share}\"` must be at most 100%");
            self.fault(key, share.to_string(), problem, format!("{key} = \"100%\""));
        }
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_goes_on_with_a_valid_value_after_a_fault() {
        let mut check = Check::default();
        assert_eq!(check.number("concurrency", Some(0), 10, 4), 4);
        assert_eq!(check.number("concurrency", Some(11), 10, 4), 4);
        assert_eq!(check.number("concurrency", None, 10, 4), 4);
        let faults = check.faults;
        assert_eq!(
            faults.iter().map(|fault| &fault.fix[..]).collect::<Vec<_>>(),
            ["concurrency = 1", "concurrency = 10"]
        );
    }

    #[test]
    fn only_the_faults_since_an_index_are_about_an_item() {
        let mut check = Check::default();
        check.fault("a", "", "wrong", "this");
        let from = check.count();
        check.fault("b", "", "wrong", "that");
        check.of_item(from, 3);
        check.rewrite_fix(from, |fix| format!("{fix} one"));
        check.rewrite_fix(9, |_| unreachable!("there is no such fault"));
        let found: Vec<_> = check.faults.iter().map(|fault| (fault.item, &fault.fix[..])).collect();
        assert_eq!(found, [(None, "this"), (Some(3), "that one")]);
    }
}
