//! What a retry budget does at a given load: how many retries it refuses, and what happens to those messages.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::policy::Shares;
use crate::policy::{BudgetRate, OnExhausted};
use crate::protection::budget::RetryBudget;
use crate::time::millis;
use crate::{
    Class, Decision, Health, Meta, Outcome, Policy, Random, Reason, SplitMix64, Time, after, decide, expired,
};

/// The maximum number of messages that an outage simulation follows.
const MESSAGES_MAX: f64 = 50_000.0;
/// Bisection steps to find the balance between requested and granted retries.
const STEPS: u32 = 60;

/// The effect of a retry budget on a healthy sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetForecast {
    /// Retries per minute that would be made without a budget.
    pub wanted_per_minute: f64,
    /// Retries per minute that the budget grants.
    pub made_per_minute: f64,
    /// Share of the messages that the budget turns into dead letters.
    pub dead: f64,
    /// Share of the messages that reach their last attempt and fail.
    pub used_up: f64,
    /// Messages per second that the budget defers; they accumulate until `hold_max`.
    pub put_off_per_second: f64,
}

impl BudgetForecast {
    /// The effect of the policy's retry budget at `per_second` messages that fail in these shares; `None` without a
    /// budget.
    pub fn of(policy: &Policy, shares: Shares, per_second: f64) -> Option<Self> {
        let rate = policy.budget()?;
        let attempts = policy.attempts();
        let failing = |attempt: u32| match attempt {
            1 => shares.transient + shares.poison,
            2 => shares.transient * shares.failing_twice + shares.poison,
            _ => shares.poison,
        };
        // Each retry is granted with probability `made`; a message asks for the next one only if all earlier ones were
        // granted.
        let of = |made: f64| {
            let asked: f64 = (1..attempts).map(|n| made.powf(f64::from(n - 1)) * failing(n)).sum();
            let used_up = made.powf(f64::from(attempts - 1)) * failing(attempts);
            let succeeded = 1.0 - used_up - asked * (1.0 - made);
            let given = match rate {
                BudgetRate::PerMinute(tokens) => f64::from(tokens) / 60.0 / per_second,
                BudgetRate::ShareOfSuccesses(share) => share.basis_points() as f64 / 10_000.0 * succeeded,
            };
            (asked, given, used_up)
        };
        let (wanted, given, _) = of(1.0);
        let made = if wanted <= given {
            1.0
        } else {
            let (mut low, mut high) = (0.0_f64, 1.0_f64);
            for _ in 0..STEPS {
                let middle = f64::midpoint(low, high);
                let (asked, given, _) = of(middle);
                if asked * middle > given { high = middle } else { low = middle }
            }
            low
        };
        let (asked, _, used_up) = of(made);
        let refused = asked * (1.0 - made);
        let parks = policy.on_exhausted() == OnExhausted::DeadLetter;
        // Deferred messages reach their last attempt eventually.
        let used_up = if parks { used_up } else { failing(attempts) };
        Some(Self {
            wanted_per_minute: wanted * per_second * 60.0,
            made_per_minute: asked * made * per_second * 60.0,
            dead: if parks { refused } else { 0.0 },
            used_up,
            put_off_per_second: if parks { 0.0 } else { refused * per_second },
        })
    }
}

/// The share of the messages arriving in an outage that the retry budget turns into dead letters before it ends. With
/// the outage gate there are none, whatever the budget.
pub fn dead_in_outage(policy: &Policy, outage: Duration, per_second: f64) -> f64 {
    if policy.budget().is_none() || policy.outage_gate() || policy.on_exhausted() == OnExhausted::Defer {
        return 0.0;
    }
    let arrive = (per_second * outage.as_secs_f64()).max(1.0);
    let followed = arrive.min(MESSAGES_MAX).floor();
    let mut budget = RetryBudget::new(policy.budget());
    // Scale the budget down with the number of messages followed.
    budget.own(followed as u32, (arrive as u32).max(1));
    let outage_ms = millis(outage);
    let began = Time::from_millis(outage_ms.max(1) * 1_000);
    let failed = Outcome::failed(Class::Transient);
    let mut due: BinaryHeap<Reverse<(Time, u64)>> = BinaryHeap::new();
    let mut metas: Vec<Meta> = Vec::new();
    for n in 0..followed as u64 {
        let created = began.plus(Duration::from_millis(n * outage_ms / followed as u64));
        metas.push(Meta { created, deadline: policy.deadline(created), ..Meta::default() });
        due.push(Reverse((created, n)));
    }
    // A fixed seed: the same policy gives the same figures.
    let (ends, mut dead, mut source) = (began.plus(outage), 0_u64, SplitMix64::new(0));
    while let Some(Reverse((now, n))) = due.pop().filter(|Reverse((now, _))| *now < ends) {
        let meta = &mut metas[n as usize];
        if expired(meta, now) {
            continue;
        }
        let random = Random(source.draw());
        let decision = decide(policy, meta, &failed, &Health::Healthy, &budget.view(now), now, random);
        *meta = after(policy, meta, &failed, &decision, now);
        match decision {
            Decision::RetryAt(retry) => {
                budget.spend(retry.spends);
                due.push(Reverse((retry.due, n)));
            }
            Decision::DeadLetter(Reason::BudgetExhausted) => dead += 1,
            Decision::DeadLetter(_) | Decision::Complete => {}
        }
    }
    dead as f64 / followed
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILS: Shares = Shares { transient: 0.15, failing_twice: 0.5, poison: 0.01 };

    fn payments() -> Policy {
        Policy::profile("payments").build().unwrap()
    }

    #[test]
    fn what_goes_beyond_the_budget_is_dead_or_put_off_as_the_policy_says() {
        let forecast = BudgetForecast::of(&payments(), FAILS, 100.0).unwrap();
        // 16 of 100 ask for a first retry, half of 15 and the poison for a second.
        assert!((forecast.wanted_per_minute - (16.0 + 8.5) * 60.0).abs() < 0.1, "{forecast:?}");
        assert!((forecast.made_per_minute - 100.0).abs() < 0.1, "{forecast:?}");
        assert!((0.14..0.16).contains(&forecast.dead), "{forecast:?}");
        let defers = Policy::profile("payments").on_exhausted("defer").build().unwrap();
        let forecast = BudgetForecast::of(&defers, FAILS, 100.0).unwrap();
        assert!(forecast.dead == 0.0 && forecast.put_off_per_second > 14.0, "{forecast:?}");
    }

    #[test]
    fn a_budget_that_suffices_changes_nothing() {
        let forecast = BudgetForecast::of(&payments(), FAILS, 1.0).unwrap();
        assert_eq!((forecast.dead, forecast.put_off_per_second), (0.0, 0.0));
        assert!((forecast.made_per_minute - forecast.wanted_per_minute).abs() < 1e-9);
        assert_eq!(BudgetForecast::of(&Policy::default(), FAILS, 1.0), None);
    }

    #[test]
    fn a_share_of_successes_gives_that_share() {
        let policy =
            Policy::profile("payments").share_of_successes(crate::Ratio::percent(10)).build().unwrap();
        let forecast = BudgetForecast::of(&policy, FAILS, 100.0).unwrap();
        let made = forecast.made_per_minute / 6_000.0;
        let succeeded = 1.0 - forecast.dead - 0.01;
        assert!((made - succeeded * 0.1).abs() < 0.005, "{forecast:?}");
    }

    #[test]
    fn in_an_outage_it_parks_nothing_but_without_the_gate() {
        let minute = Duration::from_mins(1);
        assert!(dead_in_outage(&payments(), minute, 100.0).abs() < f64::EPSILON);
        let ungated = Policy::profile("payments").outage_gate(false).build().unwrap();
        let dead = dead_in_outage(&ungated, minute, 100.0);
        // 6,000 fail, 100 may be retried at once and 100 more in that minute; some of these come back within it.
        assert!((0.965..0.98).contains(&dead), "{dead}");
        let many = dead_in_outage(&ungated, minute, 100_000.0);
        assert!(many > 0.999, "{many}");
        assert!(dead_in_outage(&ungated, minute, 1.0).abs() < f64::EPSILON);
    }
}
