//! The class of a failed attempt.

use std::fmt;

/// The exact class of a failed attempt. Exhaustive on purpose, and not `#[non_exhaustive]`: a match on it decides what
/// happens to messages, so a new case must be a compile error there and not fall into a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Likely to heal by itself: a timeout, a 503, a dropped connection.
    Transient,
    /// The downstream asked to slow down (429); Retry-After is honoured.
    RateLimited,
    /// No retry can help: malformed, forbidden, unknown.
    Permanent,
    /// The receiver is gone for good (410).
    Gone,
    /// Our own credential is wrong: the sink is gated, and no attempt is used up.
    Credential,
    /// A stale connection: retried immediately, a limited number of times.
    Reconnect,
    /// The handler panicked or took its process down.
    Crash,
}

/// The two families that `x-error-class` carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// May succeed on another attempt.
    Transient,
    /// Cannot succeed, however often it is tried.
    Permanent,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 7] = [
        Self::Transient,
        Self::RateLimited,
        Self::Permanent,
        Self::Gone,
        Self::Credential,
        Self::Reconnect,
        Self::Crash,
    ];

    /// The family of the class.
    pub const fn family(self) -> Family {
        match self {
            Self::Transient | Self::RateLimited | Self::Credential | Self::Reconnect => Family::Transient,
            Self::Permanent | Self::Gone | Self::Crash => Family::Permanent,
        }
    }

    /// The name in metrics, filters and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimited => "rate_limited",
            Self::Permanent => "permanent",
            Self::Gone => "gone",
            Self::Credential => "credential",
            Self::Reconnect => "reconnect",
            Self::Crash => "crash",
        }
    }

    /// The class of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The byte that stands for this class on disk. Never renumber.
    pub const fn code(self) -> u8 {
        match self {
            Self::Transient => 1,
            Self::RateLimited => 2,
            Self::Permanent => 3,
            Self::Gone => 4,
            Self::Credential => 5,
            Self::Reconnect => 6,
            Self::Crash => 7,
        }
    }

    /// The class with this stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }
}

impl Family {
    /// The name in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_keeps_its_name_and_its_code() {
        for class in Class::ALL {
            assert_eq!(Class::from_name(class.name()), Some(class));
            assert_eq!(Class::from_code(class.code()), Some(class));
        }
        assert_eq!(Class::from_code(0), None);
        assert_eq!(Class::from_name("Transient"), None);
    }

    #[test]
    fn families_are_those_of_the_error_class_header() {
        let permanent: Vec<_> = Class::ALL.into_iter().filter(|c| c.family() == Family::Permanent).collect();
        assert_eq!(permanent, [Class::Permanent, Class::Gone, Class::Crash]);
    }

    #[test]
    fn families_have_the_names_of_the_header() {
        assert_eq!(
            [Family::Transient, Family::Permanent].map(|family| family.to_string()),
            ["transient", "permanent"]
        );
    }
}
