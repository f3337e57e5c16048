//! Settings as given, under the names of the configuration, laid over a profile.

use std::time::Duration;

use super::given::Given;
use super::profiles::{Profile, ProfileSchedule};
use super::rules::{Mode, OnExhausted};
use crate::retry::schedule::CustomDelay;
use crate::{Class, Jitter, Ratio};

/// What somebody set; everything else comes from the profile.
#[derive(Clone, Default)]
pub struct PolicySettings {
    /// The profile that everything else comes from.
    pub profile: Option<String>,
    /// One delay per retry.
    pub tiers: Option<Vec<Given<Duration>>>,
    /// Delays that grow, or one fixed delay.
    pub backoff: Option<BackoffSettings>,
    /// A delay function; only code can give one.
    pub custom: Option<CustomDelay>,
    /// How often a failed message is tried again.
    pub retries: Option<u32>,
    /// How often a message is tried at all; the other way to say `retries`.
    pub attempts: Option<u32>,
    /// Another number of attempts for failures of one class.
    pub attempts_for: Vec<(Given<Class>, u32)>,
    /// How delays are spread.
    pub jitter: Option<Given<Jitter>>,
    /// How delays that a receiver asked for are spread.
    pub retry_after_jitter: Option<Given<Ratio>>,
    /// The longest `Retry-After` that is honoured.
    pub retry_after_max: Option<Given<Duration>>,
    /// The longest `Retry-After` that applies to all messages.
    pub retry_after_shared_max: Option<Given<Duration>>,
    /// The age at which a message expires.
    pub ttl: Option<Given<Duration>>,
    /// Caps delays at this share of what is left of the TTL.
    pub cap_ttl_share: Option<f64>,
    /// How long a message is held while the sink is unreachable.
    pub hold_max: Option<Given<Duration>>,
    /// Whether failures are told apart by class.
    pub classify: Option<Given<bool>>,
    /// Whether a failed message blocks those behind it.
    pub mode: Option<Given<Mode>>,
    /// How many calls may run at once.
    pub concurrency: Option<u32>,
    /// How long one call may take.
    pub timeout: Option<Given<Duration>>,
    /// Whether messages are held, and not dead-lettered, while the sink is down.
    pub outage_gate: Option<bool>,
    /// The retry budget.
    pub budget: BudgetSettings,
    /// When a message is a poison pill.
    pub crash: CrashSettings,
    /// How many attempts a replayed letter has.
    pub replay_attempts: Option<u32>,
}

/// `{ base, multiplier, cap }` or `{ fixed }`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackoffSettings {
    /// The first delay.
    pub base: Option<Given<Duration>>,
    /// By what each delay is longer than the one before.
    pub multiplier: Option<f64>,
    /// The longest delay.
    pub cap: Option<Given<Duration>>,
    /// The same delay every time.
    pub fixed: Option<Given<Duration>>,
}

/// The retry budget, as somebody set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetSettings {
    /// So many retries a minute.
    pub retries_per_minute: Option<u32>,
    /// So many retries per success.
    pub share_of_successes: Option<Given<Ratio>>,
    /// What happens to a retry that the budget does not allow.
    pub on_exhausted: Option<Given<OnExhausted>>,
}

/// When a message that crashes the process is given up, as somebody set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrashSettings {
    /// Crashes after which it is a poison pill.
    pub threshold: Option<u32>,
    /// Within which time these crashes count.
    pub window: Option<Given<Duration>>,
}

impl PolicySettings {
    /// These settings, with what they leave open taken from `base`.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        let has_schedule = self.tiers.is_some() || self.backoff.is_some() || self.custom.is_some();
        let same_kind = !has_schedule || (self.backoff.is_some() && base.backoff.is_some());
        // The number of retries belongs to the schedule it was chosen for: three tiers of one's own are not to be
        // refused because a profile with another schedule asks for five retries.
        let own_number = self.retries.is_some() || self.attempts.is_some();
        let keeps_number = same_kind && !own_number;
        Self {
            profile: self.profile.or(base.profile),
            tiers: if has_schedule { self.tiers } else { base.tiers },
            backoff: match (self.backoff, base.backoff) {
                (Some(own), Some(base)) => Some(own.over(base)),
                (own, base) => own.or(if has_schedule { None } else { base }),
            },
            custom: if has_schedule { self.custom } else { base.custom },
            retries: self.retries.or(if keeps_number { base.retries } else { None }),
            attempts: self.attempts.or(if keeps_number { base.attempts } else { None }),
            attempts_for: if self.attempts_for.is_empty() { base.attempts_for } else { self.attempts_for },
            jitter: self.jitter.or(base.jitter),
            retry_after_jitter: self.retry_after_jitter.or(base.retry_after_jitter),
            retry_after_max: self.retry_after_max.or(base.retry_after_max),
            retry_after_shared_max: self.retry_after_shared_max.or(base.retry_after_shared_max),
            ttl: self.ttl.or(base.ttl),
            cap_ttl_share: self.cap_ttl_share.or(if same_kind { base.cap_ttl_share } else { None }),
            hold_max: self.hold_max.or(base.hold_max),
            classify: self.classify.or(base.classify),
            mode: self.mode.or(base.mode),
            concurrency: self.concurrency.or(base.concurrency),
            timeout: self.timeout.or(base.timeout),
            outage_gate: self.outage_gate.or(base.outage_gate),
            budget: self.budget.over(base.budget),
            crash: CrashSettings {
                threshold: self.crash.threshold.or(base.crash.threshold),
                window: self.crash.window.or(base.crash.window),
            },
            replay_attempts: self.replay_attempts.or(base.replay_attempts),
        }
    }
}

impl BackoffSettings {
    /// A fixed delay and a growing one exclude each other: the kind that was given wins as a whole.
    fn over(self, base: Self) -> Self {
        if self.fixed.is_some() || base.fixed.is_some() {
            return self;
        }
        Self {
            base: self.base.or(base.base),
            multiplier: self.multiplier.or(base.multiplier),
            cap: self.cap.or(base.cap),
            fixed: None,
        }
    }
}

impl BudgetSettings {
    fn over(self, base: Self) -> Self {
        let on_exhausted = self.on_exhausted.clone().or(base.on_exhausted.clone());
        let rate = if self.has_rate() { self } else { base };
        Self { on_exhausted, ..rate }
    }

    pub(super) fn has_rate(&self) -> bool {
        self.retries_per_minute.is_some() || self.share_of_successes.is_some()
    }
}

impl From<&Profile> for PolicySettings {
    fn from(profile: &Profile) -> Self {
        let (tiers, backoff) = match profile.schedule {
            ProfileSchedule::Tiers(tiers) => (Some(tiers.iter().map(|tier| (*tier).into()).collect()), None),
            ProfileSchedule::Exponential { base, multiplier, cap } => {
                let base = Some(base.into());
                let cap = cap.map(Into::into);
                (None, Some(BackoffSettings { base, multiplier: Some(multiplier), cap, fixed: None }))
            }
            ProfileSchedule::Fixed(delay) => {
                (None, Some(BackoffSettings { fixed: Some(delay.into()), ..BackoffSettings::default() }))
            }
        };
        Self {
            profile: Some(profile.name.to_owned()),
            tiers,
            backoff,
            retries: profile.retries,
            jitter: Some(profile.jitter.into()),
            retry_after_jitter: Some(profile.retry_after_jitter.into()),
            ttl: profile.ttl.map(Into::into),
            cap_ttl_share: profile.cap_ttl_share,
            mode: Some(profile.mode.into()),
            budget: BudgetSettings {
                retries_per_minute: profile.retries_per_minute,
                share_of_successes: None,
                on_exhausted: Some(profile.on_exhausted.into()),
            },
            replay_attempts: profile.replay_attempts,
            ..Self::default()
        }
    }
}

impl std::fmt::Debug for PolicySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicySettings")
            .field("profile", &self.profile)
            .field("tiers", &self.tiers)
            .field("backoff", &self.backoff)
            .field("custom", &self.custom.is_some())
            .field("retries", &self.retries)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
