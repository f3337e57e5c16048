//! One named checker per invariant. Each compares the witness with what the machine or the engine just did.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::breaker::BreakerState;
use redrive_core::decide::DEFER_MIN;
use redrive_core::suspects::{self, Run};
use redrive_core::{Class, Reason, Time};

use super::downstream::{Downstream, Fate, Reply};
use super::plan::Plan;
use super::witness::{CallReply, Record, State, Witness};
use crate::dispatch::HealthFigures;
use crate::dispatch::machine::UNSETTLED_MAX;
use crate::engine::history::{ERROR_BYTES_MAX, LATEST_ATTEMPTS_MAX};
use crate::engine::{Counts, Delivery, DeliveryOrder, LetterState, ReplayAnswer, Settlement, Verdict};

/// The names of all checkers, in the order of their invariants; `liveness` is for the second phase.
pub const CHECKERS: [&str; 12] = [
    "conservation",
    "attempts_bounded",
    "never_early",
    "no_neighbour_blocked",
    "key_order",
    "effect_once",
    "no_dead_for_outage",
    "nothing_sent_while_open",
    "innocent_messages_are_not_quarantined",
    "replay_once",
    "bounds",
    "liveness",
];

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub checker: &'static str,
    pub detail: String,
}

pub type Check = Result<(), Broken>;

fn ensure(holds: bool, checker: &'static str, detail: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Broken { checker, detail: detail() }) }
}

/// Invariant 1: every accepted message is in exactly one place, and the engine counts the same.
pub fn conservation(witness: &Witness, counts: Counts) -> Check {
    let count = |state: State| witness.records.values().filter(|r| r.state == state).count() as u64;
    let waiting = count(State::Waiting);
    let told = counts.waiting();
    let expected = (waiting, count(State::InFlight));
    ensure((told, counts.in_flight) == expected, "conservation", || {
        format!("waiting and in flight are {expected:?}, the engine says {counts:?}")
    })?;
    let letters = (count(State::Letter(LetterState::Open)), count(State::Letter(LetterState::Discarded)));
    ensure((counts.letters_open, counts.letters_discarded) == letters, "conservation", || {
        format!("open and discarded letters are {letters:?}, the engine says {counts:?}")
    })
}

/// Invariant 1, at a hand-out: only waiting messages are handed out, unchanged.
pub fn conservation_of_delivery(record: &Record, delivery: &Delivery) -> Check {
    ensure(record.state == State::Waiting, "conservation", || {
        format!("{} was handed out, but is {:?}", delivery.receipt.seq, record.state)
    })?;
    ensure(record.message == delivery.message, "conservation", || "another message came back".to_owned())
}

/// Invariant 1, at a settlement: only messages in flight are settled, once, and a doomed message for the reason of
/// its doom.
pub fn conservation_of_settlement(record: &Record, settlement: &Settlement) -> Check {
    ensure(record.state == State::InFlight && record.given.is_none(), "conservation", || {
        format!("{:?} for a message that is {:?}, given {:?}", settlement.verdict, record.state, record.given)
    })?;
    let dead = if let Verdict::Dead { reason, .. } = settlement.verdict { Some(reason) } else { None };
    ensure(record.doomed.is_none() || dead == record.doomed, "conservation", || {
        format!("doomed for {:?}, settled as {:?}", record.doomed, settlement.verdict)
    })
}

/// Invariant 1, at an orderly end: nothing is left in flight.
pub fn conservation_of_end(at_rest: bool, counts: Counts) -> Check {
    ensure(at_rest && counts.in_flight == 0, "conservation", || {
        format!("the machine has ended (at rest: {at_rest}), but {counts:?}")
    })
}

/// Invariant 2, when a call starts. The bound on all calls is that of the forecast, plus one for each call whose
/// outcome was lost in a crash or that was abandoned. No call starts at or after the deadline. A crash of the process
/// itself is not counted as an attempt.
pub fn attempts_bounded(plan: &Plan, record: &Record, now: Time) -> Check {
    let most = plan.policy.forecast().calls_max + u64::from(record.calls_lost);
    ensure(u64::from(record.calls) <= most, "attempts_bounded", || {
        format!("call {} of at most {most}: {:?}", record.calls, record.meta)
    })?;
    ensure(record.doomed.is_none(), "attempts_bounded", || "a doomed message was started".to_owned())?;
    ensure(record.meta.deadline.is_none_or(|deadline| now < deadline), "attempts_bounded", || {
        format!("started at {now:?}, the deadline was {:?}", record.meta.deadline)
    })
}

/// Invariant 2, in the stored state: every failed call is counted once, as an attempt or as uncounted, and both stay
/// within their bounds.
pub fn attempts_bounded_in_meta(plan: &Plan, record: &Record, delivery: &Delivery) -> Check {
    let meta = delivery.meta;
    let forecast = plan.policy.forecast();
    ensure(
        meta == record.meta && meta.attempts + meta.uncounted == record.failures,
        "attempts_bounded",
        || format!("{} failed calls, told {:?}, handed out as {meta:?}", record.failures, record.meta),
    )?;
    // A message that waits for another attempt has at least one left.
    ensure(meta.attempts < forecast.attempts_max, "attempts_bounded", || {
        format!("{} counted attempts of {} and still not dead", meta.attempts, forecast.attempts_max)
    })?;
    ensure(u64::from(meta.uncounted) <= forecast.uncounted_max, "attempts_bounded", || {
        format!("{} uncounted calls of {}", meta.uncounted, forecast.uncounted_max)
    })
}

/// Invariant 3, at a hand-out: not before the due time by this host's clock, unless that clock was set back since.
pub fn never_early(record: &Record, now: Time) -> Check {
    ensure(record.came_due || record.due.is_none_or(|due| due <= now), "never_early", || {
        format!("handed out at {now:?}, due {:?}", record.due)
    })
}

/// Invariant 3, at a verdict: the delay is at least what the schedule and Retry-After require.
pub fn never_early_verdict(plan: &Plan, record: &Record, settlement: &Settlement) -> Check {
    let Verdict::Retry { due, meta } = settlement.verdict else { return Ok(()) };
    let Some((CallReply::Reply(Reply::Failed { class, retry_after, .. }), at)) =
        record.call.and_then(|c| c.reply)
    else {
        return Ok(());
    };
    let wait = due.since(at);
    let asked = retry_after.unwrap_or_default().min(plan.policy.retry_after_max());
    let counted = meta.attempts > record.meta.attempts;
    let least = if !asked.is_zero() {
        asked
    } else if counted {
        let ranges = plan.policy.delay_ranges(meta.attempts + 1, class);
        ranges.last().map_or(Duration::ZERO, |range| range.0)
    } else if class == Class::Reconnect {
        Duration::ZERO
    } else {
        DEFER_MIN
    };
    ensure(wait >= least, "never_early", || {
        format!("waits {wait:?}, at least {least:?} was asked for ({class})")
    })
}

/// Invariant 4: a call uses one permit and nothing else. After a take that left room, no startable message waits.
pub fn no_neighbour_blocked(plan: &Plan, witness: &Witness, room: usize, left: bool, now: Time) -> Check {
    let free = plan.concurrency - witness.running().min(plan.concurrency);
    ensure(room >= free, "no_neighbour_blocked", || {
        format!("{} of {} permits are in use, room is {room}", witness.running(), plan.concurrency)
    })?;
    if !left || witness.gated {
        return Ok(());
    }
    let ordered = plan.store.ordering == DeliveryOrder::Key;
    let is_due = |r: &Record| r.state == State::Waiting && r.due.is_none_or(|due| due <= now);
    let mut lines: BTreeMap<Option<&[u8]>, Vec<&Record>> = BTreeMap::new();
    for record in witness.records.values().filter(|r| !r.is_terminal()) {
        let key = record.message.key().filter(|_| ordered);
        lines.entry(key).or_default().push(record);
    }
    for (key, line) in lines {
        let stuck = match key {
            None => line.iter().any(|r| is_due(r)),
            Some(_) => line.iter().all(|r| is_due(r)),
        };
        ensure(!stuck, "no_neighbour_blocked", || format!("room was left at {now:?}, but {line:?} waits"))?;
    }
    Ok(())
}

/// Invariant 5, when `seq` is handed out: no other message of its key is out, and no earlier one in the key line
/// waits. Only the engine knows when a message that was ingested with a delay joins the line; the conformance suite
/// checks that.
pub fn key_order(plan: &Plan, witness: &Witness, seq: u64) -> Check {
    let Some(this) = witness.records.get(&seq).filter(|_| plan.store.ordering == DeliveryOrder::Key) else {
        return Ok(());
    };
    let Some(key) = this.message.key() else { return Ok(()) };
    let same_key = |(other, record): &(&u64, &Record)| **other != seq && record.message.key() == Some(key);
    for (other, record) in witness.records.iter().filter(same_key) {
        let is_out = record.state == State::InFlight;
        let is_before = *other < seq && record.in_line && !record.is_terminal();
        ensure(!is_out && !is_before, "key_order", || format!("{seq} started before {other}: {record:?}"))?;
    }
    Ok(())
}

/// Invariant 6, at a verdict: a message is done if and only if its own call succeeded, and then its effect is in the
/// ledger under its own id.
pub fn effect_once(record: &Record, settlement: &Settlement, downstream: &Downstream) -> Check {
    let told_done = record
        .call
        .and_then(|call| call.reply)
        .is_some_and(|(reply, _)| reply == CallReply::Reply(Reply::Done));
    let done = settlement.verdict == Verdict::Done;
    ensure(done == told_done, "effect_once", || {
        format!("{:?}, but its call came to {:?}", settlement.verdict, record.call)
    })?;
    ensure(!done || downstream.ledger.contains_key(record.message.id()), "effect_once", || {
        format!("{} is done without an effect", record.message.id())
    })
}

/// Invariant 6, after a late answer: it must not end the call of another message.
pub fn effect_once_when_late(running_before: usize, running: usize) -> Check {
    ensure(running == running_before, "effect_once", || {
        format!("a late answer ended a call of another message: {running_before} ran, now {running}")
    })
}

/// Invariant 6, at rest: an effect was requested again only if an outcome was lost or ambiguous, or the id was
/// accepted twice; and every success has an effect.
pub fn effect_once_at_rest(witness: &Witness, downstream: &Downstream) -> Check {
    let mut excused: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
    for record in witness.records.values() {
        let (done, lost) = excused.entry(record.message.id()).or_default();
        *done += u32::from(record.state == State::Done);
        *lost |= record.unacknowledged;
    }
    for (id, (done, lost)) in excused {
        let asked = downstream.ledger.get(id).copied().unwrap_or(0);
        ensure(asked == done || (lost && asked >= done), "effect_once", || {
            format!("{id} succeeded {done} times, its effect was asked for {asked} times, none of them lost")
        })?;
    }
    Ok(())
}

/// Invariant 7: while the sink is unhealthy no message is dead-lettered for exhaustion, except for crashes, which are
/// the handler's fault.
pub fn no_dead_for_outage(plan: &Plan, record: &Record, settlement: &Settlement) -> Check {
    let Verdict::Dead { reason: Reason::MaxRetries | Reason::BudgetExhausted, .. } = settlement.verdict
    else {
        return Ok(());
    };
    let unhealthy = record.call.is_some_and(|call| !call.health.is_healthy());
    let gate = plan.policy.outage_gate() && record.failed_with() != Some(Class::Crash);
    ensure(!(unhealthy && gate), "no_dead_for_outage", || {
        format!("dead for exhaustion while the sink is down: {record:?}")
    })
}

/// A message dies of an empty budget only if its sink has answered a call that began after it failed.
pub fn budget_in_a_healthy_sink(
    plan: &Plan,
    witness: &Witness,
    record: &Record,
    settlement: &Settlement,
) -> Check {
    let Verdict::Dead { reason: Reason::BudgetExhausted, .. } = settlement.verdict else { return Ok(()) };
    let failed = record.call.and_then(|call| call.reply).map(|(_, at)| at);
    let is_crash = record.failed_with() == Some(Class::Crash);
    let excused = !plan.policy.outage_gate() || witness.clock_moved || is_crash;
    ensure(excused || failed.is_some_and(|at| witness.answered_began >= at), "no_dead_for_outage", || {
        format!("dead for budget_exhausted, and nobody was answered since: {record:?}")
    })
}

/// While the breaker is open nothing is sent; while half-open, one message at a time; and after it closes, no more
/// calls run than the ramp-up allows.
pub fn nothing_sent_while_open(before: &HealthFigures, running: usize, started: usize) -> Check {
    let state = before.breaker.state;
    let most = match state {
        BreakerState::Open => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Closed => before.permits.saturating_sub(running),
    };
    ensure(started <= most, "nothing_sent_while_open", || {
        format!("{started} calls started while the breaker was {state:?}, {running} ran, {before:?}")
    })
}

/// A Retry-After for one message applies to all, if all go to the same place.
pub fn nothing_sent_while_asked_to_wait(plan: &Plan, until_ms: u64, true_ms: u64) -> Check {
    let may = !plan.protection.one_endpoint || true_ms >= until_ms;
    ensure(may, "nothing_sent_while_open", || {
        format!("sent at {true_ms}, although the sink has asked for no calls until {until_ms}")
    })
}

/// A breaker that is open when the process dies is open in the next process, which need not find out by its own
/// calls.
pub fn open_over_a_restart(before: &HealthFigures, after: &HealthFigures) -> Check {
    let closed = BreakerState::Closed;
    let kept = before.breaker.state == closed || after.breaker.state != closed;
    ensure(kept, "nothing_sent_while_open", || {
        format!("the breaker was {:?} before the restart and is {:?}", before.breaker, after.breaker)
    })
}

/// Nothing else runs during an exclusive run.
pub fn alone(run: Run, running: usize) -> Check {
    ensure(run == Run::Alone || running == 0, "innocent_messages_are_not_quarantined", || {
        format!("a suspect is to run exclusively, but {running} calls run")
    })
}

/// Only a message that has crashed the process is quarantined, or one that was running alone each time something else
/// crashed it; and no message may crash it more often than the threshold.
pub fn innocent_messages_are_not_quarantined(plan: &Plan, record: &Record, settlement: &Settlement) -> Check {
    let most = suspects::quarantined_at(plan.policy.crash_threshold());
    ensure(record.kills <= most, "innocent_messages_are_not_quarantined", || {
        format!("ended the process {} times: {record:?}", record.kills)
    })?;
    let Verdict::Dead { reason: Reason::PoisonPill, .. } = settlement.verdict else { return Ok(()) };
    let guilty = matches!(record.fate, Fate::Crashing | Fate::Deadly)
        || record.kills > 0
        || record.died_alone + 1 >= most;
    ensure(guilty, "innocent_messages_are_not_quarantined", || {
        format!("quarantined without a reason: {record:?}")
    })
}

/// Invariant 8: a job replays an open letter once, and more than three replays need `force`.
pub fn replay_once(record: Option<&Record>, job: u64, force: bool, answer: ReplayAnswer) -> Check {
    let replayed = answer == ReplayAnswer::Replayed;
    let Some(record) = record else {
        return ensure(!replayed, "replay_once", || "a letter that does not exist was replayed".to_owned());
    };
    let may = record.state == State::Letter(LetterState::Open)
        && !record.jobs.contains(&job)
        && (force || record.replays < crate::engine::letter::REPLAYS_MAX);
    ensure(replayed == may, "replay_once", || format!("{answer:?} by job {job}, force {force}: {record:?}"))
}

/// Invariant 8, at a hand-out: the message has the right number of replays.
pub fn replay_once_in_meta(record: &Record, delivery: &Delivery) -> Check {
    ensure(delivery.meta.replays == record.replays, "replay_once", || {
        format!("replayed {} times, told {}", record.replays, delivery.meta.replays)
    })
}

/// Invariant 9, as far as visible from outside: calls and hand-outs stay within their bounds.
pub fn bounds(plan: &Plan, running: usize, room: usize, counts: Counts) -> Check {
    ensure(running + room <= plan.concurrency, "bounds", || {
        format!("{running} calls run and there is room for {room}, {} may run", plan.concurrency)
    })?;
    let most = (plan.concurrency + UNSETTLED_MAX) as u64;
    ensure(counts.in_flight <= most, "bounds", || {
        format!("{} are in flight, at most {most} may", counts.in_flight)
    })
}

/// Invariant 9, at a hand-out: the history is bounded.
pub fn bounds_of_story(delivery: &Delivery) -> Check {
    let attempts = delivery.history.attempts();
    ensure(attempts.len() <= LATEST_ATTEMPTS_MAX + 1, "bounds", || {
        format!("{} attempts are kept", attempts.len())
    })?;
    let longest = attempts.iter().map(|attempt| attempt.error.len()).max().unwrap_or(0);
    ensure(longest <= ERROR_BYTES_MAX, "bounds", || format!("an error of {longest} bytes is kept"))
}

/// The second phase: without faults, all messages become terminal within the bound.
pub fn liveness(witness: &Witness, stuck: bool, spent: Duration, bound: Duration) -> Check {
    ensure(!stuck && spent <= bound, "liveness", || {
        let waiting: Vec<_> = witness.records.iter().filter(|(_, r)| !r.is_terminal()).collect();
        format!(
            "after {spent:?} of {bound:?} (nothing will happen any more: {stuck}) not terminal: {waiting:?}"
        )
    })
}
