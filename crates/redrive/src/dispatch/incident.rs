//! Figures of an outage, from the opening of the breaker until its permits are back at their limit.

#![warn(missing_docs)]

use std::time::Duration;

use redrive_core::window::Window;
use redrive_core::{Reason, Time};

/// One outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident {
    /// When it began.
    pub from: Time,
    /// When the breaker closed.
    pub until: Option<Time>,
    /// Failed attempts: those that opened the breaker, those in flight then, and probes.
    pub failed: u64,
    /// Failed probes.
    pub failed_probes: u64,
    /// Messages that became dead letters since it opened, for whatever reason.
    pub dead: u64,
    /// Of these, messages that were exhausted, which the outage gate is meant to prevent.
    pub dead_for_outage: u64,
    /// Of these, messages whose time was up.
    pub expired: u64,
    /// The most calls that started within one second after it closed.
    pub peak_per_second: u64,
    /// The most calls that ran at once after it closed.
    pub peak_running: usize,
    /// Whether the permits are back at their limit, so that nothing is counted any more.
    pub is_over: bool,
}

/// Records the figures of the current or last incident.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    incident: Option<Incident>,
    /// Recent failed attempts while the breaker is closed; if it opens, they count towards the outage.
    lately: Window,
    /// The start of the current second since the breaker closed, and the calls that started in it.
    second: Time,
    in_second: u64,
    good_calls: u64,
    good_ms: u64,
}

/// Successful calls over which the duration is averaged; then older ones count half.
const AVERAGED: u64 = 4_096;

impl Recording {
    /// `within` is how far back failures count towards an outage that is detected now.
    pub(super) fn new(within: Duration) -> Self {
        let (second, in_second) = (Time::ZERO, 0);
        let lately = Window::new(within);
        Self { incident: None, lately, second, in_second, good_calls: 0, good_ms: 0 }
    }

    /// The breaker opened because of `failed` first attempts; other attempts may have failed meanwhile.
    pub(super) fn opened(&mut self, from: Time, failed: u32) {
        let failed = failed.max(self.lately.sum(from).failed);
        self.incident = Some(Incident {
            from,
            until: None,
            failed: u64::from(failed),
            failed_probes: 0,
            dead: 0,
            dead_for_outage: 0,
            expired: 0,
            peak_per_second: 0,
            peak_running: 0,
            is_over: false,
        });
    }

    pub(super) fn closed(&mut self, now: Time) {
        if let Some(incident) = &mut self.incident {
            incident.until = Some(now);
        }
        (self.second, self.in_second) = (now, 0);
        self.lately.clear();
    }

    pub(super) fn recovered(&mut self, now: Time) {
        self.second_ends(now);
        if let Some(incident) = &mut self.incident {
            incident.is_over |= incident.until.is_some();
        }
    }

    pub(super) fn failed(&mut self, is_probe: bool, now: Time) {
        match self.incident.as_mut().filter(|incident| incident.until.is_none()) {
            Some(incident) => {
                incident.failed += 1;
                incident.failed_probes += u64::from(is_probe);
            }
            None => self.lately.add(now, true),
        }
    }

    pub(super) fn died(&mut self, reason: Reason) {
        let Some(incident) = self.incident.as_mut().filter(|incident| !incident.is_over) else { return };
        incident.dead += 1;
        match reason {
            Reason::TtlExceeded | Reason::HoldExpired => incident.expired += 1,
            Reason::MaxRetries | Reason::BudgetExhausted if incident.until.is_none() => {
                incident.dead_for_outage += 1;
            }
            _ => {}
        }
    }

    /// A call starts; `running` includes it.
    pub(super) fn started(&mut self, running: usize, now: Time) {
        let Some(incident) = self.incident.as_mut().filter(|one| !one.is_over && one.until.is_some()) else {
            return;
        };
        incident.peak_running = incident.peak_running.max(running);
        if now.since(self.second) >= Duration::from_secs(1) || now < self.second {
            self.second_ends(now);
        }
        self.in_second += 1;
    }

    fn second_ends(&mut self, now: Time) {
        if let Some(incident) = &mut self.incident {
            incident.peak_per_second = incident.peak_per_second.max(self.in_second);
        }
        (self.second, self.in_second) = (now, 0);
    }

    pub(super) fn took(&mut self, took: Duration) {
        self.good_calls += 1;
        self.good_ms += took.as_millis() as u64;
        if self.good_calls >= AVERAGED {
            (self.good_calls, self.good_ms) = (self.good_calls / 2, self.good_ms / 2);
        }
    }

    /// The average duration of a successful call.
    pub(super) fn call_took(&self) -> Option<Duration> {
        let micros = (self.good_ms * 1_000).checked_div(self.good_calls)?;
        Some(Duration::from_micros(micros))
    }

    pub(super) fn incident(&self) -> Option<Incident> {
        let peak = |incident: &Incident| incident.peak_per_second.max(self.in_second);
        self.incident.map(|incident| Incident { peak_per_second: peak(&incident), ..incident })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    #[test]
    fn an_outage_is_counted_from_its_opening_until_its_permits_are_back() {
        let mut recording = Recording::new(Duration::from_secs(10));
        recording.failed(false, at(0));
        recording.died(Reason::MaxRetries);
        assert_eq!(recording.incident(), None, "an ordinary day");
        (0..24).for_each(|_| recording.failed(false, at(0)));
        recording.opened(at(0), 20);
        recording.failed(false, at(1));
        recording.failed(true, at(500));
        recording.died(Reason::TtlExceeded);
        recording.died(Reason::Permanent);
        recording.started(1, at(500));
        recording.closed(at(1_000));
        recording.failed(false, at(1_100));
        (0..30).for_each(|n| recording.started(n, at(1_500)));
        (0..20).for_each(|n| recording.started(n, at(2_500)));
        recording.died(Reason::HoldExpired);
        recording.died(Reason::MaxRetries);
        recording.recovered(at(3_000));
        recording.started(64, at(9_000));
        recording.died(Reason::MaxRetries);
        let incident = recording.incident().unwrap();
        let expected = Incident {
            from: at(0),
            until: Some(at(1_000)),
            failed: 27,
            failed_probes: 1,
            dead: 4,
            dead_for_outage: 0,
            expired: 2,
            peak_per_second: 30,
            peak_running: 29,
            is_over: true,
        };
        assert_eq!(incident, expected);
    }

    #[test]
    fn the_length_of_a_call_follows_the_latest() {
        let mut recording = Recording::new(Duration::from_secs(10));
        assert_eq!(recording.call_took(), None);
        (0..10_000).for_each(|_| recording.took(Duration::from_millis(100)));
        (0..20_000).for_each(|_| recording.took(Duration::from_millis(10)));
        let took = recording.call_took().unwrap();
        assert!(took >= Duration::from_millis(10) && took < Duration::from_millis(12), "{took:?}");
    }
}
