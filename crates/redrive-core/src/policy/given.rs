//! A setting as given: as text, or as a value from code.

use std::time::Duration;

use crate::{Class, Jitter, Ratio, duration};

/// A kind of value that can be written in a configuration file.
pub trait Word: Clone {
    /// The name of the kind in a fault, with its article.
    const KIND: &'static str;
    /// The accepted forms, to complete "write it like …".
    const ACCEPTED: &'static str;

    /// Parses the value; `None` if the text is not of this kind.
    fn read(text: &str) -> Option<Self>;
    /// Formats the value so that [`Self::read`] reads it back.
    fn print(&self) -> String;
}

/// Text is kept as written until the validator parses it, so that all faults can be reported together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given<T> {
    /// Text as written.
    Words(String),
    /// A value set in code.
    Value(T),
}

impl<T: Word> Given<T> {
    pub(super) fn read(&self) -> Option<T> {
        match self {
            Self::Words(text) => T::read(text),
            Self::Value(value) => Some(value.clone()),
        }
    }

    pub(super) fn print(&self) -> String {
        match self {
            Self::Words(text) => text.clone(),
            Self::Value(value) => value.print(),
        }
    }
}

impl<T: Word> From<&str> for Given<T> {
    fn from(text: &str) -> Self {
        Self::Words(text.to_owned())
    }
}

impl<T: Word> From<String> for Given<T> {
    fn from(text: String) -> Self {
        Self::Words(text)
    }
}

impl<T: Word> From<T> for Given<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl Word for Duration {
    const KIND: &'static str = "a duration";
    const ACCEPTED: &'static str = duration::EXAMPLES;

    fn read(text: &str) -> Option<Self> {
        duration::parse(text).ok()
    }

    fn print(&self) -> String {
        duration::print(*self)
    }
}

impl Word for Jitter {
    const KIND: &'static str = "a jitter";
    // Without `decorrelated`, which only some schedules support.
    const ACCEPTED: &'static str = "none, full, equal, plus(50%), plus(1s) or around(10%)";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl Word for Ratio {
    const KIND: &'static str = "a share";
    const ACCEPTED: &'static str = "10% or 12.5%";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl Word for Class {
    const KIND: &'static str = "a class";
    const ACCEPTED: &'static str = "transient, rate_limited or crash";

    fn read(text: &str) -> Option<Self> {
        Self::from_name(text)
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl Word for bool {
    const KIND: &'static str = "a switch";
    const ACCEPTED: &'static str = "on or off";

    fn read(text: &str) -> Option<Self> {
        match text {
            "on" | "true" => Some(true),
            "off" | "false" => Some(false),
            _ => None,
        }
    }

    fn print(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Word + PartialEq + std::fmt::Debug>(words: &[&str]) {
        for word in words {
            let value = Given::<T>::from(*word).read().unwrap();
            assert_eq!(Given::from(value.clone()).read(), Some(value.clone()));
            assert_eq!(Given::from(value).print(), *word);
            assert_eq!(Given::<T>::from((*word).to_owned()).print(), *word);
        }
        assert_eq!(Given::<T>::from("nonsense").read(), None);
    }

    #[test]
    fn every_kind_of_setting_is_read_and_written_back() {
        round_trip::<Duration>(&["5s", "1h30m"]);
        round_trip::<Jitter>(&["equal", "plus(50%)"]);
        round_trip::<Ratio>(&["10%"]);
        round_trip::<Class>(&["rate_limited"]);
        round_trip::<bool>(&["on", "off"]);
        round_trip::<crate::policy::Mode>(&["non-blocking", "blocking"]);
        round_trip::<crate::policy::OnExhausted>(&["defer", "dead_letter"]);
        assert_eq!(Given::<bool>::from("true").read(), Some(true));
        assert_eq!(Given::<bool>::from("false").read(), Some(false));
    }
}
