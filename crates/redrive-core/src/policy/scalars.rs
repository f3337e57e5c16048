//! The settings of one value, each declared in one row: how it is given, what it becomes, and the check between.
//!
//! From a row follow the field of [`PolicySettings`], the method of [`PolicyBuilder`], the value and the getter of
//! [`Policy`], how it is laid over a profile, and the entry of [`SCALARS`] by which a configuration is read and shown.

use std::time::Duration;

use super::builder::PolicyBuilder;
use super::check::{Check, TICK, limits};
use super::delays::{cap_ttl_share, jitter};
use super::given::{Given, Word};
use super::rules::{Mode, Policy};
use super::settings::{BackoffSettings, BudgetSettings, CrashSettings};
use crate::retry::schedule::{CustomDelay, DELAY_MAX};
use crate::{Class, Jitter, Ratio, Schedule};

/// One setting of one value, for whoever reads it from a file or shows it.
#[derive(Clone, Copy, Debug)]
pub struct ScalarSetting {
    /// Its name in the configuration.
    pub key: &'static str,
    /// What it is given as.
    pub kind: ScalarKind,
    /// Sets it. A value of another kind than [`Self::kind`] is ignored.
    pub set: fn(&mut PolicySettings, ScalarValue),
    /// Whether it is set.
    pub is_set: fn(&PolicySettings) -> bool,
    /// The value that holds, in TOML; `None` where there is none.
    pub toml: fn(&Policy) -> Option<String>,
}

/// What a value is given as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    /// Text, which the validator reads.
    Words,
    /// A whole number.
    Whole,
    /// Any number.
    Number,
    /// `true` or `false`.
    Switch,
}

/// A value as it was given.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarValue {
    /// Text, which the validator reads.
    Words(String),
    /// A whole number.
    Whole(u32),
    /// Any number.
    Number(f64),
    /// `true` or `false`.
    Switch(bool),
}

macro_rules! scalar_settings {
    (
        ($check:ident, $all:ident, $schedule:ident)
        $($(#[doc = $doc:literal])+ $name:ident: $given:tt($of:ty) => $holds:ty = $read:expr;)+
    ) => {
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
            /// The retry budget.
            pub budget: BudgetSettings,
            /// When a message is a poison pill.
            pub crash: CrashSettings,
            $($(#[doc = $doc])+ pub $name: Option<scalar_settings!(@field $given $of)>,)+
        }

        /// What became of them.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Scalars {
            $(pub(super) $name: $holds,)+
        }

        impl Scalars {
            /// Checks every row in turn; a row may use the values above it.
            pub(super) fn read($check: &mut Check, $all: &PolicySettings, $schedule: &Schedule) -> Self {
                $(let $name: $holds = $read;)+
                Self { $($name,)+ }
            }
        }

        impl PolicySettings {
            /// Takes what is not set from `base`.
            pub(super) fn fill_scalars(&mut self, base: &Self) {
                $(if self.$name.is_none() {
                    self.$name.clone_from(&base.$name);
                })+
            }
        }

        impl Policy {
            $($(#[doc = $doc])+ pub fn $name(&self) -> $holds {
                self.scalars.$name
            })+
        }

        impl PolicyBuilder {
            $($(#[doc = $doc])+ #[must_use]
            pub fn $name(mut self, $name: scalar_settings!(@argument $given $of)) -> Self {
                self.settings.$name = Some($name.into());
                self
            })+
        }

        /// Every setting of one value.
        pub const SCALARS: &[ScalarSetting] = &[$(ScalarSetting {
            key: stringify!($name),
            kind: <scalar_settings!(@field $given $of) as GivenAs>::KIND,
            set: |settings, value| settings.$name = GivenAs::of(value),
            is_set: |settings| settings.$name.is_some(),
            toml: |policy| scalar_settings!(@toml $given $of, policy.scalars.$name),
        },)+];
    };
    (@field words $of:ty) => { Given<$of> };
    (@field value $of:ty) => { $of };
    (@argument words $of:ty) => { impl Into<Given<$of>> };
    (@argument value $of:ty) => { $of };
    (@toml words $of:ty, $holds:expr) => { Option::<$of>::from($holds).map(|held| format!("{:?}", held.print())) };
    (@toml value $of:ty, $holds:expr) => { $holds.toml() };
}

// `name: words(T)` is text in the configuration and text or a `T` in code; `name: value(T)` is a number or a switch.
scalar_settings! {
    (check, all, schedule)
    /// How delays are spread.
    jitter: words(Jitter) => Jitter = jitter(check, all, schedule);
    /// How delays that a receiver asked for are spread.
    retry_after_jitter: words(Ratio) => Ratio =
        check.share_up_to_whole("retry_after_jitter", all.retry_after_jitter.as_ref(), Ratio::percent(10));
    /// The longest `Retry-After` that is honoured for the message that got it.
    retry_after_max: words(Duration) => Duration =
        check.span("retry_after_max", all.retry_after_max.as_ref(), (TICK, DELAY_MAX), limits::RETRY_AFTER_MAX);
    /// The longest that other messages of the same endpoint wait for one message's `Retry-After`: one answer must not
    /// stop a pipeline for a day.
    retry_after_shared_max: words(Duration) => Duration = check.span(
        "retry_after_shared_max",
        all.retry_after_shared_max.as_ref(),
        (TICK, retry_after_max),
        limits::RETRY_AFTER_SHARED_MAX.min(retry_after_max),
    );
    /// The age at which a message expires.
    ttl: words(Duration) => Option<Duration> =
        all.ttl.as_ref().map(|ttl| check.span("ttl", Some(ttl), (TICK, limits::SPAN_MAX), TICK));
    /// Caps delays at this share of the TTL.
    cap_ttl_share: value(f64) => Option<Ratio> = cap_ttl_share(check, all);
    /// How long a message is held while the sink is unreachable.
    hold_max: words(Duration) => Duration =
        check.span("hold_max", all.hold_max.as_ref(), (Duration::ZERO, limits::SPAN_MAX), limits::HOLD_MAX);
    /// Whether permanent failures are dead-lettered at once; otherwise they are retried like the rest.
    classify: words(bool) => bool = check.word("classify", all.classify.as_ref(), true);
    /// Whether a failed message blocks those behind it.
    mode: words(Mode) => Mode = check.word("mode", all.mode.as_ref(), Mode::NonBlocking);
    /// How many calls may run at once.
    concurrency: value(u32) => u32 =
        check.number("concurrency", all.concurrency, limits::CONCURRENCY_MAX, limits::CONCURRENCY);
    /// How long one call may take.
    timeout: words(Duration) => Duration =
        check.span("timeout", all.timeout.as_ref(), (TICK, limits::TIMEOUT_MAX), limits::TIMEOUT);
    /// Whether messages are held, and not dead-lettered, while the sink is down.
    outage_gate: value(bool) => bool = all.outage_gate.unwrap_or(true);
    /// How many attempts a replayed letter has, where that differs.
    replay_attempts: value(u32) => Option<u32> = all
        .replay_attempts
        .map(|attempts| check.number("replay_attempts", Some(attempts), limits::ATTEMPTS_MAX, 1));
}

/// How a type of value is given.
trait GivenAs: Sized {
    const KIND: ScalarKind;

    fn of(value: ScalarValue) -> Option<Self>;
}

impl<T: Word> GivenAs for Given<T> {
    const KIND: ScalarKind = ScalarKind::Words;

    fn of(value: ScalarValue) -> Option<Self> {
        if let ScalarValue::Words(text) = value { Some(text.into()) } else { None }
    }
}

impl GivenAs for u32 {
    const KIND: ScalarKind = ScalarKind::Whole;

    fn of(value: ScalarValue) -> Option<Self> {
        if let ScalarValue::Whole(number) = value { Some(number) } else { None }
    }
}

impl GivenAs for f64 {
    const KIND: ScalarKind = ScalarKind::Number;

    fn of(value: ScalarValue) -> Option<Self> {
        if let ScalarValue::Number(number) = value { Some(number) } else { None }
    }
}

impl GivenAs for bool {
    const KIND: ScalarKind = ScalarKind::Switch;

    fn of(value: ScalarValue) -> Option<Self> {
        if let ScalarValue::Switch(on) = value { Some(on) } else { None }
    }
}

/// A number or a switch that holds, as TOML writes it.
trait PlainToml {
    fn toml(&self) -> Option<String>;
}

impl PlainToml for u32 {
    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl PlainToml for bool {
    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A share that was given as a number.
impl PlainToml for Ratio {
    fn toml(&self) -> Option<String> {
        Some(format!("{:?}", self.as_f64()))
    }
}

impl<T: PlainToml> PlainToml for Option<T> {
    fn toml(&self) -> Option<String> {
        self.as_ref().and_then(PlainToml::toml)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of the right kind that every row accepts, and that differs from its default.
    fn other(setting: &ScalarSetting) -> ScalarValue {
        let words = |text: &str| ScalarValue::Words(text.to_owned());
        match (setting.kind, setting.key) {
            (ScalarKind::Words, "jitter") => words("full"),
            (ScalarKind::Words, "retry_after_jitter") => words("33%"),
            (ScalarKind::Words, "classify") => words("off"),
            (ScalarKind::Words, "mode") => words("blocking"),
            (ScalarKind::Words, _) => words("90s"),
            (ScalarKind::Whole, _) => ScalarValue::Whole(7),
            (ScalarKind::Number, _) => ScalarValue::Number(0.25),
            (ScalarKind::Switch, _) => ScalarValue::Switch(false),
        }
    }

    #[test]
    fn every_row_is_set_checked_shown_and_laid_over_a_profile_by_its_name() {
        let usual = PolicySettings::default().resolve().unwrap();
        for setting in SCALARS {
            let mut settings = Policy::exponential("1s", 2.0, "1m").ttl("1h").settings().clone();
            (setting.set)(&mut settings, other(setting));
            assert!((setting.is_set)(&settings), "{}", setting.key);
            let policy = settings.resolve().unwrap();
            let shown = (setting.toml)(&policy).unwrap();
            assert_ne!(Some(&shown), (setting.toml)(&usual).as_ref(), "{}", setting.key);
            let meant = match other(setting) {
                ScalarValue::Words(text) => format!("{:?}", text.replace("90s", "1m30s")),
                ScalarValue::Whole(number) => number.to_string(),
                ScalarValue::Number(number) => number.to_string(),
                ScalarValue::Switch(on) => on.to_string(),
            };
            assert_eq!(shown, meant, "{}", setting.key);
            let over = PolicySettings::default().over(settings);
            assert_eq!((setting.toml)(&over.resolve().unwrap()), Some(meant), "{}", setting.key);
        }
    }

    #[test]
    fn a_value_of_another_kind_sets_nothing() {
        for setting in SCALARS {
            let mut settings = PolicySettings::default();
            let wrong = match setting.kind {
                ScalarKind::Words => ScalarValue::Switch(true),
                _ => ScalarValue::Words("1".to_owned()),
            };
            (setting.set)(&mut settings, wrong);
            assert!(!(setting.is_set)(&settings), "{}", setting.key);
        }
    }
}
