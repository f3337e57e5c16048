//! Builds a policy in code: the same settings and the same validator as a file, with faults reported by `build`.

use std::sync::Arc;
use std::time::Duration;

use super::faults::PolicyFaults;
use super::given::Given;
use super::rules::{OnExhausted, Policy};
use super::scalars::scalar_settings;
use super::settings::{BackoffSettings, PolicySettings};
use crate::{Class, Ratio};

/// Collects settings; nothing is checked before [`Self::build`]. Single-value settings are declared in `scalars.rs`.
#[derive(Clone, Debug, Default)]
pub struct PolicyBuilder {
    settings: PolicySettings,
}

macro_rules! methods {
    ($names:tt $($(#[doc = $doc:literal])+ $name:ident: $given:tt($of:ty) => $holds:ty = $read:expr;)+) => {
        impl PolicyBuilder {
            $($(#[doc = $doc])+ #[must_use]
            pub fn $name(mut self, $name: methods!(@argument $given $of)) -> Self {
                self.settings.$name = Some($name.into());
                self
            })+
        }
    };
    (@argument words $of:ty) => { impl Into<Given<$of>> };
    (@argument value $of:ty) => { $of };
}

scalar_settings!(methods);

impl Policy {
    /// One delay step per retry: `Policy::tiers(["5s", "30s", "5m"])`.
    pub fn tiers<I>(tiers: I) -> PolicyBuilder
    where
        I: IntoIterator,
        I::Item: Into<Given<Duration>>,
    {
        let tiers = Some(tiers.into_iter().map(Into::into).collect());
        PolicySettings { tiers, ..PolicySettings::default() }.into()
    }

    /// Delays that grow from `base` by `multiplier` up to `cap`.
    pub fn exponential(
        base: impl Into<Given<Duration>>,
        multiplier: f64,
        cap: impl Into<Given<Duration>>,
    ) -> PolicyBuilder {
        let (base, cap) = (Some(base.into()), Some(cap.into()));
        let backoff = Some(BackoffSettings { base, multiplier: Some(multiplier), cap, fixed: None });
        PolicySettings { backoff, ..PolicySettings::default() }.into()
    }

    /// The same delay every time.
    pub fn fixed(delay: impl Into<Given<Duration>>) -> PolicyBuilder {
        let backoff = Some(BackoffSettings { fixed: Some(delay.into()), ..BackoffSettings::default() });
        PolicySettings { backoff, ..PolicySettings::default() }.into()
    }

    /// Delays from a function of the retry (from 1) and the class. It must be pure: forecasts call it too.
    pub fn custom(delay: impl Fn(u32, Class) -> Duration + Send + Sync + 'static) -> PolicyBuilder {
        PolicySettings { custom: Some(Arc::new(delay)), ..PolicySettings::default() }.into()
    }

    /// The settings of a named profile.
    pub fn profile(name: impl Into<String>) -> PolicyBuilder {
        PolicySettings { profile: Some(name.into()), ..PolicySettings::default() }.into()
    }
}

/// The default profile.
impl Default for Policy {
    fn default() -> Self {
        match PolicySettings::default().resolve() {
            Ok(policy) => policy,
            Err(faults) => unreachable!("the default profile has faults: {faults}"),
        }
    }
}

impl PolicyBuilder {
    /// Validates all settings: returns the policy, or every fault.
    pub fn build(&self) -> Result<Policy, PolicyFaults> {
        self.settings.resolve()
    }

    /// The settings so far.
    pub fn settings(&self) -> &PolicySettings {
        &self.settings
    }

    /// How often a failed message is tried again.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = Some(retries);
        self
    }

    /// Retries + 1; set either this or `retries`.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = Some(attempts);
        self
    }

    /// The number of attempts for failures of one class.
    #[must_use]
    pub fn attempts_for(mut self, class: Class, attempts: u32) -> Self {
        self.settings.attempts_for.push((class.into(), attempts));
        self
    }

    /// The retry budget, as retries per minute.
    #[must_use]
    pub fn retries_per_minute(mut self, retries: u32) -> Self {
        self.settings.budget.retries_per_minute = Some(retries);
        self
    }

    /// The retry budget, as a share of the successes.
    #[must_use]
    pub fn share_of_successes(mut self, share: impl Into<Given<Ratio>>) -> Self {
        self.settings.budget.share_of_successes = Some(share.into());
        self
    }

    /// What happens to a retry that the budget does not allow.
    #[must_use]
    pub fn on_exhausted(mut self, answer: impl Into<Given<OnExhausted>>) -> Self {
        self.settings.budget.on_exhausted = Some(answer.into());
        self
    }

    /// Dead-letters a message as a poison pill after `threshold` crashes within `window`.
    #[must_use]
    pub fn crash(mut self, threshold: u32, window: impl Into<Given<Duration>>) -> Self {
        self.settings.crash.threshold = Some(threshold);
        self.settings.crash.window = Some(window.into());
        self
    }
}

impl From<PolicySettings> for PolicyBuilder {
    fn from(settings: PolicySettings) -> Self {
        Self { settings }
    }
}

/// Lets a pipeline accept both a finished policy and a builder.
impl TryFrom<PolicyBuilder> for Policy {
    type Error = PolicyFaults;

    fn try_from(builder: PolicyBuilder) -> Result<Self, PolicyFaults> {
        builder.build()
    }
}
