//! The policy itself: settings that passed every check, with nothing left to guess.

use std::collections::BTreeMap;
use std::time::Duration;

use super::faults::PolicyWarning;
use crate::retry::jitter::Unspread;
use crate::time::millis;
use crate::{Class, Jitter, Ratio, Schedule, Time};

/// What happens to failures of one pipeline. Made by [`super::PolicySettings::resolve`] or by a builder.
///
/// ```
/// use redrive_core::Policy;
///
/// let policy = Policy::exponential("1s", 2.0, "10m").retries(8).jitter("full").ttl("24h").build()?;
/// assert_eq!(policy.attempts(), 9);
/// println!("{}", policy.forecast());
/// # Ok::<(), redrive_core::PolicyFaults>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) schedule: Schedule,
    pub(super) jitter: Jitter,
    pub(super) attempts: u32,
    pub(super) attempts_for: BTreeMap<Class, u32>,
    pub(super) retry_after_jitter: Ratio,
    pub(super) retry_after_max: Duration,
    pub(super) retry_after_shared_max: Duration,
    pub(super) ttl: Option<Duration>,
    pub(super) cap_ttl_share: Option<Ratio>,
    pub(super) hold_max: Duration,
    pub(super) classify: bool,
    pub(super) mode: Mode,
    pub(super) concurrency: u32,
    pub(super) timeout: Duration,
    pub(super) outage_gate: bool,
    pub(super) budget: Option<BudgetRate>,
    pub(super) on_exhausted: OnExhausted,
    pub(super) crash_threshold: u32,
    pub(super) crash_window: Duration,
    pub(super) replay_attempts: Option<u32>,
    pub(super) warnings: Vec<PolicyWarning>,
}

/// Where a message waits between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In a tier or the delay index; its partition goes on.
    NonBlocking,
    /// In place; its partition waits. The honest baseline.
    Blocking,
}

/// How many retries a pipeline may make in all, so that retries cannot become the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetRate {
    /// So many retries a minute.
    PerMinute(u32),
    /// So many retries per success.
    ShareOfSuccesses(Ratio),
}

/// What happens to a retry that the budget does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnExhausted {
    /// It waits until the budget allows it.
    Defer,
    /// Its message becomes a dead letter.
    DeadLetter,
}

impl Mode {
    /// The word in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NonBlocking => "non-blocking",
            Self::Blocking => "blocking",
        }
    }
}

impl OnExhausted {
    /// The word in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Defer => "defer",
            Self::DeadLetter => "dead_letter",
        }
    }
}

impl Policy {
    /// How long retries wait.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// How delays are spread.
    pub fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// Counted attempts of a class without a number of its own: retries + 1.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How often a failed message is tried again.
    pub fn retries(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }

    /// How many counted attempts a message may use when it fails with `class`, driven again `replays` times.
    pub fn attempts_allowed(&self, class: Class, replays: u32) -> u32 {
        match self.replay_attempts {
            Some(attempts) if replays > 0 => attempts,
            _ => self.attempts_for.get(&class).copied().unwrap_or(self.attempts),
        }
    }

    /// The most counted attempts that any sequence of failures can use.
    pub fn attempts_max(&self) -> u32 {
        let own = self.attempts_for.values().copied();
        own.chain(self.replay_attempts).fold(self.attempts, u32::max)
    }

    /// How delays that a receiver asked for are spread.
    pub fn retry_after_jitter(&self) -> Ratio {
        self.retry_after_jitter
    }

    /// The longest Retry-After that is believed for the message that got it.
    pub fn retry_after_max(&self) -> Duration {
        self.retry_after_max
    }

    /// The longest that other messages of the same endpoint wait for it: one answer must not stop a pipeline for a day.
    pub fn retry_after_shared_max(&self) -> Duration {
        self.retry_after_shared_max
    }

    /// The age at which a message expires.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// The deadline of a message that brings none of its own.
    pub fn deadline(&self, created: Time) -> Option<Time> {
        self.ttl.map(|ttl| created.plus(ttl))
    }

    /// The share of what is left of the TTL that caps a delay.
    pub fn cap_ttl_share(&self) -> Option<Ratio> {
        self.cap_ttl_share
    }

    /// How long a message is held while the sink is unreachable.
    pub fn hold_max(&self) -> Duration {
        self.hold_max
    }

    /// Whether permanent failures are dead-lettered at once.
    pub fn classify(&self) -> bool {
        self.classify
    }

    /// Whether a failed message blocks those behind it.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The same policy with another place to wait. No check depends on the mode, so this cannot fail.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// How many calls may run at once.
    pub fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// How long one call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether messages are held, and not dead-lettered, while the sink is down.
    pub fn outage_gate(&self) -> bool {
        self.outage_gate
    }

    /// The retry budget; `None` is unlimited.
    pub fn budget(&self) -> Option<BudgetRate> {
        self.budget
    }

    /// What happens to a retry that the budget does not allow.
    pub fn on_exhausted(&self) -> OnExhausted {
        self.on_exhausted
    }

    /// Crashes after which a message is a poison pill.
    pub fn crash_threshold(&self) -> u32 {
        self.crash_threshold
    }

    /// Within which time these crashes count.
    pub fn crash_window(&self) -> Duration {
        self.crash_window
    }

    /// How many attempts a replayed letter has, where that differs.
    pub fn replay_attempts(&self) -> Option<u32> {
        self.replay_attempts
    }

    /// What works, but probably not as meant.
    pub fn warnings(&self) -> &[PolicyWarning] {
        &self.warnings
    }

    /// The delay before retry n (from 1) as jitter needs it; `ttl` is that of the message where it has its own.
    pub fn unspread(&self, n: u32, class: Class, ttl: Option<Duration>, previous_ms: u64) -> Unspread {
        let ttl_cap_ms = match (self.cap_ttl_share, ttl.or(self.ttl)) {
            (Some(share), Some(ttl)) => share.of_ms(millis(ttl)),
            _ => u64::MAX,
        };
        Unspread {
            delay_ms: self.schedule.uncapped_ms(n, class),
            cap_ms: self.schedule.cap_ms().min(ttl_cap_ms),
            base_ms: self.schedule.base_ms(),
            previous_ms,
        }
    }

    /// The shortest and the longest delay before each retry of `class`, for as many retries as `attempts` allow.
    pub fn delay_ranges(&self, attempts: u32, class: Class) -> Vec<(Duration, Duration)> {
        let mut longest_ms = 0;
        let range = |n| {
            let unspread = self.unspread(n, class, None, longest_ms);
            let (min_ms, max_ms) = self.jitter.range(unspread);
            longest_ms = max_ms.min(unspread.cap_ms);
            (Duration::from_millis(min_ms.min(unspread.cap_ms)), Duration::from_millis(longest_ms))
        };
        (1..attempts).map(range).collect()
    }

    /// The longest delay the schedule and its jitter can give.
    pub fn longest_delay(&self) -> Duration {
        let ranges = self.delay_ranges(self.attempts_max(), Class::Transient);
        ranges.into_iter().map(|(_, longest)| longest).max().unwrap_or_default()
    }
}
