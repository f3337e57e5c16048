//! The breaker: detects a failing sink, blocks calls to it for a while, then probes carefully whether it is back.
//!
//! It counts distinct messages, so that retries of one bad message say nothing about the sink: first attempts,
//! including the first since a replay, and later ones whose outcome the message cannot have caused
//! ([`Sign::is_the_sinks`]). A message that fails again may simply be bad, and bad messages come back together, once
//! the rest of their batch is done. Two windows watch: a fast one for a sink that is down, a slow one, of first
//! attempts only, for a sink that degrades slowly. While it is open nothing is sent. After the cooldown a round of
//! probes is made, one at a time, each with a different message; a bad round doubles the cooldown, a good one closes
//! the breaker and resets the counts.

use std::time::Duration;

use crate::Time;
use crate::protection::failure_kind::FailureKind;
use crate::protection::window::{Sum, Window};
use crate::retry::views::Gate;

use super::later_attempts::{Again, Noted};
use super::settings::{BreakerSettings, SlowAction};

/// The result of an attempt as far as the sink is concerned. A rejected bad message counts as an answer like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The sink did its work.
    Good,
    /// The sink failed.
    Bad(FailureKind),
    /// Our own credential was refused.
    Credential,
}

impl Sign {
    /// Whether the message cannot be the cause: a success, a failed connection, or a refused credential.
    pub const fn is_the_sinks(self) -> bool {
        match self {
            Self::Good | Self::Credential => true,
            Self::Bad(kind) => kind.is_unconnected(),
        }
    }
}

/// A message that is attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retried {
    /// The number of the message.
    pub message: u64,
    /// When its first attempt failed, which was counted at that time.
    pub first_failed: Option<Time>,
}

/// The states of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls are made.
    Closed,
    /// No calls are made until the cooldown ends.
    Open,
    /// Probes are made.
    HalfOpen,
}

impl BreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The name in metrics and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What made it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Calls that failed.
    pub failed: u32,
    /// Calls that were counted.
    pub of: u32,
    /// The window they were counted in.
    pub within: Duration,
    /// Which rule opened it.
    pub by: Gate,
    /// The last failure before it opened.
    pub last: Option<FailureKind>,
}

/// A change of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// It opened.
    Opened(Cause),
    /// The slow window exceeds its limit, and is set to alert only.
    Alert(Cause),
    /// A round of probes begins.
    Probing {
        /// The number of the round, from 1.
        round: u32,
    },
    /// The probes failed.
    Reopened {
        /// The number of the round.
        round: u32,
        /// When the next round begins.
        next_probe: Time,
    },
    /// It closed after a good round of probes, or by hand (then without probes).
    Closed {
        /// Probes of the last round that succeeded.
        good: u32,
        /// Probes of the whole incident.
        probes: u32,
        /// Rounds of the whole incident.
        rounds: u32,
        /// How long it was open.
        open_for: Duration,
    },
}

/// A snapshot of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// Whether it can open at all.
    pub enabled: bool,
    /// The state.
    pub state: BreakerState,
    /// When it last opened or closed; `None` if it was never open.
    pub since: Option<Time>,
    /// When the next round of probes begins, while it is open.
    pub next_probe: Option<Time>,
    /// Rounds of the current or last incident.
    pub rounds: u32,
    /// Probes of the current or last incident.
    pub probes: u32,
    /// Why it opened, while it is open.
    pub cause: Option<Cause>,
}

/// The state of an open breaker that survives a restart, so that the next process does not have to detect the outage
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillOpen {
    /// When it opened.
    pub since: Time,
    /// When the next round of probes begins.
    pub next_probe: Time,
    /// Rounds of probes so far.
    pub rounds: u32,
    /// Probes so far.
    pub probes: u32,
    /// Why it opened.
    pub cause: Cause,
}

/// Opens when too many calls fail, and closes again when probes succeed.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    fast: Window,
    slow: Window,
    /// Later attempts counted in the fast window.
    again: Again,
    state: CircuitState,
    /// Messages not preferred as probes: the one that opened it, and the probes of this round. Bounded by the number of
    /// probes.
    heard: Vec<u64>,
    /// Those of them that were already turned away in this round.
    turned_away: Vec<u64>,
    cause: Option<Cause>,
    since: Option<Time>,
    rounds: u32,
    probes: u32,
    credentials: u32,
    alerted: bool,
}

#[derive(Clone, Copy, Debug)]
enum CircuitState {
    Closed,
    Open { until: Time },
    HalfOpen { running: u32, good: u32, bad: u32 },
}

impl Breaker {
    /// A closed breaker.
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            fast: Window::new(settings.fast.window),
            slow: Window::new(settings.slow.window),
            again: Again::default(),
            settings,
            state: CircuitState::Closed,
            heard: Vec::new(),
            turned_away: Vec::new(),
            cause: None,
            since: None,
            rounds: 0,
            probes: 0,
            credentials: 0,
            alerted: false,
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &BreakerSettings {
        &self.settings
    }

    /// The current state.
    pub fn state(&self) -> BreakerState {
        match self.state {
            CircuitState::Closed => BreakerState::Closed,
            CircuitState::Open { .. } => BreakerState::Open,
            CircuitState::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Records a first attempt of `message`. While the breaker is open, the result is that of a call already in flight,
    /// and is ignored.
    pub fn first_attempt(&mut self, message: u64, sign: Sign, now: Time) -> Option<BreakerChange> {
        if !self.settings.enabled || !matches!(self.state, CircuitState::Closed) {
            return None;
        }
        let (failed, counted) = match sign {
            Sign::Good => (false, false),
            Sign::Credential => (true, false),
            Sign::Bad(kind) => (true, self.settings.slow.counts.iter().any(|counts| counts.matches(kind))),
        };
        self.fast.add(now, failed);
        self.slow.add(now, counted);
        if !failed {
            return None;
        }
        self.credentials = self.credentials.saturating_add(u32::from(sign == Sign::Credential));
        let last = if let Sign::Bad(kind) = sign { Some(kind) } else { None };
        if let Some(change) = self.open_if_fast(message, last, now) {
            return Some(change);
        }
        let slow = self.slow.sum(now);
        let too_many = slow.calls >= self.settings.fast.min
            && self.slow.is_full(now)
            && slow.exceeds(self.settings.slow.failures);
        if !too_many {
            self.alerted = false;
            return None;
        }
        match self.settings.slow.action {
            SlowAction::Open => Some(self.open(message, slow, self.settings.slow.window, last, now)),
            SlowAction::Alert if self.alerted => None,
            SlowAction::Alert => {
                self.alerted = true;
                let within = self.settings.slow.window;
                let (failed, of) = (slow.failed, slow.calls);
                Some(BreakerChange::Alert(Cause { failed, of, within, by: Gate::Breaker, last }))
            }
        }
    }

    /// Records the first attempt since a replay. It counts like any other first attempt, but at most once per message
    /// within the fast window.
    pub fn first_since_replay(&mut self, message: u64, sign: Sign, now: Time) -> Option<BreakerChange> {
        if !self.settings.enabled || !matches!(self.state, CircuitState::Closed) {
            return None;
        }
        match self.again.note(message, sign != Sign::Good, self.settings.fast.window, now) {
            Noted::New => self.first_attempt(message, sign, now),
            Noted::Same | Noted::Other { .. } => None,
        }
    }

    /// Records a later attempt. Each message counts once within the fast window, with its latest outcome, and only if
    /// the message cannot be the cause.
    pub fn later_attempt(&mut self, retried: Retried, sign: Sign, now: Time) -> Option<BreakerChange> {
        if !self.settings.enabled || !matches!(self.state, CircuitState::Closed) || !sign.is_the_sinks() {
            return None;
        }
        let Retried { message, first_failed } = retried;
        let window = self.settings.fast.window;
        // Its first attempt is still in the window and counts.
        if first_failed.is_some_and(|at| now >= at && now.since(at) < window) {
            return None;
        }
        let failed = sign != Sign::Good;
        match self.again.note(message, failed, window, now) {
            Noted::New => self.fast.add(now, failed),
            Noted::Same => return None,
            Noted::Other { counted_at } => self.fast.amend(counted_at, failed),
        }
        if !failed {
            return None;
        }
        self.credentials = self.credentials.saturating_add(u32::from(sign == Sign::Credential));
        let last = if let Sign::Bad(kind) = sign { Some(kind) } else { None };
        self.open_if_fast(message, last, now)
    }

    fn open_if_fast(&mut self, message: u64, last: Option<FailureKind>, now: Time) -> Option<BreakerChange> {
        let fast = self.fast.sum(now);
        let is_down = fast.calls >= self.settings.fast.min && fast.reaches(self.settings.fast.failures);
        is_down.then(|| self.open(message, fast, self.settings.fast.window, last, now))
    }

    fn open(
        &mut self,
        message: u64,
        sum: Sum,
        within: Duration,
        last: Option<FailureKind>,
        now: Time,
    ) -> BreakerChange {
        let by = if self.credentials * 2 > sum.failed { Gate::Credential } else { Gate::Breaker };
        let cause = Cause { failed: sum.failed, of: sum.calls, within, by, last };
        (self.rounds, self.probes, self.credentials) = (0, 0, 0);
        self.heard = vec![message];
        self.turned_away.clear();
        self.cause = Some(cause);
        self.since = Some(now);
        self.state = CircuitState::Open { until: now.plus(self.settings.cooldown_of(0)) };
        BreakerChange::Opened(cause)
    }

    /// Advances the time: begins a round of probes once the cooldown is over.
    pub fn tick(&mut self, now: Time) -> Option<BreakerChange> {
        let CircuitState::Open { until } = self.state else { return None };
        if now < until {
            // A clock that was set back must not extend the cooldown.
            let longest = now.plus(self.settings.cooldown_of(self.rounds));
            self.state = CircuitState::Open { until: until.min(longest) };
            return None;
        }
        self.rounds = self.rounds.saturating_add(1);
        // Only the message that opened it or failed last is kept as a last choice; the others of an earlier round may
        // probe again.
        self.heard.drain(..self.heard.len().saturating_sub(1));
        self.turned_away.clear();
        self.state = CircuitState::HalfOpen { running: 0, good: 0, bad: 0 };
        Some(BreakerChange::Probing { round: self.rounds })
    }

    /// Whether calls may be made without limit.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, CircuitState::Closed)
    }

    /// How many probes may start now: one, if none is running and the round needs more.
    pub fn probes_wanted(&self) -> usize {
        usize::from(matches!(self.state, CircuitState::HalfOpen { running: 0, .. }))
    }

    /// Whether this message may be a probe. One that was used before is turned away once per round; if it comes back,
    /// there is no other candidate, so it may.
    pub fn may_probe(&mut self, message: u64) -> bool {
        if !self.heard.contains(&message) || self.turned_away.contains(&message) {
            return true;
        }
        self.turned_away.push(message);
        false
    }

    /// Records the start of a probe.
    pub fn probe_started(&mut self) {
        if let CircuitState::HalfOpen { running, .. } = &mut self.state {
            *running += 1;
            self.probes = self.probes.saturating_add(1);
        }
    }

    /// Records a probe without a usable result, such as a stale connection or a cancelled call.
    pub fn probe_came_to_nothing(&mut self) {
        if let CircuitState::HalfOpen { running, .. } = &mut self.state {
            *running = running.saturating_sub(1);
        }
    }

    /// Records the result of a probe; returns the resulting change.
    pub fn probe_ended(&mut self, message: u64, is_good: bool, now: Time) -> Option<BreakerChange> {
        let CircuitState::HalfOpen { running, good, bad } = &mut self.state else { return None };
        *running = running.saturating_sub(1);
        let count = if is_good { good } else { bad };
        *count += 1;
        let CircuitState::HalfOpen { good, bad, .. } = self.state else { return None };
        self.heard.retain(|heard| *heard != message);
        self.heard.push(message);
        self.turned_away.retain(|turned_away| *turned_away != message);
        if bad >= self.settings.bad_enough() {
            let until = now.plus(self.settings.cooldown_of(self.rounds));
            self.state = CircuitState::Open { until };
            return Some(BreakerChange::Reopened { round: self.rounds, next_probe: until });
        }
        if good + bad < self.settings.probes.max(1) {
            return None;
        }
        Some(self.closed(good, good + bad, now))
    }

    fn closed(&mut self, good: u32, probes: u32, now: Time) -> BreakerChange {
        let open_for = self.since.map_or(Duration::ZERO, |since| now.since(since));
        self.state = CircuitState::Closed;
        self.since = Some(now);
        self.heard.clear();
        self.fast.clear();
        self.slow.clear();
        self.again.clear();
        BreakerChange::Closed { good, probes, rounds: self.rounds, open_for }
    }

    /// Ends the cooldown at an operator's request. Does nothing unless it is open.
    pub fn probe_now(&mut self, now: Time) -> Option<BreakerChange> {
        let CircuitState::Open { .. } = self.state else { return None };
        self.state = CircuitState::Open { until: now };
        self.tick(now)
    }

    /// Closes without probes, because an operator knows that the sink is back. Does nothing if it is closed.
    pub fn close(&mut self, now: Time) -> Option<BreakerChange> {
        (!self.is_closed()).then(|| self.closed(0, 0, now))
    }

    /// The state that the next process needs; `None` while it is closed.
    pub fn still_open(&self, now: Time) -> Option<StillOpen> {
        let next_probe = match self.state {
            CircuitState::Closed => return None,
            CircuitState::Open { until } => until,
            // An interrupted round is repeated.
            CircuitState::HalfOpen { .. } => now,
        };
        let (since, cause) = self.since.zip(self.cause)?;
        Some(StillOpen { since, next_probe, rounds: self.rounds, probes: self.probes, cause })
    }

    /// Restores the open state of an earlier process. Does nothing if the breaker has been turned off since.
    pub fn reopen(&mut self, left: &StillOpen) {
        if !self.settings.enabled {
            return;
        }
        let StillOpen { since, next_probe, rounds, probes, cause } = *left;
        (self.rounds, self.probes) = (rounds, probes);
        (self.since, self.cause) = (Some(since), Some(cause));
        self.state = CircuitState::Open { until: next_probe };
    }

    /// Why all messages are gated, and for how long.
    pub fn gate(&self, now: Time) -> Option<(Gate, Duration)> {
        let by = self.cause.map_or(Gate::Breaker, |cause| cause.by);
        match self.state {
            CircuitState::Closed => None,
            CircuitState::Open { until } => Some((by, until.since(now))),
            CircuitState::HalfOpen { .. } => Some((by, Duration::ZERO)),
        }
    }

    /// When [`Self::tick`] must be called next.
    pub fn next_wake(&self) -> Option<Time> {
        if let CircuitState::Open { until } = self.state { Some(until) } else { None }
    }

    /// A snapshot for metrics and the API.
    pub fn view(&self) -> BreakerView {
        BreakerView {
            enabled: self.settings.enabled,
            state: self.state(),
            since: self.since,
            next_probe: self.next_wake(),
            rounds: self.rounds,
            probes: self.probes,
            cause: self.cause,
        }
    }
}
