//! The simulated downstream: the outcome of a call, its duration, and the ledger of effects by message id.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::{Class, FailureKind};

use super::plan::Plan;
use crate::engine::conformance::Rng;
use crate::failure::Failure;

/// The kind of a message, fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Good,
    Flaky,
    Permanent,
    Gone,
    Poison,
    Crashing,
    Stale,
    Locked,
    /// Crashes the process.
    Killer,
    /// Crashes its receiver.
    Deadly,
}

/// The outcome of a call, decided in advance.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedAnswer {
    pub takes_ms: u64,
    pub reply: Reply,
    /// Whether the effect happens, whatever is reported.
    pub applies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    Failed { class: Class, kind: FailureKind, retry_after: Option<Duration>, ambiguous: bool },
}

#[derive(Debug)]
pub struct Downstream {
    rng: Rng,
    /// How often an effect was requested, by message id; it happens only the first time.
    pub ledger: BTreeMap<String, u32>,
}

impl Fate {
    pub fn draw(plan: &Plan, rng: &mut Rng) -> Self {
        let fates = plan.fates;
        let mut drawn = rng.below(100);
        let kinds = [
            (fates.flaky, Self::Flaky),
            (fates.permanent, Self::Permanent),
            (fates.gone, Self::Gone),
            (fates.poison, Self::Poison),
            (fates.crashing, Self::Crashing),
            (fates.stale, Self::Stale),
            (fates.locked, Self::Locked),
            (fates.killer, Self::Killer),
            (fates.deadly, Self::Deadly),
        ];
        for (percent, fate) in kinds {
            if drawn < percent {
                return fate;
            }
            drawn -= percent;
        }
        Self::Good
    }
}

impl Reply {
    /// Whether it shows that the receiver is up and processes messages.
    pub fn is_an_answer(self) -> bool {
        matches!(self, Self::Done | Self::Failed { class: Class::Permanent | Class::Gone, .. })
    }

    pub fn to_failure(self, text: &str) -> Option<Failure> {
        let Self::Failed { class, kind, retry_after, ambiguous } = self else { return None };
        let failure = match class {
            Class::Transient => Failure::transient(text),
            Class::RateLimited => Failure::rate_limited(retry_after, text),
            Class::Permanent => Failure::permanent(text),
            Class::Gone => Failure::gone(text),
            Class::Credential => Failure::credential(text),
            Class::Reconnect => Failure::reconnect(text),
            Class::Crash => Failure::crash(text.to_owned()),
        };
        let failure = failure.of_kind(kind);
        Some(if ambiguous { failure.ambiguous() } else { failure })
    }
}

impl Downstream {
    pub fn new(rng: Rng) -> Self {
        Self { rng, ledger: BTreeMap::new() }
    }

    /// Decides the outcome of a call that starts at `true_ms`.
    pub fn call(&mut self, plan: &Plan, fate: Fate, true_ms: u64, faults: bool) -> SimulatedAnswer {
        let takes_ms = self.rng.below(plan.calls.latency_ms_max + 1);
        let timeout_ms = plan.policy.timeout().as_millis() as u64;
        let fail_of = |class, kind| Reply::Failed { class, kind, retry_after: None, ambiguous: false };
        let fail = |class| fail_of(class, FailureKind::Other);
        let ends = true_ms + takes_ms;
        let calls = plan.calls;
        let mut hits = |percent| faults && self.rng.chance(percent);
        if takes_ms >= timeout_ms || hits(calls.hang) {
            let kind = FailureKind::Timeout;
            let reply = Reply::Failed { class: Class::Transient, kind, retry_after: None, ambiguous: true };
            let applies = fate == Fate::Good && self.rng.chance(50);
            return SimulatedAnswer { takes_ms: timeout_ms, reply, applies };
        }
        if faults && plan.outages_ms.iter().any(|(from, to)| (*from..*to).contains(&ends)) {
            let kind = if calls.outage_refuses { FailureKind::Refused } else { FailureKind::Status(503) };
            return SimulatedAnswer { takes_ms, reply: fail_of(Class::Transient, kind), applies: false };
        }
        if hits(calls.reconnect) {
            return SimulatedAnswer { takes_ms, reply: fail(Class::Reconnect), applies: false };
        }
        if hits(calls.credential) {
            return SimulatedAnswer { takes_ms, reply: fail(Class::Credential), applies: false };
        }
        if hits(calls.rate_limited) {
            let retry_after = Some(Duration::from_secs(self.rng.pick(&[0, 1, 7, 3_600])));
            let kind = FailureKind::Status(429);
            let reply = Reply::Failed { class: Class::RateLimited, kind, retry_after, ambiguous: false };
            return SimulatedAnswer { takes_ms, reply, applies: false };
        }
        let ambiguous = hits(calls.ambiguous);
        let reply = match fate {
            Fate::Good if ambiguous => {
                let kind = FailureKind::Other;
                Reply::Failed { class: Class::Transient, kind, retry_after: None, ambiguous }
            }
            Fate::Flaky if self.rng.chance(50) => fail(Class::Transient),
            Fate::Good | Fate::Flaky => Reply::Done,
            Fate::Permanent => fail(Class::Permanent),
            Fate::Gone => fail(Class::Gone),
            Fate::Poison => fail(Class::Transient),
            // A killer never answers, so its reply is never used.
            Fate::Crashing | Fate::Killer => fail(Class::Crash),
            Fate::Stale => fail(Class::Reconnect),
            Fate::Locked => fail(Class::Credential),
            Fate::Deadly => {
                let kind = FailureKind::Reset;
                Reply::Failed { class: Class::Transient, kind, retry_after: None, ambiguous: true }
            }
        };
        SimulatedAnswer {
            takes_ms,
            reply,
            applies: reply == Reply::Done || (fate == Fate::Good && ambiguous),
        }
    }

    /// A call ended; its effect happens here, once per id.
    pub fn ended(&mut self, id: &str, answer: &SimulatedAnswer) {
        if answer.applies {
            *self.ledger.entry(id.to_owned()).or_default() += 1;
        }
    }
}
