//! Named sets of settings, as data. Every value can be overridden; the values are written as in the configuration.

use super::settings::{BackoffSettings, BudgetSettings, PolicySettings};
use crate::protection::failure_kind::Counted;
use crate::text::nearest::nearest;

/// A named set of settings. Text rather than values, so that the table reads like a configuration file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Its purpose, as a sentence for the reference.
    pub about: &'static str,
    /// How long retries wait.
    pub schedule: ProfileSchedule,
    /// The number of retries; `None` means one per tier.
    pub retries: Option<u32>,
    /// How delays are spread.
    pub jitter: &'static str,
    /// How delays that a receiver asked for are spread.
    pub retry_after_jitter: &'static str,
    /// The age at which a message expires.
    pub ttl: Option<&'static str>,
    /// Caps delays at this share of the remaining TTL.
    pub cap_ttl_share: Option<f64>,
    /// The retry budget.
    pub retries_per_minute: Option<u32>,
    /// What happens to a retry that the budget does not allow.
    pub on_exhausted: &'static str,
    /// How many attempts a replayed letter has.
    pub replay_attempts: Option<u32>,
    /// Whether a failed message blocks those behind it.
    pub mode: &'static str,
    /// What the slow window of the breaker counts.
    pub slow_counts: &'static [Counted],
}

/// The schedule of a profile, as text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProfileSchedule {
    /// One delay per retry.
    Tiers(&'static [&'static str]),
    /// Delays that grow up to a cap.
    Exponential {
        /// The first delay.
        base: &'static str,
        /// The factor between consecutive delays.
        multiplier: f64,
        /// The longest delay.
        cap: Option<&'static str>,
    },
    /// The same delay every time.
    Fixed(&'static str),
}

/// The profile used when none is named.
pub const DEFAULT: &str = "tiered";

const TIERED: Profile = Profile {
    name: DEFAULT,
    about: "General default for services you run: rides out a restart or a short outage, dead-letters within minutes.",
    schedule: ProfileSchedule::Tiers(&["5s", "30s", "5m"]),
    retries: None,
    jitter: "equal",
    retry_after_jitter: "10%",
    ttl: None,
    cap_ttl_share: None,
    retries_per_minute: None,
    on_exhausted: "defer",
    replay_attempts: None,
    mode: "non-blocking",
    slow_counts: &[Counted::Hundred(5), Counted::Timeout, Counted::Refused, Counted::Other],
};

const PUSH: Profile = Profile {
    name: "push",
    about: "Push notifications that expire after an hour; `Retry-After` is followed exactly.",
    schedule: doubling("2s", Some("120s")),
    retries: Some(5),
    jitter: "full",
    // Use the push service's value exactly.
    retry_after_jitter: "0%",
    ttl: Some("1h"),
    // Implements the rule "503 > 20 % over 5 min pauses dispatch" literally.
    slow_counts: &[Counted::Status(503)],
    ..TIERED
};

/// Shared by queues with manual review: an exhausted budget dead-letters, and a replay gets three attempts.
const REVIEWED: Profile = Profile {
    jitter: "around(10%)",
    retry_after_jitter: "20%",
    on_exhausted: "dead_letter",
    replay_attempts: Some(3),
    ..TIERED
};

/// All profiles, in the order of the reference.
pub const ALL: [Profile; 12] = [
    TIERED,
    Profile {
        name: "tiered-short",
        about: "Like `tiered` when someone is waiting for the result: dead-letters after about half a minute.",
        schedule: ProfileSchedule::Tiers(&["1s", "5s", "30s"]),
        ..TIERED
    },
    Profile {
        name: "tiered-long",
        about: "Like `tiered` for services that take up to ten minutes to recover.",
        schedule: ProfileSchedule::Tiers(&["10s", "1m", "10m"]),
        ..TIERED
    },
    Profile {
        name: "apns-worker",
        about: "Workers that call a push gateway: quick retries with upward jitter.",
        schedule: doubling("1s", None),
        retries: Some(3),
        jitter: "plus(50%)",
        ..TIERED
    },
    PUSH,
    Profile {
        name: "push-critical",
        about: "Push notifications that only matter for five minutes, such as codes and alarms.",
        schedule: doubling("2s", None),
        retries: Some(3),
        ttl: Some("5m"),
        cap_ttl_share: Some(0.5),
        ..PUSH
    },
    Profile {
        name: "push-campaign",
        about: "Bulk push notifications that may arrive any time within a day.",
        retries: Some(7),
        ttl: Some("24h"),
        ..PUSH
    },
    Profile {
        name: "emails",
        about: "E-mails: a few quick retries, then manual review.",
        schedule: doubling("2s", None),
        retries: Some(3),
        ..REVIEWED
    },
    Profile {
        name: "webhooks",
        about: "Webhooks whose dead letters are reviewed promptly: gives up after about three minutes.",
        schedule: doubling("5s", None),
        retries: Some(5),
        ..REVIEWED
    },
    // The first five steps are common among webhook senders; the last two extend the schedule to about a day.
    Profile {
        name: "webhooks-day",
        about: "Webhooks to endpoints you do not run, such as your customers': keeps trying for about a day.",
        schedule: ProfileSchedule::Tiers(&["5s", "5m", "30m", "2h", "5h", "7h", "10h"]),
        jitter: "around(10%)",
        ..TIERED
    },
    Profile {
        name: "payments",
        about: "Payments: two slow retries under a shared budget, then manual review.",
        schedule: ProfileSchedule::Fixed("60s"),
        retries: Some(2),
        retries_per_minute: Some(100),
        ..REVIEWED
    },
    Profile {
        name: "worker",
        about: "Calls made inside a worker that waits for the result: retries in place, within seconds.",
        schedule: doubling("100ms", Some("2s")),
        retries: Some(4),
        jitter: "full",
        mode: "blocking",
        ..TIERED
    },
];

const fn doubling(base: &'static str, cap: Option<&'static str>) -> ProfileSchedule {
    ProfileSchedule::Exponential { base, multiplier: 2.0, cap }
}

/// The profile of this name.
pub fn find(name: &str) -> Option<&'static Profile> {
    ALL.iter().find(|profile| profile.name == name)
}

/// The profile name closest to a misspelt one.
pub fn nearest_name(name: &str) -> Option<&'static str> {
    nearest(name, ALL.iter().map(|profile| profile.name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_default_exists() {
        for (i, profile) in ALL.iter().enumerate() {
            assert_eq!(ALL.iter().position(|other| other.name == profile.name), Some(i));
            assert_eq!(find(profile.name).map(|found| found.name), Some(profile.name));
        }
        assert!(find(DEFAULT).is_some());
        assert_eq!(find("nope"), None);
        assert_eq!(nearest_name("webhook"), Some("webhooks"));
        assert_eq!(nearest_name("nope-at-all"), None);
    }

    #[test]
    fn retries_and_ttl_are_those_of_the_table() {
        let table: Vec<_> = ALL.iter().map(|profile| (profile.name, profile.retries, profile.ttl)).collect();
        assert_eq!(
            table,
            [
                ("tiered", None, None),
                ("tiered-short", None, None),
                ("tiered-long", None, None),
                ("apns-worker", Some(3), None),
                ("push", Some(5), Some("1h")),
                ("push-critical", Some(3), Some("5m")),
                ("push-campaign", Some(7), Some("24h")),
                ("emails", Some(3), None),
                ("webhooks", Some(5), None),
                ("webhooks-day", None, None),
                ("payments", Some(2), None),
                ("worker", Some(4), None),
            ]
        );
    }
}
