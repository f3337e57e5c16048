//! Settings as given, and how they override others.

use std::time::Duration;

use super::given::Given;
use super::rules::OnExhausted;
use super::scalars::{given_as, scalar_settings};
use crate::retry::schedule::CustomDelay;
use crate::{Class, Ratio};

macro_rules! fields {
    ($names:tt $($(#[doc = $doc:literal])+ $name:ident: $given:tt($of:ty) => $holds:ty = $read:expr;)+) => {
        /// Explicit settings; everything else comes from the profile.
        #[derive(Clone, Default)]
        pub struct PolicySettings {
            /// The profile that provides everything else.
            pub profile: Option<String>,
            /// One delay per retry.
            pub tiers: Option<Vec<Given<Duration>>>,
            /// Delays that grow, or one fixed delay.
            pub backoff: Option<BackoffSettings>,
            /// A delay function; can only be set in code.
            pub custom: Option<CustomDelay>,
            /// How often a failed message is tried again.
            pub retries: Option<u32>,
            /// How many attempts a message gets in total; alternative to `retries`.
            pub attempts: Option<u32>,
            /// The number of attempts for failures of one class.
            pub attempts_for: Vec<(Given<Class>, u32)>,
            /// The retry budget.
            pub budget: BudgetSettings,
            /// When a message is a poison pill.
            pub crash: CrashSettings,
            $($(#[doc = $doc])+ pub $name: Option<given_as!($given $of)>,)+
        }

        impl PolicySettings {
            /// Takes settings that are not set from `base`.
            fn fill_scalars(&mut self, base: &Self) {
                $(if self.$name.is_none() {
                    self.$name.clone_from(&base.$name);
                })+
            }
        }
    };
}

scalar_settings!(fields);

/// `{ base, multiplier, cap }` or `{ fixed }`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackoffSettings {
    /// The first delay.
    pub base: Option<Given<Duration>>,
    /// The factor between consecutive delays.
    pub multiplier: Option<f64>,
    /// The longest delay.
    pub cap: Option<Given<Duration>>,
    /// The same delay every time.
    pub fixed: Option<Given<Duration>>,
}

/// The retry budget, as set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetSettings {
    /// This many retries per minute.
    pub retries_per_minute: Option<u32>,
    /// This many retries per success.
    pub share_of_successes: Option<Given<Ratio>>,
    /// What happens to a retry that the budget does not allow.
    pub on_exhausted: Option<Given<OnExhausted>>,
}

/// When a message that crashes the process is dead-lettered, as set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrashSettings {
    /// Crashes after which it is a poison pill.
    pub threshold: Option<u32>,
    /// The window within which these crashes count.
    pub window: Option<Given<Duration>>,
}

impl PolicySettings {
    /// These settings, with missing ones taken from `base`.
    #[must_use]
    pub fn over(mut self, mut base: Self) -> Self {
        let has_schedule = self.tiers.is_some() || self.backoff.is_some() || self.custom.is_some();
        let same_kind = !has_schedule || (self.backoff.is_some() && base.backoff.is_some());
        // The number of retries and the cap belong to the schedule they were chosen for: a user's three tiers must not
        // be rejected because a profile with another schedule asks for five retries.
        if !same_kind {
            base.cap_ttl_share = None;
        }
        if !same_kind || self.retries.is_some() || self.attempts.is_some() {
            (base.retries, base.attempts) = (None, None);
        }
        self.fill_scalars(&base);
        Self {
            profile: self.profile.or(base.profile),
            tiers: if has_schedule { self.tiers } else { base.tiers },
            backoff: match (self.backoff, base.backoff) {
                (Some(own), Some(base)) => Some(own.over(base)),
                (own, base) => own.or(if has_schedule { None } else { base }),
            },
            custom: if has_schedule { self.custom } else { base.custom },
            retries: self.retries.or(base.retries),
            attempts: self.attempts.or(base.attempts),
            attempts_for: if self.attempts_for.is_empty() { base.attempts_for } else { self.attempts_for },
            budget: self.budget.over(base.budget),
            crash: CrashSettings {
                threshold: self.crash.threshold.or(base.crash.threshold),
                window: self.crash.window.or(base.crash.window),
            },
            ..self
        }
    }
}

impl BackoffSettings {
    /// A fixed delay and a growing one exclude each other: the kind that was given replaces the other as a whole.
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
