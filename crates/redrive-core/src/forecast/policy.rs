//! What a policy implies, computed before anything runs by the same code that decides at run time.

use std::fmt;
use std::time::Duration;

use crate::retry::decide::{RECONNECTS_MAX, deferrals_max};
use crate::text::duration::rough;
use crate::time::millis;
use crate::{Class, Policy};

/// The consequences of a policy for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Counted attempts for an ordinary transient failure.
    pub attempts: u32,
    /// Counted attempts for the class that may use the most.
    pub attempts_max: u32,
    /// Sum of the delays until the dead letter, with the shortest jitter.
    pub waiting_min: Duration,
    /// Sum of the delays until the dead letter, with the longest jitter.
    pub waiting_max: Duration,
    /// How long one call may take.
    pub timeout: Duration,
    /// How long a message is held while the sink is unreachable.
    pub hold_max: Duration,
    /// The age at which a message expires.
    pub ttl: Option<Duration>,
    /// Calls that do not count: deferrals until `hold_max` ends them, and reconnects.
    pub uncounted_max: u64,
    /// All calls of one message, counted or not.
    pub calls_max: u64,
    /// Time until a message is terminal, whatever fails, as long as no Retry-After is received.
    pub terminal_max: Duration,
    /// The same if every failure asks for the longest Retry-After that is honoured.
    pub terminal_max_with_retry_after: Duration,
}

/// Shares of all messages that fail in some way, to compute the load that retries add. They do not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Share that fails at first and then succeeds.
    pub transient: f64,
    /// Share of the transient ones that fails a second time.
    pub failing_twice: f64,
    /// Share that fails every time without being recognised as permanent.
    pub poison: f64,
}

/// The load that retries and dead letters add.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryLoad {
    /// Share of the messages that makes retry 1, 2, ….
    pub retries: Vec<f64>,
    /// Share that ends as a dead letter.
    pub dead: f64,
    /// Records per message: the message itself, its retries, and its dead letter.
    pub amplification: f64,
}

impl Policy {
    /// Computes what this policy implies.
    pub fn forecast(&self) -> Forecast {
        Forecast::of(self)
    }
}

impl Forecast {
    /// Computes what a policy implies.
    pub fn of(policy: &Policy) -> Self {
        let sum = |attempts: u32| {
            let ranges = policy.delay_ranges(attempts, Class::Transient);
            ranges.iter().fold((Duration::ZERO, Duration::ZERO), |(min, max), range| {
                (min.saturating_add(range.0), max.saturating_add(range.1))
            })
        };
        let (waiting_min, waiting_max) = sum(policy.attempts());
        let (attempts_max, timeout, hold_max) = (policy.attempts_max(), policy.timeout(), policy.hold_max());
        // The call that ends a message is either the last counted one or one that would have been deferred again.
        let uncounted_max = deferrals_max(hold_max) + u64::from(RECONNECTS_MAX);
        let calls_max = u64::from(attempts_max) + uncounted_max;
        let calling = times(timeout, calls_max);
        let until = |waiting: Duration| {
            let whole = waiting.saturating_add(hold_max).saturating_add(calling);
            // An attempt may start just before the deadline and then run up to its timeout.
            policy.ttl().map_or(whole, |ttl| whole.min(ttl.saturating_add(timeout)))
        };
        let asked = policy.retry_after_max();
        let asked =
            asked.saturating_add(Duration::from_millis(policy.retry_after_jitter().of_ms(millis(asked))));
        let asked_each_time =
            times(asked.max(policy.longest_delay()), u64::from(attempts_max.saturating_sub(1)));
        Self {
            attempts: policy.attempts(),
            attempts_max,
            waiting_min,
            waiting_max,
            timeout,
            hold_max,
            ttl: policy.ttl(),
            uncounted_max,
            calls_max,
            terminal_max: until(sum(attempts_max).1),
            terminal_max_with_retry_after: until(asked_each_time),
        }
    }

    /// Total waiting plus every counted attempt at its timeout.
    pub fn dead_letter_max(&self) -> Duration {
        self.waiting_max.saturating_add(times(self.timeout, u64::from(self.attempts)))
    }

    /// The load that retries add if messages fail in these shares.
    pub fn load(&self, shares: Shares) -> RetryLoad {
        let retries = self.attempts.saturating_sub(1);
        let failing = |attempt: u32| {
            let transient = match attempt {
                1 => shares.transient,
                2 => shares.transient * shares.failing_twice,
                _ => 0.0,
            };
            transient + shares.poison
        };
        let dead = failing(self.attempts);
        let retries: Vec<f64> = (1..=retries).map(failing).collect();
        let amplification = 1.0 + retries.iter().sum::<f64>() + dead;
        RetryLoad { retries, dead, amplification }
    }

    /// The share of poison above which dead letters come faster than people can triage them, with the other shares
    /// unchanged. `None` if they do even without poison.
    pub fn divergence(&self, shares: Shares, per_second: f64, triage_per_second: f64) -> Option<f64> {
        let without_poison = self.load(Shares { poison: 0.0, ..shares }).dead;
        let room = triage_per_second / per_second - without_poison;
        (room > 0.0).then(|| room.min(1.0))
    }
}

fn times(span: Duration, count: u64) -> Duration {
    span.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retries = self.attempts.saturating_sub(1);
        let more = match self.attempts_max {
            max if max > self.attempts => format!("; up to {max} for some classes"),
            _ => String::new(),
        };
        writeln!(f, "attempts            {} = 1 + {retries} retries{more}", self.attempts)?;
        writeln!(
            f,
            "time to dead letter {} … {} of waiting, ≤ {} with {} × {} timeout; + hold ≤ {} (hold_max) while the sink is down",
            rough(self.waiting_min),
            rough(self.waiting_max),
            rough(self.dead_letter_max()),
            self.attempts,
            rough(self.timeout),
            rough(self.hold_max),
        )?;
        writeln!(f, "uncounted calls     ≤ {} (outage, credential, reconnect)", self.uncounted_max)?;
        write!(
            f,
            "terminal            ≤ {}, ≤ {} if every failure asks for the longest Retry-After",
            rough(self.terminal_max),
            rough(self.terminal_max_with_retry_after),
        )?;
        match self.ttl {
            Some(ttl) => write!(f, "; ttl {}", rough(ttl)),
            None => Ok(()),
        }
    }
}
