//! The policy itself: settings that passed every check, with every value resolved.

use std::collections::BTreeMap;
use std::time::Duration;

use super::faults::PolicyWarning;
use super::given::Word;
use super::scalars::scalar_settings;
use crate::retry::jitter::Unspread;
use crate::time::millis;
use crate::{Class, Ratio, Schedule, Time};

/// Decides what happens to failures of one pipeline. Created by [`super::PolicySettings::resolve`] or by a builder.
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
    pub(super) scalars: Scalars,
    pub(super) attempts: u32,
    pub(super) attempts_for: BTreeMap<Class, u32>,
    pub(super) budget: Option<BudgetRate>,
    pub(super) on_exhausted: OnExhausted,
    pub(super) crash_threshold: u32,
    pub(super) crash_window: Duration,
    pub(super) warnings: Vec<PolicyWarning>,
}

/// Where a message waits between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In a tier or the delay index; its partition continues.
    NonBlocking,
    /// In place; its partition waits.
    Blocking,
}

/// How many retries a pipeline may make in total, so that retries cannot become the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetRate {
    /// This many retries per minute.
    PerMinute(u32),
    /// This many retries per success.
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
    /// All values.
    pub const ALL: [Self; 2] = [Self::NonBlocking, Self::Blocking];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NonBlocking => "non-blocking",
            Self::Blocking => "blocking",
        }
    }
}

impl OnExhausted {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Defer, Self::DeadLetter];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Defer => "defer",
            Self::DeadLetter => "dead_letter",
        }
    }
}

impl Word for Mode {
    const KIND: &'static str = "a mode";
    const ACCEPTED: &'static str = "non-blocking or blocking";

    fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == text)
    }

    fn print(&self) -> String {
        self.name().to_owned()
    }
}

impl Word for OnExhausted {
    const KIND: &'static str = "an answer to an empty budget";
    const ACCEPTED: &'static str = "defer or dead_letter";

    fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.name() == text)
    }

    fn print(&self) -> String {
        self.name().to_owned()
    }
}

macro_rules! values {
    ($names:tt $($(#[doc = $doc:literal])+ $name:ident: $given:tt($of:ty) => $holds:ty = $read:expr;)+) => {
        /// The values of the single-value settings.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Scalars {
            $(pub(super) $name: $holds,)+
        }

        impl Policy {
            $($(#[doc = $doc])+ pub fn $name(&self) -> $holds {
                self.scalars.$name
            })+
        }
    };
}

scalar_settings!(values);

impl Policy {
    /// How long retries wait.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Counted attempts of a class without its own number: retries + 1.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How often a failed message is tried again.
    pub fn retries(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }

    /// How many counted attempts a message may use when it fails with `class` after `replays` replays.
    pub fn attempts_allowed(&self, class: Class, replays: u32) -> u32 {
        match self.replay_attempts() {
            Some(attempts) if replays > 0 => attempts,
            _ => self.attempts_for.get(&class).copied().unwrap_or(self.attempts),
        }
    }

    /// The most counted attempts that any sequence of failures can use up.
    pub fn attempts_max(&self) -> u32 {
        let own = self.attempts_for.values().copied();
        own.chain(self.replay_attempts()).fold(self.attempts, u32::max)
    }

    /// The deadline of a message that does not set its own.
    pub fn deadline(&self, created: Time) -> Option<Time> {
        self.ttl().map(|ttl| created.plus(ttl))
    }

    /// The same policy in another mode. No check depends on the mode, so this cannot fail.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { scalars: Scalars { mode, ..self.scalars }, ..self }
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

    /// The window within which these crashes count.
    pub fn crash_window(&self) -> Duration {
        self.crash_window
    }

    /// Settings that work, but probably not as intended.
    pub fn warnings(&self) -> &[PolicyWarning] {
        &self.warnings
    }

    /// The delay before retry n (from 1), as jitter needs it; `ttl` is the message's own TTL, if it has one.
    pub fn unspread(&self, n: u32, class: Class, ttl: Option<Duration>, previous_ms: u64) -> Unspread {
        let ttl_cap_ms = match (self.cap_ttl_share(), ttl.or(self.ttl())) {
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
            let (min_ms, max_ms) = self.jitter().range(unspread);
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
