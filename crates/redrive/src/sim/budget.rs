//! The retry budget of a simulated pipeline.

use std::time::Duration;

use redrive_core::policy::BudgetRate;
use redrive_core::{Budget, Policy};

/// The retry budget of a pipeline. The simulation keeps its own until the runtime has one.
#[derive(Debug)]
pub(super) struct Tokens {
    per_minute: Option<u32>,
    left_millis: u64,
    at_ms: u64,
}

impl Tokens {
    pub(super) fn new(policy: &Policy) -> Self {
        let per_minute = match policy.budget() {
            Some(BudgetRate::PerMinute(tokens)) => Some(tokens),
            _ => None,
        };
        Self { per_minute, left_millis: u64::from(per_minute.unwrap_or(0)) * 1_000, at_ms: 0 }
    }

    fn refill(&mut self, true_ms: u64) {
        let Some(per_minute) = self.per_minute.map(u64::from) else { return };
        let gained = (true_ms - self.at_ms) * per_minute / 60;
        self.left_millis = (self.left_millis + gained).min(per_minute * 1_000);
        self.at_ms = true_ms;
    }

    pub(super) fn view(&mut self, true_ms: u64) -> Budget {
        self.refill(true_ms);
        match self.per_minute {
            None => Budget::Unlimited,
            Some(_) => Budget::Tokens {
                remaining: (self.left_millis / 1_000) as u32,
                next_in: Duration::from_mins(1),
            },
        }
    }

    pub(super) fn spend(&mut self, true_ms: u64) {
        self.refill(true_ms);
        self.left_millis = self.left_millis.saturating_sub(1_000);
    }
}
