//! Stops purging when too many endpoints would be purged at once, because that is more likely a fault of the push
//! service, or ours.

use std::time::Duration;

use redrive_core::Time;
use serde_json::{Value, json};

/// The window over which purges are counted.
pub const WINDOW: Duration = Duration::from_mins(5);
/// Purging stops above this share of the active endpoints within the window.
pub const PERCENT_MAX: u64 = 2;
/// This many may be purged in a window whatever their share, since 2 % of a small table is less than one endpoint.
pub const FREE: u64 = 10;

const SLOTS: usize = 30;
const SLOT_MS: u64 = WINDOW.as_millis() as u64 / SLOTS as u64;

/// Why purging was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    pub at: Time,
    /// Purges within the window, including the one that was refused.
    pub purged: u64,
    /// Endpoints that were active when the window began.
    pub active: u64,
}

impl Stopped {
    /// It is unknown whether purging was stopped, because the log is damaged.
    pub const UNKNOWN: Self = Self { at: Time::ZERO, purged: 0, active: 0 };

    pub fn is_unknown(&self) -> bool {
        *self == Self::UNKNOWN
    }

    /// The share in percent, with one decimal.
    pub fn percent(&self) -> f64 {
        (self.purged as f64 / self.active.max(1) as f64 * 1000.0).round() / 10.0
    }

    pub fn to_json(&self) -> Value {
        json!({ "at_ms": self.at.as_millis(), "purged": self.purged, "active": self.active })
    }

    pub fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let at = Time::from_millis(number("at_ms")?);
        Some(Self { at, purged: number("purged")?, active: number("active")? })
    }
}

/// Counts purges over [`WINDOW`].
#[derive(Clone, Debug, Default)]
pub struct PurgeGuard {
    /// Slot numbers and their purges; the index is the slot number modulo [`SLOTS`].
    slots: [(u64, u64); SLOTS],
    stopped: Option<Stopped>,
}

impl PurgeGuard {
    /// Whether one more endpoint may be purged, given the number of active ones. The first refusal stops all further
    /// purges.
    pub fn allows(&mut self, active: u64, now: Time) -> bool {
        if self.stopped.is_some() {
            return false;
        }
        let recent = self.recent(now);
        let (purged, active) = (recent + 1, active + recent);
        if purged > FREE && purged * 100 > active * PERCENT_MAX {
            self.stopped = Some(Stopped { at: now, purged, active });
            return false;
        }
        true
    }

    /// Counts a purge, by this or another process.
    pub fn count(&mut self, at: Time) {
        let number = at.as_millis() / SLOT_MS;
        let slot = &mut self.slots[(number % SLOTS as u64) as usize];
        // Purges older than the window are ignored.
        if slot.0 < number {
            *slot = (number, 0);
        }
        slot.1 += u64::from(slot.0 == number);
    }

    fn recent(&self, now: Time) -> u64 {
        let number = now.as_millis() / SLOT_MS;
        let in_window = |slot: &&(u64, u64)| slot.0 + (SLOTS as u64) > number;
        self.slots.iter().filter(in_window).map(|slot| slot.1).sum()
    }

    pub fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// Adopts the state of another or an earlier process.
    pub fn set_stopped(&mut self, stopped: Option<Stopped>) {
        if stopped.is_none() {
            self.slots = Default::default();
        }
        self.stopped = stopped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(guard: &mut PurgeGuard, active: u64, now: Time) -> bool {
        let allowed = guard.allows(active, now);
        if allowed {
            guard.count(now);
        }
        allowed
    }

    fn secs(secs: u64) -> Time {
        Time::from_millis(1_700_000_000_000 + secs * 1000)
    }

    #[test]
    fn more_than_two_percent_within_five_minutes_stops_purging_until_it_is_resumed() {
        let mut guard = PurgeGuard::default();
        for purged in 0..20 {
            assert!(purge(&mut guard, 1000 - purged, secs(0)));
        }
        assert!(!purge(&mut guard, 980, secs(1)));
        assert_eq!(guard.stopped(), Some(Stopped { at: secs(1), purged: 21, active: 1000 }));
        assert_eq!(guard.stopped().unwrap().percent().to_string(), "2.1");
        assert!(!purge(&mut guard, 1_000_000, secs(7200)), "only a person lets it go on");
        guard.set_stopped(None);
        assert!(purge(&mut guard, 1000, secs(7200)));
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let mut guard = PurgeGuard::default();
        for second in (0..36_000).step_by(30) {
            assert!(purge(&mut guard, 500, secs(second)), "{second}: ten in five minutes are 2 %");
        }
    }

    #[test]
    fn a_few_may_go_from_a_small_table() {
        let mut guard = PurgeGuard::default();
        for _ in 0..FREE {
            assert!(purge(&mut guard, 3, secs(0)));
        }
        assert!(!purge(&mut guard, 3, secs(0)));
    }

    #[test]
    fn what_stopped_it_reads_back() {
        let stopped = Stopped { at: secs(0), purged: 21, active: 1000 };
        assert_eq!(Stopped::from_json(&stopped.to_json()), Some(stopped));
        assert_eq!(Stopped::from_json(&json!({})), None);
    }
}
