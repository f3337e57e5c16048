//! From the end of an attempt to its stored form: the decision, the verdict that carries it out, and the attempt's
//! record.

use redrive_core::{
    Budget, Class, Decision, FailureKind, Health, Meta, Outcome, Policy, Random, Reason, Time, after, decide,
};

use crate::backoff::{Backoff, FailedAttempt};
use crate::engine::{Attempt, Delivery, Settlement, Suspect, Verdict};
use crate::failure::Failure;

/// The environment of a decision, as plain values.
#[derive(Clone, Copy, Debug)]
pub struct Views {
    /// The health of the sink.
    pub health: Health,
    /// The state of the retry budget.
    pub budget: Budget,
}

impl Default for Views {
    fn default() -> Self {
        Self { health: Health::Healthy, budget: Budget::Unlimited }
    }
}

/// Everything that a decision needs besides the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    pub policy: &'a Policy,
    pub views: &'a Views,
    pub now: Time,
    pub random: Random,
    /// The pipeline's custom backoff, instead of the policy's schedule.
    pub backoff: Option<&'a Backoff>,
}

/// The settlement of a delivery whose attempt succeeded.
pub(crate) fn succeeded(delivery: Delivery) -> Settlement {
    Settlement { delivery, verdict: Verdict::Done, attempt: None }
}

/// The settlement of a delivery that was not started, or whose outcome does not matter: nothing is counted.
pub(crate) fn released(delivery: Delivery) -> Settlement {
    Settlement { delivery, verdict: Verdict::Release, attempt: None }
}

/// The settlement of a delivery that is dead without another attempt.
pub(crate) fn dead(delivery: Delivery, reason: Reason, at: Time) -> Settlement {
    let meta = Meta { deferred: false, ..delivery.meta };
    Settlement { delivery, verdict: Verdict::Dead { reason, meta, at }, attempt: None }
}

/// The settlement of a delivery that killed the process too often: dead without another attempt, and recorded in its
/// history.
pub(crate) fn quarantined(delivery: Delivery, suspect: &Suspect, at: Time) -> Settlement {
    let before = delivery.meta;
    let meta = Meta {
        crashes: suspect.crashes,
        last_crash: suspect.last_crash.or(Some(at)),
        attempts: before.attempts.saturating_add(1),
        first_failed: before.first_failed.or(suspect.first_crash).or(Some(at)),
        deferred: false,
        ..before
    };
    let attempt = Attempt {
        number: next_call(&before),
        at: suspect.last_crash.unwrap_or(at),
        took_ms: 0,
        class: Class::Crash,
        kind: FailureKind::Other,
        code: None,
        counted: true,
        ambiguous: true,
        error: format!("the process ended while it ran, {} times", suspect.crashes),
    };
    let verdict = Verdict::Dead { reason: Reason::PoisonPill, meta, at };
    Settlement { delivery, verdict, attempt: Some(attempt) }
}

/// The settlement of a delivery that continues to wait. It carries the current state, which may be newer than the
/// stored one: attempts in place are written only here.
pub(crate) fn put_off(delivery: Delivery, due: Time) -> Settlement {
    let meta = delivery.meta;
    Settlement { delivery, verdict: Verdict::Retry { due, meta }, attempt: None }
}

/// The settlement of a delivery whose attempt, begun at `started`, failed, and the decision behind it.
pub(crate) fn failed(
    delivery: Delivery,
    started: Time,
    failure: &Failure,
    moment: Moment<'_>,
) -> (Settlement, Decision) {
    let Moment { policy, views, now, random, backoff } = moment;
    let before = delivery.meta;
    let mut outcome = failure.outcome();
    if let (Some(backoff), Outcome::Failed { delay, .. }) = (backoff, &mut outcome) {
        let retry = before.attempts.saturating_add(1);
        *delay = backoff.delay(&FailedAttempt { message: &delivery.message, retry, failure });
    }
    let decision = decide(policy, &before, &outcome, &views.health, &views.budget, now, random);
    let meta = after(policy, &before, &outcome, &decision, now);
    let verdict = match decision {
        Decision::Complete => Verdict::Done,
        Decision::RetryAt(retry) => Verdict::Retry { due: retry.due, meta },
        Decision::DeadLetter(reason) => Verdict::Dead { reason, meta, at: now },
    };
    let attempt = record(&before, &meta, started, now, failure, &outcome);
    (Settlement { delivery, verdict, attempt: Some(attempt) }, decision)
}

/// The number of the next call: every failed call is counted in exactly one of the two.
pub(crate) fn next_call(meta: &Meta) -> u32 {
    meta.attempts.saturating_add(meta.uncounted).saturating_add(1)
}

/// When it first failed since its last replay, if it was replayed. Earlier failures say nothing about the current
/// health of the sink.
pub(crate) fn first_failed(delivery: &Delivery) -> Option<Time> {
    let meta = &delivery.meta;
    if meta.replays == 0 {
        return meta.first_failed;
    }
    if next_call(meta) == 1 {
        return None;
    }
    // Calls are counted anew after a replay. A long history drops the attempts after its first one. That first one is
    // from before the replay, and its number may happen to precede the remaining ones, so it is skipped.
    let attempts = delivery.history.attempts();
    let mut since = attempts.last()?;
    for before in attempts.iter().skip(1).rev().skip(1) {
        if before.number + 1 != since.number {
            break;
        }
        since = before;
    }
    Some(since.at)
}

/// Whether it was never attempted before.
pub(crate) fn is_new(delivery: &Delivery) -> bool {
    delivery.meta.replays == 0 && next_call(&delivery.meta) == 1
}

fn record(
    before: &Meta,
    after: &Meta,
    started: Time,
    now: Time,
    failure: &Failure,
    outcome: &Outcome,
) -> Attempt {
    Attempt {
        number: next_call(before),
        at: started,
        took_ms: u32::try_from(now.since(started).as_millis()).unwrap_or(u32::MAX),
        class: failure.class(),
        kind: failure.kind(),
        code: failure.code().map(str::to_owned),
        counted: after.attempts > before.attempts,
        ambiguous: matches!(outcome, Outcome::Failed { ambiguous: true, .. }),
        error: failure.chain(),
    }
}
