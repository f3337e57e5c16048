//! The path of one delivery: taken, started or settled without a start, ended, and settled or left waiting.

use std::time::Duration;

use redrive_core::breaker::Sign;
use redrive_core::endpoints::{Contact, Endpoint, EndpointCall};
use redrive_core::policy::Mode;
use redrive_core::time::millis;
use redrive_core::{
    Class, Decision, FailureKind, Health, Meta, Random, Reason, Time, expired, outlasts_hold, suspects,
};

use super::calls::{Call, CallId};
use super::health::HealthChange;
use super::machine::{Ended, Machine, Start};
use super::permits::Permit;
use super::protection::{Admission, CallEnd, CallEvidence, Which};
use super::resets::{Attribution, Closed, Turn};
use super::routes::Routed;
use super::shared_wait::AskedWait;
use super::unconfirmed::Undecided;
use crate::engine::{Delivery, Settlement, Suspect, Verdict};
use crate::failure::Failure;
use crate::settle::{self, Moment, Views};

/// How long the message that opened the breaker waits while other messages serve as probes.
const ANOTHER_PROBE: Duration = Duration::from_secs(5);
/// The number of resets possibly caused by another message that do not count as the last attempt. With the delays of
/// a deferral they take about a quarter of an hour.
const SHARED_RESETS_MAX: u32 = 8;

/// Whether an empty retry budget leads to a dead letter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    AtOnce,
    /// Once the sink is known to be up: no message may be dead-lettered for an outage that is not detected yet.
    OnceConfirmed,
    Never,
}

/// From taking a delivery to calling the handler.
impl Machine {
    /// Handles newly taken deliveries: most are started, some are settled without a start.
    pub fn taken(&mut self, deliveries: &mut Vec<Delivery>, now: Time, starts: &mut Vec<Start>) {
        self.meters.taken(deliveries);
        let sweep = self.sweep.is_on().then(|| self.meters.dead());
        self.taken_again(deliveries, now, starts);
        if let Some(dead) = sweep {
            self.sweep.looked((self.meters.dead() - dead) as usize);
        }
        let messages = self.suspects.take_new();
        if messages > 0 {
            self.protection.note(HealthChange::Suspected { messages }, now);
        }
    }

    /// Like [`Self::taken`], for deliveries that were taken before and have waited here since.
    fn taken_again(&mut self, deliveries: &mut Vec<Delivery>, now: Time, starts: &mut Vec<Start>) {
        for delivery in deliveries.drain(..) {
            if let Some(reason) = delivery.doomed {
                self.settle(settle::dead(delivery, reason, now), None);
            } else if expired(&delivery.meta, now) {
                let delivery = self.protection.with_time_held(delivery, now);
                self.settle(settle::dead(delivery, Reason::TtlExceeded, now), None);
            } else if self.protection.is_out_of_reach()
                && outlasts_hold(&self.policy, self.protection.held_ms(&delivery, now))
            {
                let delivery = self.protection.with_time_held(delivery, now);
                self.settle(settle::dead(delivery, Reason::HoldExpired, now), None);
            } else if let Some(suspect) = delivery.suspect.as_deref().copied() {
                self.suspect(delivery, suspect, now);
            } else if let Some(delivery) = self.admit_apart(delivery, now) {
                self.start(delivery, None, now, starts);
            }
        }
    }

    /// Queues a suspect until its turn, or dead-letters it if it has had its last one.
    fn suspect(&mut self, delivery: Delivery, suspect: Suspect, now: Time) {
        let Suspect { crashes, first_crash, last_crash } = suspect;
        self.suspects.met();
        if suspects::is_quarantined(crashes, self.policy.crash_threshold()) {
            let message_id = delivery.message.id().to_owned();
            self.protection
                .note(HealthChange::Quarantined { message_id, crashes, first_crash, last_crash }, now);
            return self.settle(settle::quarantined(delivery, &suspect, now), None);
        }
        self.suspects.push(delivery, crashes);
    }

    /// Returns the delivery if it may start, or queues it until its turn.
    fn admit_apart(&mut self, delivery: Delivery, now: Time) -> Option<Delivery> {
        // While the sink is unreachable there are only probes, which run one at a time anyway.
        if self.resets.is_idle() || self.stopping || self.paused || self.protection.is_out_of_reach() {
            return Some(delivery);
        }
        self.resets.admit(delivery, &self.policy, now)
    }

    /// Starts a delivery if everything allows it. `turn` is the endpoint at which it has its turn, if any.
    fn start(&mut self, delivery: Delivery, turn: Option<u64>, now: Time, starts: &mut Vec<Start>) {
        // If an engine hands out more than there was room for, or hands out during a stop, the surplus goes back.
        let Some(permit) = self.permits.take().filter(|_| !self.stopping) else {
            return self.settle(settle::released(delivery), None);
        };
        match self.protection.admit(delivery.receipt.number(), self.permits.used() - 1) {
            Admission::Free => {
                if let Some((delivery, to)) = self.route(delivery, turn, now) {
                    self.begin(Call { to, turn, ..Call::new(delivery, now, permit) }, starts);
                }
            }
            Admission::Probe => {
                self.begin(Call { is_probe: true, turn, ..Call::new(delivery, now, permit) }, starts);
            }
            Admission::Another => {
                let delivery = self.protection.with_time_held(delivery, now);
                let settlement = self.defer_unsent(delivery, now.plus(ANOTHER_PROBE), now);
                self.settle(settlement, None);
            }
            Admission::Gated => self.settle(settle::released(delivery), None),
        }
    }

    pub(super) fn begin(&mut self, call: Call, starts: &mut Vec<Start>) {
        self.meters.started(&call);
        let Delivery { message, meta, origin, .. } = &call.delivery;
        let (message, attempt, replays, origin) =
            (message.clone(), settle::next_call(meta), meta.replays, origin.clone());
        self.protection.started(self.permits.used(), call.started);
        let call = self.calls.insert(call);
        starts.push(Start { call, message, attempt, replays, origin });
    }

    /// Returns the delivery if its endpoint lets it start; otherwise it was queued or deferred.
    fn route(
        &mut self,
        delivery: Delivery,
        turn: Option<u64>,
        now: Time,
    ) -> Option<(Delivery, Option<Endpoint>)> {
        let Some(routes) = &mut self.routes else { return Some((delivery, None)) };
        let hold_left = self.policy.hold_max().saturating_sub(Duration::from_millis(delivery.meta.held_ms));
        let latest = now.plus(hold_left).min(delivery.meta.deadline.unwrap_or(Time::MAX));
        let is_reserved = |endpoint| turn != Some(endpoint) && self.resets.is_reserved(endpoint);
        match routes.route(delivery, latest, is_reserved, now) {
            Routed::Start(delivery, to) => Some((delivery, to)),
            Routed::Queued => None,
            Routed::PutOff(delivery, due) => {
                let settlement = self.defer_unsent(delivery, due, now);
                self.settle(settlement, None);
                None
            }
        }
    }

    /// Defers a message that was not sent. That uses up no attempt, but its waiting time is bounded.
    fn defer_unsent(&mut self, delivery: Delivery, due: Time, now: Time) -> Settlement {
        let meta = delivery.meta;
        // A message that would not be sent any more ends at its deadline, not when its endpoint might be back.
        let due = meta.deadline.map_or(due, |deadline| due.min(deadline));
        let held_ms = meta.held_ms.saturating_add(millis(due.since(now)));
        if outlasts_hold(&self.policy, held_ms) {
            return settle::dead(delivery, Reason::HoldExpired, now);
        }
        self.meters.deferred_unsent();
        settle::put_off(Delivery { meta: Meta { held_ms, deferred: true, ..meta }, ..delivery }, due)
    }

    /// Restarts the calls that waited in place and are due; one whose deadline has passed is dead-lettered instead.
    pub fn restart_due(&mut self, now: Time, starts: &mut Vec<Start>) {
        self.start_apart(now, starts);
        self.start_freed(now, starts);
        while !self.is_reserved()
            && let Some(call) = self.calls.pop_due(now)
        {
            if expired(&call.delivery.meta, now) {
                self.settle(settle::dead(call.delivery, Reason::TtlExceeded, now), None);
            } else {
                self.go_on(call, now, starts);
            }
        }
    }

    /// Starts suspects of resets whose turn it is, as far as permits allow.
    fn start_apart(&mut self, now: Time, starts: &mut Vec<Start>) {
        if self.resets.is_idle() || self.stopping || self.paused || self.suspects.wants_exclusive() {
            return;
        }
        while self.may_call() {
            let (routes, running) = (&self.routes, self.calls.running());
            let in_flight =
                |endpoint| routes.as_ref().map_or(running, |routes| routes.endpoints.running(endpoint));
            let Some(Turn { delivery, endpoint }) = self.resets.next(in_flight, now) else { return };
            let before = starts.len();
            if expired(&delivery.meta, now) {
                self.settle(settle::dead(delivery, Reason::TtlExceeded, now), None);
            } else {
                self.start(delivery, endpoint, now, starts);
            }
            if let Some(endpoint) = endpoint.filter(|_| starts.len() == before) {
                self.resets.turn_over(endpoint, now);
            }
        }
    }

    /// Restarts a call that waited in place, or lets it wait longer for its endpoint.
    fn go_on(&mut self, call: Call, now: Time, starts: &mut Vec<Start>) {
        let is_reserved = |endpoint| self.resets.is_reserved(endpoint);
        let routes = self.routes.as_mut();
        match routes.map_or(Ok(None), |routes| routes.go_on(&call.delivery, is_reserved, now)) {
            Ok(to) => self.begin(Call { started: now, to, ..call }, starts),
            Err(due) => {
                self.calls.wait(call, due);
            }
        }
    }

    /// Starts messages that waited for their endpoint, as far as permits allow.
    fn start_freed(&mut self, now: Time, starts: &mut Vec<Start>) {
        while self.room_for_due() > 0
            && let Some(routes) = &mut self.routes
            && let Some((delivery, endpoint)) =
                routes.next_freed(|endpoint| self.resets.is_reserved(endpoint))
        {
            let (mut one, before) = (vec![delivery], starts.len());
            self.look_at_queue(true);
            self.taken_again(&mut one, now, starts);
            self.look_at_queue(false);
            if starts.len() == before
                && let Some(routes) = &mut self.routes
            {
                routes.free_again(endpoint);
            }
        }
    }

    fn look_at_queue(&mut self, from_queue: bool) {
        if let Some(routes) = &mut self.routes {
            routes.from_queue = from_queue;
        }
    }
}

/// From the end of the call to the verdict.
impl Machine {
    /// Handles the end of a call. The end of an unknown call is ignored: that call was abandoned earlier.
    pub fn ended(&mut self, call: CallId, ended: Ended, now: Time, random: Random) {
        let Some(call) = self.calls.remove(call) else { return };
        match ended {
            Ended::Done => self.succeeded(call, now),
            Ended::Unfinished => self.put_back(call),
            Ended::Failed(failure) => self.attempt_failed(call, failure, now, random),
        }
    }

    fn succeeded(&mut self, call: Call, now: Time) {
        self.meters.succeeded(&call.delivery, now);
        if let Some(key) = call.delivery.message.key() {
            let is_replay = call.delivery.meta.replays > 0;
            let number = (!is_replay).then_some(call.delivery.receipt.seq);
            self.key_successes.note(key, number, call.delivery.message.created(), now);
        }
        self.protection.took(now.since(call.started));
        self.end_turn_at(&call, now);
        self.note_answer(&call, now);
        self.tell_protection(&call, CallEvidence::Sign(Sign::Good), Contact::Served, None, now);
        self.protection.succeeded(now);
        self.settle(settle::succeeded(call.delivery), None);
    }

    /// Reports the end of a call to the protection, before the message is decided about.
    fn tell_protection(
        &mut self,
        call: &Call,
        evidence: CallEvidence,
        contact: Contact,
        retry_after: Option<Duration>,
        now: Time,
    ) {
        let Call { delivery, is_probe, is_suspect, .. } = call;
        if *is_suspect {
            self.suspects.ended(true);
        }
        let (message, which) = (delivery.receipt.number(), Which::of(&delivery.meta));
        let opened = self.protection.ended(CallEnd { message, which, is_probe: *is_probe, evidence }, now);
        let (is_good, counts) = match evidence {
            _ if contact == Contact::NotMade => (None, false),
            CallEvidence::Sign(sign) => (Some(sign == Sign::Good), which.counts(sign)),
            CallEvidence::Busy | CallEvidence::Nothing => (None, false),
        };
        let ended = EndpointCall { counts, is_good, retry_after, ..EndpointCall::default() };
        self.tell_endpoint(call, ended, contact, evidence, now);
        if is_good == Some(true) && !self.unconfirmed.is_empty() {
            self.confirm(call.to, call.started, now);
        }
        if opened {
            // Nothing is sent any more, so waiting in place makes no sense.
            self.interrupt_waits();
        }
    }

    fn attempt_failed(&mut self, mut call: Call, failure: Failure, now: Time, random: Random) {
        self.end_turn_at(&call, now);
        let (failure, is_shared) = self.attribute_reset(&mut call, failure, now);
        let asked = failure.retry_after().map(|asked| asked.min(self.policy.retry_after_max()));
        let shared = asked.map(|asked| asked.min(self.policy.retry_after_shared_max()));
        let evidence = CallEvidence::of(&failure, &call.delivery.meta);
        self.tell_protection(&call, evidence, contact(&failure), shared, now);
        if let Some(asked) = asked.filter(|asked| !asked.is_zero()) {
            let until = now.plus(asked.min(self.policy.retry_after_shared_max()));
            let (message_id, kind) = (call.delivery.message.id().to_owned(), failure.kind());
            self.protection.asked_to_wait(AskedWait { since: now, until, asked, message_id, kind }, now);
        }
        let mut views = self.views_at(call.to, now);
        if views.health.is_healthy() && self.met_a_sink_that_is_down(&call, &failure, is_shared, now) {
            views.health = Health::Unhealthy { retry_in: Duration::ZERO };
        }
        self.meters.failed(&call.delivery, &failure, now);
        let Call { delivery, started, permit, is_suspect, to, .. } = call;
        let delivery = self.protection.with_time_held(delivery, started);
        let undecided = Undecided { delivery, started, ended: now, failure, random, to };
        let budget = match self.policy.mode() {
            Mode::Blocking => Letters::AtOnce,
            // A crash is the message's fault.
            _ if undecided.failure.class() == Class::Crash => Letters::AtOnce,
            _ if is_suspect || self.stopping || self.paused || !self.unconfirmed.has_room() => Letters::Never,
            Mode::NonBlocking => Letters::OnceConfirmed,
        };
        self.conclude(undecided, &views, budget, Some(permit).filter(|_| !is_suspect));
    }

    /// Decides about a failed attempt and carries out the decision. With `permit` the message may wait in place.
    fn conclude(&mut self, undecided: Undecided, views: &Views, budget: Letters, permit: Option<Permit>) {
        let Undecided { delivery, started, ended, failure, random, to } = undecided;
        let moment =
            Moment { policy: &self.policy, views, now: ended, random, backoff: self.backoff.as_ref() };
        let (settlement, decision) = settle::failed(delivery, started, &failure, moment);
        if decision == Decision::DeadLetter(Reason::BudgetExhausted) && budget != Letters::AtOnce {
            let undecided = Undecided { delivery: settlement.delivery, started, ended, failure, random, to };
            return match budget {
                Letters::OnceConfirmed => self.unconfirmed.push(undecided),
                _ => self.defer_unconfirmed(undecided, ended),
            };
        }
        if let Decision::RetryAt(retry) = &decision {
            self.protection.spend(retry.spends);
        }
        self.meters.decided(&decision);
        if let Some(attempt) = &settlement.attempt {
            let decided = (&decision, self.meters.tier(&decision));
            self.failures.push(&settlement.delivery, attempt, &failure, decided, ended);
        }
        match (settlement.verdict, permit) {
            (Verdict::Retry { due, meta }, Some(permit)) if self.waits_in_place() => {
                let Settlement { mut delivery, attempt, .. } = settlement;
                delivery.meta = meta;
                delivery.due = Some(due);
                if let Some(attempt) = &attempt {
                    delivery.history = delivery.history.with(attempt);
                }
                let call = Call { ahead_of_store: true, ..Call::new(delivery, started, permit) };
                self.calls.wait(call, due);
            }
            _ => self.settle(settlement, Some(failure)),
        }
    }

    /// The sink answered a call that started after other attempts had failed, so the empty budget applies to those.
    fn confirm(&mut self, to: Option<Endpoint>, started: Time, now: Time) {
        for undecided in self.unconfirmed.confirmed(to, started) {
            let views = self.views_at(undecided.to, now);
            self.conclude(undecided, &views, Letters::AtOnce, None);
        }
    }

    /// Defers the message, because the sink may be down.
    pub(super) fn defer_unconfirmed(&mut self, undecided: Undecided, now: Time) {
        let health = Health::Unhealthy { retry_in: Duration::ZERO };
        let views = Views { health, ..self.protection.views(now) };
        self.conclude(undecided, &views, Letters::AtOnce, None);
    }

    /// The views for a decision about a message whose endpoint is `to`.
    fn views_at(&mut self, to: Option<Endpoint>, now: Time) -> Views {
        let mut views = self.protection.views(now);
        if let (Some(routes), Some(to)) = (&self.routes, to) {
            views.health = routes.endpoints.health(to, now).unwrap_or(views.health);
        }
        views
    }

    /// Whether this attempt shows that the sink is down before the breaker and the pulse do: the message cannot have
    /// caused the failure, or nothing has succeeded since it first failed. Such an attempt must not be its last.
    fn met_a_sink_that_is_down(&self, call: &Call, failure: &Failure, is_shared: bool, now: Time) -> bool {
        let meta = &call.delivery.meta;
        if failure.is_before_receiver() || self.protection.has_stopped(&call.delivery, now) {
            return true;
        }
        match (&self.routes, call.to) {
            _ if is_shared => meta.uncounted < SHARED_RESETS_MAX,
            _ if !failure.never_arrived() => false,
            // The endpoint is named by the message and may never have existed. One that is restarting has answered
            // since.
            (Some(routes), Some(to)) => {
                let since = meta.first_failed;
                routes.endpoints.answered(to).is_some_and(|at| since.is_some_and(|since| at >= since))
            }
            _ => self.protection.is_one_endpoint(),
        }
    }

    fn waits_in_place(&self) -> bool {
        self.policy.mode() == Mode::Blocking && !self.stopping && !self.paused && !self.protection.is_open()
    }

    /// Puts back a call without an outcome, as if it had not been started. Earlier attempts in place are kept.
    pub(super) fn put_back(&mut self, call: Call) {
        if let (Some(to), Some(routes)) = (call.to, &mut self.routes) {
            routes.ended(to, EndpointCall::default(), Time::ZERO);
        }
        if let Some(endpoint) = call.turn {
            self.resets.turn_over(endpoint, Time::ZERO);
        }
        if call.is_probe {
            self.protection.probe_given_up();
        }
        if call.is_suspect {
            self.suspects.ended(false);
        }
        if call.ahead_of_store {
            let due = call.delivery.due.unwrap_or_default();
            self.settle(settle::put_off(call.delivery, due), None);
        } else {
            self.settle(settle::released(call.delivery), None);
        }
    }

    /// Ends every wait in place: the waiting calls become ordinary retries, with all their attempts.
    pub(super) fn interrupt_waits(&mut self) {
        for (due, call) in self.calls.take_waiting() {
            self.settle(settle::put_off(call.delivery, due), None);
        }
    }

    /// Ends the turn of a call, if it had one.
    fn end_turn_at(&mut self, call: &Call, now: Time) {
        if let Some(endpoint) = call.turn {
            self.resets.turn_over(endpoint, now);
        }
    }

    /// An answer clears its message, and shows that the endpoint is up.
    fn note_answer(&mut self, call: &Call, now: Time) {
        if !self.resets.is_idle() {
            self.resets.answered(call.delivery.receipt.number(), call.endpoint(), now);
        }
    }

    /// Attributes a reset. Returns the failure, as a crash if the message is quarantined, and whether another message
    /// may have caused the reset.
    fn attribute_reset(&mut self, call: &mut Call, failure: Failure, now: Time) -> (Failure, bool) {
        match failure.kind() {
            FailureKind::Reset => {}
            FailureKind::Status(_) | FailureKind::Other => {
                self.note_answer(call, now);
                return (failure, false);
            }
            // No answer, but not a reset either.
            FailureKind::Refused
            | FailureKind::Dns
            | FailureKind::Tls
            | FailureKind::Proxy
            | FailureKind::Timeout => return (failure, false),
        }
        let (message, endpoint) = (call.delivery.receipt.number(), call.endpoint());
        let others = match &self.routes {
            // This call is still counted there.
            Some(routes) => routes.endpoints.running(endpoint).saturating_sub(1),
            None => self.calls.running(),
        };
        let closed = Closed { message, endpoint, in_turn: call.turn.is_some(), others };
        let Attribution { times, is_shared, is_quarantined, is_logged } =
            self.resets.closed(closed, &self.policy, now);
        let threshold = suspects::quarantined_at(self.policy.crash_threshold());
        let message_id = || call.delivery.message.id().to_owned();
        if is_logged {
            let suspicion = times.map(|times| (times, threshold));
            self.protection.tell(HealthChange::ReceiverClosed { message_id: message_id(), suspicion }, now);
        }
        let Some(times) = times.filter(|_| is_quarantined) else { return (failure, is_shared) };
        self.protection.note(HealthChange::ReceiverKilled { message_id: message_id(), times }, now);
        let before = self.policy.crash_threshold().saturating_sub(1);
        call.delivery.meta = Meta { crashes: before, last_crash: Some(now), ..call.delivery.meta };
        let text = format!(
            "{}; the receiver closed the connection {times} times while handling this message, the last time with \
             nothing else in flight there, and answered others in between",
            failure.chain()
        );
        (Failure::crash(text).of_kind(FailureKind::Reset).ambiguous(), false)
    }

    /// Reports the end of a call to its endpoint.
    fn tell_endpoint(
        &mut self,
        call: &Call,
        ended: EndpointCall,
        contact: Contact,
        evidence: CallEvidence,
        now: Time,
    ) {
        if let (Some(routes), Some(to)) = (&mut self.routes, call.to) {
            let failed = if let CallEvidence::Sign(Sign::Bad(kind)) = evidence { Some(kind) } else { None };
            let is_answer = failed.is_some() || evidence == CallEvidence::Sign(Sign::Good);
            let counts_as = routes.counts_as(to, call.delivery.message.tenant(), contact, is_answer);
            let is_first = !matches!(Which::of(&call.delivery.meta), Which::Later { .. });
            let slow = if is_first { routes.slow(failed) } else { None };
            routes.ended(to, EndpointCall { counts_as, slow, ..ended }, now);
        }
    }

    pub(super) fn settle(&mut self, settlement: Settlement, failure: Option<Failure>) {
        if let Verdict::Dead { reason, at, .. } = settlement.verdict {
            if !self.resets.is_idle() {
                self.resets.forget(settlement.delivery.receipt.number());
            }
            self.protection.died(reason, at);
        }
        self.meters.settled(&settlement);
        self.verdicts.push(settlement, failure);
    }
}

/// How far a failed call got. A timeout before anything was sent is a connection failure.
fn contact(failure: &Failure) -> Contact {
    match failure.kind() {
        _ if failure.is_before_receiver() || failure.is_uncalled() => Contact::NotMade,
        kind if kind.is_unconnected() => Contact::Unreachable,
        FailureKind::Timeout if !failure.is_ambiguous() => Contact::Unreachable,
        _ => Contact::Failed,
    }
}
