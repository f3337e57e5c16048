//! Single-value settings by name, to read them from a file or to show them.

use std::time::Duration;

use super::given::{Given, Word};
use super::rules::Policy;
use super::scalars::{given_as, scalar_settings};
use super::settings::PolicySettings;
use crate::Ratio;

/// A single-value setting.
#[derive(Clone, Copy, Debug)]
pub struct ScalarSetting {
    /// Its name in the configuration.
    pub key: &'static str,
    /// The kind of value it takes.
    pub kind: ScalarKind,
    /// Sets it. A value of another kind than [`Self::kind`] is ignored.
    pub set: fn(&mut PolicySettings, ScalarValue),
    /// Whether it is set.
    pub is_set: fn(&PolicySettings) -> bool,
    /// The effective value, in TOML; `None` if there is none.
    pub toml: fn(&Policy) -> Option<String>,
}

/// The kind of value a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    /// Text, which the validator parses.
    Words,
    /// A whole number.
    Whole,
    /// Any number.
    Number,
    /// `true` or `false`.
    Switch,
}

/// A value as given.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarValue {
    /// Text, which the validator parses.
    Words(String),
    /// A whole number.
    Whole(u32),
    /// Any number.
    Number(f64),
    /// `true` or `false`.
    Switch(bool),
}

macro_rules! listed {
    ($names:tt $($(#[doc = $doc:literal])+ $name:ident: $given:tt($of:ty) => $holds:ty = $read:expr;)+) => {
        /// All single-value settings.
        pub const SCALARS: &[ScalarSetting] = &[$(ScalarSetting {
            key: stringify!($name),
            kind: <given_as!($given $of) as GivenAs>::KIND,
            set: |settings, value| settings.$name = GivenAs::of(value),
            is_set: |settings| settings.$name.is_some(),
            toml: |policy| listed!(@toml $given $of, policy.$name()),
        },)+];
    };
    (@toml words $of:ty, $holds:expr) => { Option::<$of>::from($holds).map(|held| format!("{:?}", held.print())) };
    (@toml value $of:ty, $holds:expr) => { $holds.toml() };
}

scalar_settings!(listed);

/// How values of a type are given.
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

/// Formats an effective number or switch as TOML.
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

/// A share given as a number.
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

    /// A value of the right kind that every row accepts and that differs from its default.
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
