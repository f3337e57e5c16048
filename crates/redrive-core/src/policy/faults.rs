//! What is wrong with a set of settings, and how to repair it.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use crate::text::duration::rough;

/// One fault: the key, its value, why it cannot work, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    /// The key as in the configuration, dotted for a table: `backoff.base`.
    pub key: String,
    /// The value as given.
    pub value: String,
    /// The index of the faulty item (0-based), if the value is a list.
    pub item: Option<usize>,
    /// What is wrong with it.
    pub problem: String,
    /// How to repair it.
    pub fix: String,
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  fix: {}", self.problem, self.fix)
    }
}

/// All faults found, in the order of the keys. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFaults(pub Vec<PolicyFault>);

impl fmt::Display for PolicyFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyFaults {}

/// Lets a caller take both a policy and a builder: converting a finished policy cannot fail.
impl From<Infallible> for PolicyFaults {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A setting that works, but probably not as intended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyWarning {
    /// Crashes this far apart are not counted together; only the attempt limit ends the loop.
    DelayPassesCrashWindow {
        /// The longest delay.
        longest: Duration,
        /// The window within which crashes count.
        window: Duration,
    },
    /// A retry whose delay exceeds the message's TTL is never made.
    DelayPassesTtl {
        /// The longest delay.
        longest: Duration,
        /// The age at which a message expires.
        ttl: Duration,
    },
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DelayPassesCrashWindow { longest, window } => write!(
                f,
                "longest delay {}, but the crash window is {}: a crash loop would never be seen",
                rough(*longest),
                rough(*window)
            ),
            Self::DelayPassesTtl { longest, ttl } => write!(
                f,
                "longest delay {}, but the ttl is {}: a retry after such a delay is never made",
                rough(*longest),
                rough(*ttl)
            ),
        }
    }
}
