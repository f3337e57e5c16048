//! An outage: its window, and what callers see of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redrive_core::duration;

/// `60s@5m`: sixty seconds, starting five minutes after the switch was set (or after startup, if it was set there).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutageWindow {
    pub length: Duration,
    pub after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an outage window; write LENGTH@START like 60s@5m, or 60s for one that begins now")]
pub struct OutageWindowError {
    pub text: String,
}

impl OutageWindow {
    /// Whether the outage is on, `elapsed` after the switch was set. Excludes the end.
    pub fn contains(&self, elapsed: Duration) -> bool {
        elapsed >= self.after && elapsed < self.end()
    }

    pub fn end(&self) -> Duration {
        self.after.saturating_add(self.length)
    }

    /// The next time at which it begins or ends; `None` when it is over.
    pub fn next_edge(&self, elapsed: Duration) -> Option<Duration> {
        [self.after, self.end()].into_iter().find(|edge| *edge > elapsed)
    }
}

impl FromStr for OutageWindow {
    type Err = OutageWindowError;

    fn from_str(text: &str) -> Result<Self, OutageWindowError> {
        let wrong = || OutageWindowError { text: text.to_owned() };
        let (length, after) = text.split_once('@').unwrap_or((text, "0s"));
        let length = duration::parse(length).map_err(|_| wrong())?;
        let after = duration::parse(after).map_err(|_| wrong())?;
        if length.is_zero() { Err(wrong()) } else { Ok(Self { length, after }) }
    }
}

impl fmt::Display for OutageWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", duration::print(self.length), duration::print(self.after))
    }
}

/// What callers see during an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OutageStyle {
    /// Calls are answered with 503.
    #[default]
    Unavailable,
    /// Connections are cut and refused. The switches cannot be reached either.
    Refuse,
    /// No response until the outage ends; then 503, if the caller still waits.
    Hang,
}

impl OutageStyle {
    pub const ALL: [Self; 3] = [Self::Unavailable, Self::Refuse, Self::Hang];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Refuse => "refuse",
            Self::Hang => "hang",
        }
    }
}

impl fmt::Display for OutageStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a kind of outage; it is unavailable, refuse or hang")]
pub struct OutageStyleError {
    pub text: String,
}

impl FromStr for OutageStyle {
    type Err = OutageStyleError;

    fn from_str(text: &str) -> Result<Self, OutageStyleError> {
        let found = Self::ALL.into_iter().find(|style| style.name() == text);
        found.ok_or_else(|| OutageStyleError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn windows_are_read_and_written_back() {
        for (text, length, after, again) in [
            ("60s@5m", 60, 300, "1m@5m"),
            ("30s@1m", 30, 60, "30s@1m"),
            ("1m30s@0s", 90, 0, "1m30s@0s"),
            ("60s", 60, 0, "1m@0s"),
        ] {
            let window: OutageWindow = text.parse().unwrap();
            assert_eq!(window, OutageWindow { length: secs(length), after: secs(after) }, "{text}");
            assert_eq!(window.to_string(), again);
        }
    }

    #[test]
    fn what_is_not_a_window_is_named_with_what_is() {
        for text in ["", "@", "60@5m", "60s@", "@5m", "0s@5m", "0s", "60s@5m@1m", "5m-6m", "60s @5m"] {
            let error = text.parse::<OutageWindow>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("60s@5m"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn the_outage_is_on_exactly_between_its_edges(length in 1_u64..100, after in 0_u64..100, at in 0_u64..300) {
            let window = OutageWindow { length: secs(length), after: secs(after) };
            prop_assert_eq!(window.contains(secs(at)), at >= after && at < after + length);
            // Sleeping from edge to edge misses no change.
            let next = window.next_edge(secs(at)).map(|edge| edge.as_secs());
            let changes = |t: &u64| window.contains(secs(*t)) != window.contains(secs(*t - 1));
            prop_assert_eq!((at + 1..=after + length).find(changes), next);
        }
    }

    #[test]
    fn styles_have_the_names_of_the_switch() {
        for style in OutageStyle::ALL {
            assert_eq!(style.to_string().parse(), Ok(style));
        }
        let error = "down".parse::<OutageStyle>().unwrap_err().to_string();
        assert_eq!(error, "`down` is not a kind of outage; it is unavailable, refuse or hang");
    }
}
