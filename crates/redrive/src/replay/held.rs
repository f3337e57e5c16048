//! Letters of a job that are held: their calls failed without using up attempts, or nothing may be called now. Pure.

use std::collections::HashSet;
use std::time::Duration;

use redrive_core::Time;
use redrive_core::breaker::BreakerState;
use serde_json::{Value, json};

use crate::figures::Figures;

/// A canary is not stopped for being held before nothing has succeeded for this long, or for as long as the policy's
/// delays add up to, if that is longer.
const IN_VAIN_MIN: Duration = Duration::from_mins(5);

/// Letters of a job that are held, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLetters {
    /// How many.
    pub letters: u64,
    /// Why.
    pub why: HeldWhy,
}

/// Why letters are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldWhy {
    /// The pipeline is paused.
    Paused,
    /// The receiver has asked to wait.
    RetryAfter,
    /// The breaker is open.
    BreakerOpen,
    /// Calls fail, and none has succeeded since this time; `None` if none has succeeded so far.
    NoSuccess(Option<Time>),
    /// The receiver cannot be reached or limits calls, or the retry budget is used up.
    Other,
}

impl HeldWhy {
    /// The reason as the figures of the pipeline tell it.
    pub(super) fn of(figures: &Figures) -> Self {
        let health = &figures.health;
        match health.outage {
            _ if figures.paused => Self::Paused,
            _ if health.wait.is_some() => Self::RetryAfter,
            _ if health.breaker.state != BreakerState::Closed => Self::BreakerOpen,
            Some(outage) => Self::NoSuccess(outage.last_good),
            None => Self::Other,
        }
    }

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::RetryAfter => "retry_after",
            Self::BreakerOpen => "breaker_open",
            Self::NoSuccess(_) => "no_success",
            Self::Other => "other",
        }
    }

    /// The time of the last success, where that is the reason.
    pub const fn last_success(self) -> Option<Time> {
        match self {
            Self::NoSuccess(at) => at,
            _ => None,
        }
    }

    /// Whether calls are made at all.
    pub(super) const fn has_calls(self) -> bool {
        !matches!(self, Self::Paused | Self::RetryAfter)
    }

    fn from_name(name: &str, last_success: Option<Time>) -> Option<Self> {
        Some(match name {
            "paused" => Self::Paused,
            "retry_after" => Self::RetryAfter,
            "breaker_open" => Self::BreakerOpen,
            "no_success" => Self::NoSuccess(last_success),
            "other" => Self::Other,
            _ => return None,
        })
    }
}

impl HeldLetters {
    pub(super) fn to_json(self) -> Value {
        let last_success = self.why.last_success().map(Time::as_millis);
        json!({ "letters": self.letters, "why": self.why.name(), "last_success": last_success })
    }

    pub(super) fn of_json(value: &Value) -> Option<Self> {
        let last_success = value.get("last_success").and_then(Value::as_u64).map(Time::from_millis);
        let why = HeldWhy::from_name(value.get("why")?.as_str()?, last_success)?;
        Some(Self { letters: value.get("letters")?.as_u64()?, why })
    }
}

/// How long nothing may succeed before a canary whose letters are held is stopped; `delays` are those of the policy.
pub(super) fn in_vain_max(delays: impl IntoIterator<Item = Duration>) -> Duration {
    delays.into_iter().fold(Duration::ZERO, Duration::saturating_add).max(IN_VAIN_MIN)
}

/// Since when every letter under way has been held after a failed call, and no call of the pipeline has succeeded.
#[derive(Debug, Default)]
pub(super) struct InVain {
    /// Letters under way that were seen to be held after a failed call.
    failed: HashSet<u64>,
    /// Since when, and how many calls had succeeded by then.
    since: Option<(Time, u64)>,
}

impl InVain {
    /// How long it has been so at `now`. `failed` are letters that are held after a failed call, `succeeded` counts the
    /// successes of the pipeline.
    pub(super) fn lasts(
        &mut self,
        under_way: &HashSet<u64>,
        failed: &[u64],
        succeeded: u64,
        why: HeldWhy,
        now: Time,
    ) -> Duration {
        self.failed.extend(failed);
        self.failed.retain(|letter| under_way.contains(letter));
        if under_way.is_empty() || self.failed.len() < under_way.len() || !why.has_calls() {
            self.since = None;
            return Duration::ZERO;
        }
        match self.since {
            Some((since, before)) if before == succeeded => now.since(since),
            _ => {
                self.since = Some((now, succeeded));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHY: HeldWhy = HeldWhy::NoSuccess(None);

    fn at(second: u64) -> Time {
        Time::from_millis(1_000 * second)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_is_in_vain_from_when_every_letter_has_failed_until_something_succeeds() {
        let mut in_vain = InVain::default();
        let under_way: HashSet<u64> = [1, 2].into();
        assert_eq!(in_vain.lasts(&under_way, &[1], 7, WHY, at(0)), secs(0));
        assert_eq!(in_vain.lasts(&under_way, &[1], 7, WHY, at(100)), secs(0), "one has not been tried yet");
        assert_eq!(in_vain.lasts(&under_way, &[1, 2], 7, WHY, at(200)), secs(0));
        assert_eq!(
            in_vain.lasts(&under_way, &[], 7, WHY, at(260)),
            secs(60),
            "both run or are ready just now"
        );
        assert_eq!(in_vain.lasts(&under_way, &[1, 2], 8, WHY, at(300)), secs(0), "a call has succeeded");
        assert_eq!(in_vain.lasts(&under_way, &[1, 2], 8, HeldWhy::BreakerOpen, at(400)), secs(100));
        assert_eq!(in_vain.lasts(&under_way, &[1, 2], 8, HeldWhy::Paused, at(500)), secs(0));
        assert_eq!(
            in_vain.lasts(&under_way, &[1, 2], 8, WHY, at(600)),
            secs(0),
            "it begins again after a pause"
        );
        assert_eq!(in_vain.lasts(&[2].into(), &[2], 8, WHY, at(660)), secs(60), "one has died");
        assert_eq!(in_vain.lasts(&[2, 3].into(), &[2], 8, WHY, at(700)), secs(0), "another one goes");
        assert_eq!(in_vain.lasts(&HashSet::new(), &[], 8, WHY, at(800)), secs(0));
    }

    #[test]
    fn a_canary_has_five_minutes_or_as_long_as_its_policy_takes() {
        assert_eq!(in_vain_max([1, 2, 4].map(secs)), secs(300));
        assert_eq!(in_vain_max([60, 600, 3_600].map(secs)), secs(4_260));
    }
}
