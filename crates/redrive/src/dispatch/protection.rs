//! The protection of a sink: breaker, pulse, ramp-up, retry budget and dead-letter guard of one pipeline.
//!
//! The machine reports the end of each call and asks how many may start; the rules themselves are in `redrive_core`.

use std::collections::VecDeque;
use std::time::Duration;

use redrive_core::blocked_spans::BlockedSpans;
use redrive_core::breaker::{Breaker, BreakerChange, BreakerSettings, BreakerState, Retried, Sign};
use redrive_core::budget::RetryBudget;
use redrive_core::decide::RECONNECTS_MAX;
use redrive_core::guard::{Flood, Guard, GuardSettings};
use redrive_core::pulse::{Pulse, Stopped};
use redrive_core::ramp::Ramp;
use redrive_core::reload::{Reload, UsualRate};
use redrive_core::{Budget, Class, FailureKind, Health, Meta, Policy, Reason, Time};

use super::health::{HealthChange, HealthEntry, HealthFigures};
use super::incident::Recording;
use super::resets::ResetFigures;
use super::saved_health;
use super::shared_wait::{AskedWait, Over, SharedWait};
use crate::engine::Delivery;
use crate::failure::Failure;
use crate::settle::{self, Views};

/// How many changes the history keeps.
const HISTORY_MAX: usize = 16;
/// Waits of at least this length are logged; shorter ones may come every second.
const LOGGED_FROM: Duration = Duration::from_secs(10);
/// How many changes may wait to be fetched; the oldest are dropped first.
const UNHEARD_MAX: usize = 256;

/// An operator's order for the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerOrder {
    /// End the cooldown and send probes at once.
    Probe,
    /// Close it without probing.
    Close,
}

/// Settings of the protection.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProtectionSettings {
    pub breaker: BreakerSettings,
    pub guard: GuardSettings,
    /// Whether all messages go to one endpoint, so that a Retry-After for one applies to all.
    pub one_endpoint: bool,
    /// Whether each message names its endpoint. Then the behaviour of one endpoint says nothing about the others,
    /// except that our key was refused, which is the same for all.
    pub many_endpoints: bool,
}

impl ProtectionSettings {
    pub fn off() -> Self {
        Self { breaker: BreakerSettings::off(), guard: GuardSettings::off(), ..Self::default() }
    }
}

/// How a call may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Free,
    Probe,
    /// The message opened the breaker; another one must be the probe.
    Another,
    Gated,
}

/// The end of a call, as far as it concerns the sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallEnd {
    pub(super) message: u64,
    pub(super) which: Which,
    pub(super) is_probe: bool,
    pub(super) evidence: CallEvidence,
}

/// Which attempt of its message a call was, as far as the breaker is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The first one that says anything about the sink.
    First,
    /// The first one since a replay.
    FirstSinceReplay,
    Later {
        first_failed: Option<Time>,
    },
}

impl Which {
    pub(super) fn of(meta: &Meta) -> Self {
        // A call on a stale connection says nothing.
        let is_first = meta.attempts == 0 && meta.uncounted == meta.reconnects;
        match (is_first, meta.replays) {
            (true, 0) => Self::First,
            (true, _) => Self::FirstSinceReplay,
            (false, _) => Self::Later { first_failed: meta.first_failed },
        }
    }

    /// Whether it counts for a breaker, given its sign.
    pub(super) fn counts(self, sign: Sign) -> bool {
        !matches!(self, Self::Later { .. }) || sign.is_the_sinks()
    }
}

/// What a call tells about the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEvidence {
    Sign(Sign),
    /// The sink answers, but asked for a pause.
    Busy,
    Nothing,
}

#[derive(Debug)]
pub struct Protection {
    breaker: Breaker,
    pulse: Pulse,
    ramp: Option<Ramp>,
    usual: UsualRate,
    budget: RetryBudget,
    guard: Guard,
    limit: usize,
    one_endpoint: bool,
    many_endpoints: bool,
    halted: Option<Flood>,
    wait: SharedWait,
    blocked: BlockedSpans,
    recording: Recording,
    /// Whether the state for the next process has changed since it was written.
    is_unwritten: bool,
    written: saved_health::PulseWritten,
    history: VecDeque<HealthEntry>,
    unheard: Vec<HealthEntry>,
}

impl CallEvidence {
    /// The evidence in a failure, given the message's state before it.
    pub(super) fn of(failure: &Failure, before: &Meta) -> Self {
        match failure.class() {
            _ if failure.is_uncalled() => Self::Nothing,
            Class::Transient => Self::Sign(Sign::Bad(failure.kind())),
            // The sink has answered; the message is at fault.
            Class::Permanent | Class::Gone => Self::Sign(Sign::Good),
            Class::Credential => Self::Sign(Sign::Credential),
            Class::RateLimited => Self::Busy,
            Class::Reconnect if before.reconnects >= RECONNECTS_MAX => {
                Self::Sign(Sign::Bad(FailureKind::Refused))
            }
            Class::Reconnect | Class::Crash => Self::Nothing,
        }
    }
}

impl Protection {
    pub fn new(settings: &ProtectionSettings, policy: &Policy, limit: usize) -> Self {
        Self {
            breaker: Breaker::new(settings.breaker.clone()),
            pulse: Pulse::default(),
            ramp: None,
            usual: UsualRate::default(),
            budget: RetryBudget::new(policy.budget()),
            guard: Guard::new(settings.guard.clone()),
            limit,
            one_endpoint: settings.one_endpoint,
            many_endpoints: settings.many_endpoints,
            halted: None,
            wait: SharedWait::default(),
            blocked: BlockedSpans::default(),
            recording: Recording::new(settings.breaker.fast.window),
            is_unwritten: false,
            written: saved_health::PulseWritten::default(),
            history: VecDeque::new(),
            unheard: Vec::new(),
        }
    }

    pub(super) fn own(&mut self, owned: u32, all: u32) {
        self.budget.own(owned, all);
    }

    /// The sink's health and the budget, as a decision would see them now.
    pub fn views(&mut self, now: Time) -> Views {
        let health = match self.breaker.gate(now) {
            Some((by, retry_in)) => Health::Gated { by, retry_in },
            None if self.pulse.is_weak(now) => Health::Unhealthy { retry_in: Duration::ZERO },
            None => Health::Healthy,
        };
        Views { health, budget: self.budget.view(now) }
    }

    /// Whether the sink seems to have stopped just now, judged by when this message first failed since its last
    /// replay. If no other message failed since, that justifies one more attempt only.
    pub(super) fn has_stopped(&self, delivery: &Delivery, now: Time) -> bool {
        let meta = &delivery.meta;
        match settle::first_failed(delivery).map(|since| self.pulse.stopped(since, now)) {
            None | Some(Stopped::No) => false,
            Some(Stopped::ForOne) => meta.uncounted == meta.reconnects,
            Some(Stopped::ForSeveral) => true,
        }
    }

    /// Updates everything that depends on time.
    pub(super) fn tick(&mut self, now: Time) {
        let change = self.breaker.tick(now);
        self.breaker_changed(change, now);
        self.wait_on(now);
        if let Some(ramp) = &mut self.ramp {
            ramp.tick(now);
            if ramp.is_over() {
                self.ramp = None;
                self.recording.recovered(now);
            }
        }
    }

    /// A message received a Retry-After. If all messages go to one endpoint, all of them wait.
    pub(super) fn asked_to_wait(&mut self, wait: AskedWait, now: Time) {
        if !self.one_endpoint {
            return;
        }
        let change = HealthChange::AskedToWait(wait.clone());
        let is_long = wait.until.since(now) >= LOGGED_FROM;
        if self.wait.ask(wait) && is_long {
            self.note(change, now);
        }
        self.usual.note(now);
        self.blocked.block(now);
    }

    /// Ends the wait, on an operator's order.
    pub(super) fn lift_wait(&mut self, now: Time) {
        if self.wait.lift() {
            self.note(HealthChange::WaitLifted, now);
            self.begin_few(self.breaker.settings().probes, now);
        }
    }

    /// Ends the wait when it is over. After one that was cut short the sink may ask again, so a single call goes
    /// first.
    fn wait_on(&mut self, now: Time) {
        match self.wait.tick(now) {
            None => {}
            Some(Over::Served) => self.begin_few(self.breaker.settings().probes, now),
            Some(Over::Cut) => self.begin_few(1, now),
        }
    }

    /// Starts a ramp-up from `few` permits, as after an outage: the sink asked for the wait for a reason.
    fn begin_few(&mut self, few: u32, now: Time) {
        if self.breaker.is_closed() {
            self.blocked.unblock(now);
            self.ramp = Some(self.ramp_from(few, now));
        }
    }

    fn ramp_from(&self, few: u32, now: Time) -> Ramp {
        let share = Some(self.breaker.settings().reload.as_f64()).filter(|share| *share > 0.0);
        let reload = self.usual.per_second().zip(share).map(|(usual, share)| Reload::new(usual, share, now));
        Ramp::new(few, self.limit, now).with_reload(reload)
    }

    /// Whether the sink is known to accept nothing: its breaker is open, or it has asked for a pause and not answered
    /// since.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.is_open() || self.wait.is_unanswered()
    }

    /// How many more calls may start beside `running` ones.
    pub(super) fn room(&self, running: usize) -> usize {
        if self.halted.is_some() || self.wait.now().is_some() {
            return 0;
        }
        match (&self.ramp, self.breaker.is_closed()) {
            (_, false) => self.breaker.probes_wanted(),
            (Some(ramp), true) => ramp.room(running),
            (None, true) => usize::MAX,
        }
    }

    /// Whether all messages go to one endpoint.
    pub(super) fn is_one_endpoint(&self) -> bool {
        self.one_endpoint
    }

    /// Whether nothing but probes is sent.
    pub(super) fn is_gated(&self) -> bool {
        self.is_open() || self.wait.now().is_some()
    }

    pub(super) fn is_open(&self) -> bool {
        !self.breaker.is_closed()
    }

    /// Whether a message may start beside `running` calls.
    pub(super) fn admit(&mut self, message: u64, running: usize) -> Admission {
        if self.room(running) == 0 {
            return Admission::Gated;
        }
        if self.breaker.is_closed() {
            return Admission::Free;
        }
        if !self.breaker.may_probe(message) {
            return Admission::Another;
        }
        self.breaker.probe_started();
        Admission::Probe
    }

    /// Lets any message start, once room was checked. Returns whether it is a probe.
    pub(super) fn admit_anybody(&mut self) -> bool {
        let is_probe = !self.breaker.is_closed();
        if is_probe {
            self.breaker.probe_started();
        }
        is_probe
    }

    /// Records the end of a call. Returns whether the breaker opened.
    pub(super) fn ended(&mut self, end: CallEnd, now: Time) -> bool {
        let CallEnd { message, which, is_probe, evidence } = end;
        let is_good = evidence == CallEvidence::Sign(Sign::Good);
        if let Some(ramp) = &mut self.ramp
            && evidence != CallEvidence::Nothing
        {
            ramp.ended(is_good);
            ramp.tick(now);
        }
        if let CallEvidence::Sign(_) = evidence {
            self.pulse.beat(message, which == Which::First, is_good, now);
        }
        if is_good {
            if self.ramp.is_none() && self.breaker.is_closed() {
                self.usual.add(now);
            }
            self.wait.answered();
        } else if evidence != CallEvidence::Nothing {
            self.recording.failed(is_probe, now);
        }
        let says_nothing = matches!(evidence, CallEvidence::Sign(Sign::Bad(_)) | CallEvidence::Busy);
        let change = match if self.many_endpoints && says_nothing { CallEvidence::Nothing } else { evidence }
        {
            CallEvidence::Nothing if is_probe => {
                self.breaker.probe_came_to_nothing();
                None
            }
            _ if is_probe => self.breaker.probe_ended(message, is_good, now),
            CallEvidence::Sign(sign) => match which {
                Which::First => self.breaker.first_attempt(message, sign, now),
                Which::FirstSinceReplay => self.breaker.first_since_replay(message, sign, now),
                Which::Later { first_failed } => {
                    self.breaker.later_attempt(Retried { message, first_failed }, sign, now)
                }
            },
            CallEvidence::Busy | CallEvidence::Nothing => None,
        };
        let opened = matches!(change, Some(BreakerChange::Opened(_)));
        self.breaker_changed(change, now);
        opened
    }

    /// Carries out an operator's order. Returns the state before it.
    pub(super) fn order_breaker(&mut self, order: BreakerOrder, now: Time) -> BreakerState {
        let was = self.breaker.state();
        let change = match order {
            BreakerOrder::Probe => self.breaker.probe_now(now),
            BreakerOrder::Close => self.breaker.close(now),
        };
        self.breaker_changed(change, now);
        was
    }

    /// A probe was abandoned.
    pub(super) fn probe_given_up(&mut self) {
        self.breaker.probe_came_to_nothing();
    }

    fn breaker_changed(&mut self, change: Option<BreakerChange>, now: Time) {
        let Some(change) = change else { return };
        match change {
            BreakerChange::Opened(cause) => {
                self.ramp = None;
                self.usual.note(now);
                self.blocked.block(now);
                self.recording.opened(now, cause.failed);
            }
            BreakerChange::Closed { .. } => {
                self.ramp = Some(self.ramp_from(self.breaker.settings().probes, now));
                if self.wait.now().is_none() {
                    self.blocked.unblock(now);
                }
                self.recording.closed(now);
            }
            BreakerChange::Alert(_) | BreakerChange::Probing { .. } | BreakerChange::Reopened { .. } => {}
        }
        self.is_unwritten = true;
        let ramp = self.ramp.as_ref().map(|ramp| (ramp.permits(), ramp.limit()));
        self.note(HealthChange::Breaker { change, ramp }, now);
    }

    /// How long a message that was ready at `since` was kept from the sink, in milliseconds.
    fn kept_ms(&self, since: Time, now: Time) -> u64 {
        self.blocked.blocked_ms_between(since, now)
    }

    /// The total time for which a message was held, if it is held until `now`.
    pub(super) fn held_ms(&self, delivery: &Delivery, now: Time) -> u64 {
        let since = delivery.due.unwrap_or(delivery.meta.created);
        delivery.meta.held_ms.saturating_add(self.kept_ms(since, now))
    }

    /// Adds the time for which a message was held until `now` to its meta.
    pub(super) fn with_time_held(&self, mut delivery: Delivery, now: Time) -> Delivery {
        delivery.meta.held_ms = self.held_ms(&delivery, now);
        delivery
    }

    /// Restores the state of an earlier process: an open breaker, and the failures since the last success.
    pub(super) fn remember(&mut self, reminder: &[u8]) {
        let left = saved_health::read(reminder);
        self.pulse.resume(&left.pulse);
        if let Some(usual) = left.usual {
            self.usual.resume(usual);
        }
        let Some(open) = left.open else { return };
        self.breaker.reopen(&open);
        if self.is_open() {
            self.blocked.block(open.since);
            self.recording.opened(open.since, open.cause.failed);
        }
    }

    /// Whether the state for the next process has changed since the last call.
    pub(super) fn is_reminder_due(&mut self, now: Time) -> bool {
        std::mem::take(&mut self.is_unwritten) | self.written.is_due(&self.pulse, now)
    }

    /// The state for the next process.
    pub(super) fn reminder(&self, now: Time) -> Vec<u8> {
        saved_health::write(&saved_health::Left {
            open: self.breaker.still_open(now),
            pulse: self.pulse.since_success(now),
            usual: self.usual.per_second(),
        })
    }

    /// A call starts beside `running` others.
    pub(super) fn started(&mut self, running: usize, now: Time) {
        self.recording.started(running, now);
        if let Some(ramp) = &mut self.ramp {
            ramp.started();
        }
    }

    /// A successful call took this long.
    pub(super) fn took(&mut self, took: Duration) {
        self.recording.took(took);
    }

    pub(super) fn spend(&mut self, tokens: u32) {
        self.budget.spend(tokens);
    }

    pub(super) fn succeeded(&mut self, now: Time) {
        self.budget.succeeded();
        self.guard.ended(false, now);
    }

    pub(super) fn died(&mut self, reason: Reason, now: Time) {
        // An operator's decision says nothing about the sink or the message.
        if reason == Reason::Cancelled {
            return;
        }
        self.recording.died(reason);
        // A wait that is too long does not condemn the message, and a pause would only cause more of them.
        let waited = matches!(reason, Reason::TtlExceeded | Reason::HoldExpired | Reason::KeyBlocked);
        if waited || self.halted.is_some() {
            return;
        }
        if let Some(flood) = self.guard.ended(true, now) {
            self.halted = Some(flood);
            self.note(HealthChange::Flood(flood), now);
        }
    }

    /// The flood for which the guard has paused the pipeline.
    pub(super) fn halted(&self) -> Option<Flood> {
        self.halted
    }

    /// An operator resumed the pipeline; with `anyway`, the guard ignores the current flood.
    pub(super) fn resumed(&mut self, anyway: bool) {
        self.halted = None;
        self.guard.resumed(anyway);
    }

    pub(super) fn note(&mut self, change: HealthChange, at: Time) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(HealthEntry { at, change: change.clone() });
        self.tell(change, at);
    }

    /// Logs a change without adding it to the history.
    pub(super) fn tell(&mut self, change: HealthChange, at: Time) {
        if self.unheard.len() == UNHEARD_MAX {
            self.unheard.remove(0);
        }
        self.unheard.push(HealthEntry { at, change });
    }

    /// Appends the changes since the last call.
    pub(super) fn changes(&mut self, out: &mut Vec<HealthEntry>) {
        out.append(&mut self.unheard);
    }

    /// When time alone changes something.
    pub(super) fn next_wake(&self) -> Option<Time> {
        let ramp = || self.ramp.as_ref().and_then(Ramp::next_wake);
        self.wait.now().map(|wait| wait.until).or_else(|| self.breaker.next_wake()).or_else(ramp)
    }

    pub(super) fn figures(&mut self, now: Time) -> HealthFigures {
        let remaining = match self.budget.view(now) {
            Budget::Unlimited => None,
            Budget::Tokens { remaining, .. } => Some(remaining),
        };
        let permits = self.ramp.as_ref().map_or(self.limit, Ramp::permits);
        let wait = self.wait.now().cloned();
        HealthFigures {
            breaker: self.breaker.view(),
            permits: if self.is_open() || wait.is_some() { 0 } else { permits },
            limit: self.limit,
            wait,
            outage: self.pulse.outage(now),
            incident: self.recording.incident(),
            ramp: Ramp::forecast(self.breaker.settings().probes, self.limit),
            usual_per_second: self.usual.per_second(),
            reload: self.breaker.settings().reload,
            reload_per_second: self.ramp.as_ref().and_then(Ramp::per_second),
            call_took: self.recording.call_took(),
            endpoints: None,
            budget_remaining: remaining,
            flood: self.halted,
            suspects: 0,
            resets: ResetFigures::default(),
            history: self.history.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::guard::FLOOD_MIN;
    use redrive_core::policy::PolicyBuilder;

    use super::*;

    const NOW: Time = Time::from_millis(1_000_000);
    const LIMIT: usize = 64;

    fn protection(policy: &PolicyBuilder, one_endpoint: bool) -> Protection {
        let settings = ProtectionSettings { one_endpoint, ..ProtectionSettings::default() };
        Protection::new(&settings, &policy.build().unwrap(), LIMIT)
    }

    fn budget_of(protection: &mut Protection) -> Option<u32> {
        let remaining = match protection.views(NOW).budget {
            Budget::Unlimited => None,
            Budget::Tokens { remaining, .. } => Some(remaining),
        };
        assert_eq!(protection.figures(NOW).budget_remaining, remaining, "decisions and status say the same");
        remaining
    }

    #[test]
    fn a_spent_token_is_there_for_no_other_retry() {
        let mut protection = protection(&Policy::profile("tiered").retries_per_minute(10), true);
        assert_eq!(budget_of(&mut protection), Some(10));
        protection.spend(3);
        assert_eq!(budget_of(&mut protection), Some(7));
        protection.spend(9);
        assert_eq!(budget_of(&mut protection), Some(0), "never below zero");

        let mut unlimited = self::protection(&Policy::profile("tiered"), true);
        unlimited.spend(1_000);
        assert_eq!(budget_of(&mut unlimited), None);
    }

    #[test]
    fn successes_earn_tokens_and_a_share_of_the_partitions_is_a_share_of_the_budget() {
        let mut earned = protection(&Policy::profile("tiered").share_of_successes("50%"), true);
        earned.spend(10);
        assert_eq!(budget_of(&mut earned), Some(0));
        earned.succeeded(NOW);
        earned.succeeded(NOW);
        assert_eq!(budget_of(&mut earned), Some(1));

        let mut shared = protection(&Policy::profile("tiered").retries_per_minute(10), true);
        shared.own(1, 2);
        assert_eq!(budget_of(&mut shared), Some(5));
    }

    #[test]
    fn a_flood_of_dead_letters_stops_all_calls_but_what_was_cancelled_or_waited_too_long_is_none() {
        let mut protection = protection(&Policy::profile("tiered"), true);
        for reason in [Reason::Cancelled, Reason::TtlExceeded, Reason::HoldExpired, Reason::KeyBlocked] {
            (0..2 * FLOOD_MIN).for_each(|_| protection.died(reason, NOW));
            assert!(protection.halted().is_none() && protection.room(0) == usize::MAX, "{reason:?}");
        }
        (1..FLOOD_MIN).for_each(|_| protection.died(Reason::Permanent, NOW));
        assert!(protection.halted().is_none());
        protection.died(Reason::Permanent, NOW);
        assert_eq!(protection.halted().map(|flood| flood.dead), Some(FLOOD_MIN));
        assert_eq!((protection.room(0), protection.admit(1, 0)), (0, Admission::Gated));
        protection.resumed(false);
        assert_eq!((protection.room(0), protection.admit(1, 0)), (usize::MAX, Admission::Free));
    }

    #[test]
    fn a_retry_after_stops_all_calls_only_where_all_go_to_one_endpoint() {
        let until = NOW.plus(Duration::from_secs(30));
        let wait = AskedWait {
            since: NOW,
            until,
            asked: Duration::from_secs(30),
            message_id: "m".to_owned(),
            kind: FailureKind::Status(429),
        };
        let mut many = protection(&Policy::profile("tiered"), false);
        many.asked_to_wait(wait.clone(), NOW);
        assert_eq!(many.room(0), usize::MAX);

        let mut one = protection(&Policy::profile("tiered"), true);
        one.asked_to_wait(wait, NOW);
        assert_eq!((one.room(0), one.next_wake()), (0, Some(until)));
        one.tick(until);
        assert_eq!(one.room(0), BreakerSettings::default().probes as usize, "calls begin few");
    }
}
