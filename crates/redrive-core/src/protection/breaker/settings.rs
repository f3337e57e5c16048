//! When a breaker opens, for how long, and how it probes.

use std::time::Duration;

use crate::Ratio;
use crate::policy::profiles::Profile;
use crate::protection::failure_kind::Counted;

/// When the breaker of a sink opens, and how it closes again.
///
/// ```
/// use redrive_core::BreakerSettings;
/// use std::time::Duration;
///
/// let breaker = BreakerSettings {
///     cooldown: Duration::from_secs(10),
///     cooldown_max: Duration::from_secs(60),
///     ..BreakerSettings::default()
/// };
/// let cooldowns: Vec<u64> = (0..5).map(|round| breaker.cooldown_of(round).as_secs()).collect();
/// assert_eq!(cooldowns, [10, 20, 40, 60, 60]);
/// assert!(!BreakerSettings::off().enabled);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Whether it can open at all.
    pub enabled: bool,
    /// Detects an outage within seconds.
    pub fast: FastWindow,
    /// Detects a slow decline.
    pub slow: SlowWindow,
    /// How long it stays open before the first probes.
    pub cooldown: Duration,
    /// The longest cooldown; each failed round doubles it up to this.
    pub cooldown_max: Duration,
    /// The number of probes per round.
    pub probes: u32,
    /// Calls per second right after an outage, as a share of those before it; zero is no limit. It grows by half of the
    /// rate before the outage every 30 seconds.
    pub reload: Ratio,
}

/// The window that detects an outage within seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastWindow {
    /// How far it looks back.
    pub window: Duration,
    /// The share of messages that must fail, at least.
    pub failures: Ratio,
    /// The minimum number of messages.
    pub min: u32,
}

/// The window that detects a slow decline. It judges only once it is full: a ratio over 30 s says little about five
/// minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowWindow {
    /// How far it looks back.
    pub window: Duration,
    /// The share of messages that must be exceeded.
    pub failures: Ratio,
    /// Which failures it counts.
    pub counts: Vec<Counted>,
    /// What it does when the share is exceeded.
    pub action: SlowAction,
}

/// What the slow window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowAction {
    /// Opens the breaker.
    Open,
    /// Only raises an alert.
    Alert,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            fast: FastWindow { window: Duration::from_secs(10), failures: Ratio::percent(50), min: 20 },
            slow: SlowWindow {
                window: Duration::from_mins(5),
                failures: Ratio::percent(20),
                counts: vec![Counted::Hundred(5), Counted::Timeout, Counted::Refused, Counted::Other],
                action: SlowAction::Open,
            },
            cooldown: Duration::from_secs(30),
            cooldown_max: Duration::from_mins(5),
            probes: 5,
            reload: Ratio::percent(200),
        }
    }
}

impl BreakerSettings {
    /// The settings for a profile.
    pub fn of_profile(profile: &Profile) -> Self {
        let mut settings = Self::default();
        settings.slow.counts = profile.slow_counts.to_vec();
        settings
    }

    /// A breaker that never opens.
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    /// Cooldown before probe round `round` (0-based); doubles up to `cooldown_max`.
    pub fn cooldown_of(&self, round: u32) -> Duration {
        self.cooldown.saturating_mul(1 << round.min(16)).min(self.cooldown_max.max(self.cooldown))
    }

    /// How many failed probes in one round show that the sink is not back.
    pub(crate) fn bad_enough(&self) -> u32 {
        let share = u64::from(self.probes) * self.fast.failures.basis_points();
        (share.div_ceil(10_000) as u32).clamp(1, self.probes.max(1))
    }
}
