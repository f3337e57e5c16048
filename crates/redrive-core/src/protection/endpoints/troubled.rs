//! The endpoints or origins that have failed, each with a breaker and its Retry-After.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::call::EndpointCall;
use super::saved_cooldown::Cooldown;
use super::tenant_outcomes::TenantOutcomes;
use super::waits::{EndpointWait, Unit, WaitReason};
use crate::Time;
use crate::protection::breaker::{BreakerSettings, SlowAction};
use crate::protection::window::{Sum, Window};

/// The maximum number of remembered endpoints; beyond it the one untouched for longest is forgotten.
pub const REMEMBERED_MAX: usize = 100_000;
/// How long other messages wait while a probe is in flight.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Ordered by when they were last touched.
#[derive(Clone, Debug)]
pub(super) struct Troubled {
    unit: Unit,
    known: HashMap<u64, EndpointTrouble>,
    touched: VecDeque<(u64, u64)>,
    touches: u64,
    /// Increases whenever a cooldown begins, changes or ends.
    changes: u64,
}

#[derive(Clone, Debug, Default)]
struct EndpointTrouble {
    began: Time,
    calls: u32,
    failed: u32,
    /// For an origin: the tenants of the window, instead of calls.
    tenants: TenantOutcomes,
    /// For an origin that is one service: its first attempts in the slow window.
    slow: Option<Box<Window>>,
    open_until: Option<Time>,
    probing: bool,
    rounds: u32,
    not_before: Time,
    /// Its last answer since it first failed.
    answered: Option<Time>,
    touch: u64,
}

impl Troubled {
    pub(super) fn new(unit: Unit) -> Self {
        Self { unit, known: HashMap::new(), touched: VecDeque::new(), touches: 0, changes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// How many may not be called now. Scans all.
    pub(super) fn waiting(&self, now: Time) -> usize {
        self.known.values().filter(|one| one.not_before(now).is_some()).count()
    }

    /// Which ones may not be called now, and why. Scans all.
    pub(super) fn waits(&self, now: Time) -> impl Iterator<Item = EndpointWait> {
        self.known.iter().filter_map(move |(number, trouble)| {
            let until = trouble.not_before(now)?;
            let asked = trouble.not_before > now && trouble.not_before == until;
            let (why, rounds) =
                if asked { (WaitReason::RetryAfter, 0) } else { (WaitReason::Breaker, trouble.rounds) };
            let (unit, number) = (self.unit, *number);
            Some(EndpointWait { unit, number, why, until: Some(until), rounds, queued: 0 })
        })
    }

    pub(super) fn not_before(&self, key: u64, now: Time) -> Option<Time> {
        self.known.get(&key)?.not_before(now)
    }

    /// How long the breaker stays open; zero once a probe may go.
    pub(super) fn open_for(&self, key: u64, now: Time) -> Option<Duration> {
        self.known.get(&key)?.open_until.map(|until| until.since(now))
    }

    pub(super) fn answered(&self, key: u64) -> Option<Time> {
        self.known.get(&key)?.answered
    }

    /// Ends every cooldown so that a probe may go at once. Returns how many there were.
    pub(super) fn probe_now(&mut self, now: Time) -> usize {
        let mut asked = 0;
        for trouble in self.known.values_mut().filter(|trouble| trouble.not_before(now).is_some()) {
            trouble.open_until = trouble.open_until.map(|until| until.min(now));
            trouble.not_before = trouble.not_before.min(now);
            asked += 1;
        }
        self.changes += asked as u64;
        asked
    }

    /// Ends every wait for a Retry-After.
    pub(super) fn lift_waits(&mut self) {
        self.known.values_mut().for_each(|trouble| trouble.not_before = Time::ZERO);
        self.changes += 1;
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.touched.clear();
        self.changes += 1;
    }

    /// The latest cooldowns, for the next process.
    pub(super) fn cooldowns(&self, now: Time) -> impl Iterator<Item = Cooldown> {
        self.touched.iter().rev().filter_map(move |(number, touch)| {
            let trouble = self.known.get(number).filter(|trouble| trouble.touch == *touch)?;
            let not_before = if trouble.not_before > now { trouble.not_before } else { Time::ZERO };
            let EndpointTrouble { open_until, rounds, .. } = *trouble;
            let (unit, number) = (self.unit, *number);
            let is_cooling = open_until.is_some() || not_before > Time::ZERO;
            is_cooling.then_some(Cooldown { unit, number, open_until, rounds, not_before })
        })
    }

    /// Restores a cooldown of an earlier process.
    pub(super) fn resume(&mut self, left: &Cooldown) {
        let trouble = self.touch(left.number, Time::ZERO);
        (trouble.open_until, trouble.rounds) = (left.open_until, left.rounds);
        trouble.not_before = left.not_before;
    }

    /// Records a request to slow down (429).
    pub(super) fn asked_to_wait(&mut self, key: u64, wait: Duration, now: Time) {
        let trouble = self.touch(key, now);
        trouble.not_before = trouble.not_before.max(now.plus(wait));
        self.changes += 1;
    }

    pub(super) fn started(&mut self, key: u64) {
        if let Some(trouble) = self.known.get_mut(&key) {
            trouble.probing = trouble.open_until.is_some();
        }
    }

    pub(super) fn ended(&mut self, key: u64, call: EndpointCall, settings: &BreakerSettings, now: Time) {
        let is_known = self.known.contains_key(&key);
        if !settings.enabled || (!is_known && call.is_good != Some(false)) {
            return;
        }
        let unit = self.unit;
        let trouble = self.touch(key, now);
        if call.is_good == Some(true) {
            trouble.answered = Some(now);
        }
        if trouble.open_until.is_some() {
            // An origin that answers is reachable, even if the answer is a failure for one tenant.
            let answers = unit == Unit::Origin && call.counts_as.is_none();
            let is_good = call.is_good.map(|is_good| is_good || answers);
            trouble.probe_ended(is_good, settings, now);
            if trouble.open_until.is_none() && trouble.not_before <= now {
                self.known.remove(&key);
            }
            self.changes += 1;
            return;
        }
        let Some(is_good) = call.is_good.filter(|_| call.counts) else { return };
        if trouble.count(unit, call, is_good, settings, now) && !is_good {
            trouble.open_until = Some(now.plus(settings.cooldown_of(0)));
            trouble.rounds = 0;
            self.changes += 1;
        }
    }

    /// The entry of an endpoint in trouble, created if there is none.
    fn touch(&mut self, key: u64, now: Time) -> &mut EndpointTrouble {
        self.touches += 1;
        let touch = self.touches;
        self.touched.push_back((key, touch));
        if self.touched.len() > 2 * REMEMBERED_MAX {
            let known = &self.known;
            self.touched.retain(|(key, touch)| known.get(key).is_some_and(|trouble| trouble.touch == *touch));
        }
        while self.known.len() >= REMEMBERED_MAX && !self.known.contains_key(&key) {
            let Some((oldest, touch)) = self.touched.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|trouble| trouble.touch == touch) {
                self.known.remove(&oldest);
            }
        }
        let trouble = self
            .known
            .entry(key)
            .or_insert_with(|| EndpointTrouble { began: now, ..EndpointTrouble::default() });
        trouble.touch = touch;
        trouble
    }
}

impl EndpointTrouble {
    fn not_before(&self, now: Time) -> Option<Time> {
        let cooldown = match self.open_until {
            // A probe is in flight.
            Some(_) if self.probing => Some(now.plus(PROBE_WAIT)),
            Some(until) if now < until => Some(until),
            _ => None,
        };
        cooldown.into_iter().chain((now < self.not_before).then_some(self.not_before)).max()
    }

    /// Counts a call. Returns whether enough failed: for an endpoint of its calls, for an origin of its tenants.
    fn count(
        &mut self,
        unit: Unit,
        call: EndpointCall,
        is_good: bool,
        settings: &BreakerSettings,
        now: Time,
    ) -> bool {
        let limit = &settings.fast;
        if now.since(self.began) >= limit.window || now < self.began {
            (self.began, self.calls, self.failed) = (now, 0, 0);
            self.tenants = TenantOutcomes::default();
        }
        match unit {
            Unit::Endpoint => {
                self.calls = self.calls.saturating_add(1);
                self.failed = self.failed.saturating_add(u32::from(!is_good));
                let sum = Sum { calls: self.calls, failed: self.failed };
                sum.calls >= limit.min && sum.reaches(limit.failures)
            }
            Unit::Origin => {
                let is_down = call.counts_as.is_some_and(|tenant| {
                    self.tenants.record(tenant, is_good, limit.min);
                    self.tenants.reach(limit)
                });
                // Evaluate both, so that both count the call.
                self.count_slow(call, settings, now) || is_down
            }
        }
    }

    /// Counts a first attempt at an origin that is one service. Returns whether too many failed in the slow window.
    fn count_slow(&mut self, call: EndpointCall, settings: &BreakerSettings, now: Time) -> bool {
        let Some(failed) = call.slow else { return false };
        let (limit, least) = (&settings.slow, settings.fast.min);
        let window = self.slow.get_or_insert_with(|| Box::new(Window::new(limit.window)));
        window.add(now, failed);
        if !failed || limit.action != SlowAction::Open {
            return false;
        }
        let sum = window.sum(now);
        sum.calls >= least && window.is_full(now) && sum.exceeds(limit.failures)
    }

    /// Handles a call that ended during the cooldown: the probe, or a call already in flight.
    fn probe_ended(&mut self, is_good: Option<bool>, settings: &BreakerSettings, now: Time) {
        if !self.probing {
            return;
        }
        self.probing = false;
        match is_good {
            None => {}
            // One success is enough: the concurrency limit per endpoint prevents overload.
            Some(true) => self.open_until = None,
            Some(false) => {
                self.rounds = self.rounds.saturating_add(1);
                self.open_until = Some(now.plus(settings.cooldown_of(self.rounds)));
            }
        }
    }
}

#[cfg(test)]
impl Troubled {
    pub(super) fn touched_len(&self) -> usize {
        self.touched.len()
    }

    pub(super) fn tenants_of(&self, key: u64) -> &TenantOutcomes {
        &self.known[&key].tenants
    }
}
