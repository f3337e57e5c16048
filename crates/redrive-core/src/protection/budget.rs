//! The retry budget of a pipeline: how many retries it may make in total, so that retries cannot become the load.

use std::time::Duration;

use crate::policy::BudgetRate;
use crate::{Budget, Ratio, Time};

/// Units per token, so that fractions of a token accumulate.
const TOKEN: u64 = 1_000;
/// The most tokens that successes can accumulate.
const SAVED_MAX: u64 = 100;
/// The initial tokens of a budget fed by successes, when nothing has succeeded yet.
const SAVED_FIRST: u64 = 10;
/// When to check again if only a success brings a token.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A bucket of tokens, one per counted retry.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    rate: Option<BudgetRate>,
    /// Our part of the rate, if several processes share a pipeline.
    owned: (u32, u32),
    millis: u64,
    filled: Option<Time>,
}

impl RetryBudget {
    /// Creates a full budget.
    pub fn new(rate: Option<BudgetRate>) -> Self {
        let millis = match rate {
            Some(BudgetRate::PerMinute(tokens)) => u64::from(tokens) * TOKEN,
            Some(BudgetRate::ShareOfSuccesses(_)) => SAVED_FIRST * TOKEN,
            None => 0,
        };
        Self { rate, owned: (1, 1), millis, filled: None }
    }

    /// Sets the share of the budget for this process, which owns `owned` of `all` partitions. At least one retry per
    /// minute is left.
    pub fn own(&mut self, owned: u32, all: u32) {
        self.owned = (owned.clamp(1, all.max(1)), all.max(1));
        self.millis = self.millis.min(self.capacity());
    }

    /// Our retries per minute, if the rate is one per minute.
    pub fn per_minute(&self) -> Option<u32> {
        match self.rate {
            Some(BudgetRate::PerMinute(tokens)) => {
                let share = u64::from(tokens) * u64::from(self.owned.0) / u64::from(self.owned.1);
                Some((share as u32).max(1))
            }
            _ => None,
        }
    }

    fn capacity(&self) -> u64 {
        self.per_minute().map_or(SAVED_MAX, u64::from) * TOKEN
    }

    fn fill(&mut self, now: Time) {
        let Some(per_minute) = self.per_minute() else { return };
        let since = now.since(self.filled.unwrap_or(now));
        let gained = (since.as_millis() as u64).saturating_mul(u64::from(per_minute)) / 60;
        // Less than one unit gained is not lost: the elapsed time carries over.
        if gained > 0 || self.filled.is_none_or(|filled| now < filled) {
            self.filled = Some(now);
        }
        self.millis = self.millis.saturating_add(gained).min(self.capacity());
    }

    /// Records a success.
    pub fn succeeded(&mut self) {
        if let Some(BudgetRate::ShareOfSuccesses(share)) = self.rate {
            self.millis = (self.millis + gained_by_success(share)).min(self.capacity());
        }
    }

    /// Spends the tokens that a decision used.
    pub fn spend(&mut self, tokens: u32) {
        if self.rate.is_some() {
            self.millis = self.millis.saturating_sub(u64::from(tokens) * TOKEN);
        }
    }

    /// What is left at `now`.
    pub fn view(&mut self, now: Time) -> Budget {
        self.fill(now);
        if self.rate.is_none() {
            return Budget::Unlimited;
        }
        let missing = TOKEN.saturating_sub(self.millis);
        let next_in = match self.per_minute() {
            _ if missing == 0 => Duration::ZERO,
            Some(per_minute) => Duration::from_millis((missing * 60).div_ceil(u64::from(per_minute))),
            None => LOOK_AGAIN,
        };
        Budget::Tokens { remaining: (self.millis / TOKEN) as u32, next_in }
    }
}

fn gained_by_success(share: Ratio) -> u64 {
    share.basis_points() * TOKEN / 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    fn remaining(budget: &mut RetryBudget, now: Time) -> u32 {
        match budget.view(now) {
            Budget::Tokens { remaining, .. } => remaining,
            Budget::Unlimited => u32::MAX,
        }
    }

    #[test]
    fn without_a_rate_it_never_ends() {
        let mut budget = RetryBudget::new(None);
        budget.spend(1_000_000);
        assert_eq!(budget.view(at(0)), Budget::Unlimited);
    }

    #[test]
    fn tokens_come_back_evenly() {
        let mut budget = RetryBudget::new(Some(BudgetRate::PerMinute(100))); // S3-35
        assert_eq!(remaining(&mut budget, at(0)), 100);
        budget.spend(100);
        assert_eq!(budget.view(at(0)), Budget::Tokens { remaining: 0, next_in: Duration::from_millis(600) });
        assert_eq!(remaining(&mut budget, at(600)), 1);
        assert_eq!(remaining(&mut budget, at(30_000)), 50);
        assert_eq!(
            remaining(&mut budget, at(600_000)),
            100,
            "a long rest saves no more than a minute's worth"
        );
    }

    #[test]
    fn asking_often_loses_nothing() {
        let mut budget = RetryBudget::new(Some(BudgetRate::PerMinute(1)));
        budget.spend(1);
        for ms in 0..60_000 {
            budget.view(at(ms));
        }
        assert!(remaining(&mut budget, at(60_100)) == 1);
    }

    #[test]
    fn ten_successes_pay_for_a_retry_at_ten_percent() {
        let mut budget = RetryBudget::new(Some(BudgetRate::ShareOfSuccesses(Ratio::percent(10))));
        budget.spend(SAVED_FIRST as u32);
        assert_eq!(remaining(&mut budget, at(0)), 0);
        (0..10).for_each(|_| budget.succeeded());
        assert_eq!(remaining(&mut budget, at(0)), 1);
        (0..100_000).for_each(|_| budget.succeeded());
        assert_eq!(u64::from(remaining(&mut budget, at(0))), SAVED_MAX);
    }

    #[test]
    fn who_owns_a_quarter_has_a_quarter_of_the_budget() {
        let mut budget = RetryBudget::new(Some(BudgetRate::PerMinute(100)));
        budget.own(3, 12);
        assert_eq!((budget.per_minute(), remaining(&mut budget, at(0))), (Some(25), 25));
        budget.own(12, 12);
        assert_eq!(remaining(&mut budget, at(60_000)), 100);
    }
}
