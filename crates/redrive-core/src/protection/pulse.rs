//! Whether anything gets through at all: the last outcomes of distinct messages, whatever their attempt.
//!
//! The breaker needs many messages within seconds. A pipeline with a message a minute has outages too, and its messages
//! must not be dead-lettered for exhaustion meanwhile; so this one counts messages instead of watching seconds.

use std::time::Duration;

use crate::Time;

/// How many outcomes are remembered.
const LAST: usize = 32;
/// The minimum number of outcomes needed to judge.
const MIN: usize = 20;
/// If a lower percentage than this succeeded, the sink is considered down.
const LEAST_PERCENT: usize = 10;
/// Older outcomes are ignored.
const OLD: Duration = Duration::from_hours(1);
/// How long an outage may go undetected by the breaker.
const NEW: Duration = Duration::from_mins(1);
/// This many messages that failed within a day, with nothing delivered since, are an outage however long it lasts,
/// provided that something was delivered before. One or two bad messages follow their schedule and end.
const FEW: usize = 5;
/// Held messages are retried after minutes or hours, so their failures count for this long.
const DAY: Duration = Duration::from_hours(24);

/// Tracks whether a sink still delivers anything.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    last: Vec<Beat>,
    next: usize,
    /// The latest success, of this process or an earlier one.
    last_good: Option<Time>,
}

/// Messages fail, and are held instead of being dead-lettered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When something last got through; `None` if nothing was seen to.
    pub last_good: Option<Time>,
    /// Messages that failed since, as far as remembered.
    pub failed: u64,
}

/// The state that the next process needs: when something last got through, and which messages have failed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinceSuccess {
    /// When something last got through.
    pub last_good: Option<Time>,
    /// Numbers of messages, each with the time of its latest failure.
    pub failed: Vec<(u64, Time)>,
}

/// Whether a sink seems to have stopped just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Something got through since.
    No,
    /// One message failed since; it may be its own fault.
    ForOne,
    /// Several messages failed since.
    ForSeveral,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    message: u64,
    at: Time,
    is_good: bool,
}

impl Pulse {
    /// Records an attempt of `message`. A message is remembered once, with its latest outcome.
    pub fn beat(&mut self, message: u64, is_first: bool, is_good: bool, at: Time) {
        let beat = Beat { message, at, is_good };
        if is_good {
            self.last_good = self.last_good.max(Some(at));
        }
        if !is_first && let Some(known) = self.last.iter_mut().find(|known| known.message == message) {
            *known = beat;
            return;
        }
        if self.last.len() < LAST {
            self.last.push(beat);
            return;
        }
        self.last[self.next] = beat;
        self.next = (self.next + 1) % LAST;
    }

    /// Whether nothing has succeeded since a message first failed, although something had before. In the first minute
    /// two messages are enough: an outage that has just begun looks like this before the breaker can detect it.
    pub fn stopped(&self, since: Time, now: Time) -> Stopped {
        let Some(last_good) = self.last_good.filter(|at| *at < since) else { return Stopped::No };
        let is_new = now >= since && now.since(since) < NEW;
        let failed = self.failed_since(last_good, now).count();
        match failed {
            FEW.. => Stopped::ForSeveral,
            2.. if is_new => Stopped::ForSeveral,
            _ if is_new => Stopped::ForOne,
            _ => Stopped::No,
        }
    }

    fn failed_since(&self, last_good: Time, now: Time) -> impl Iterator<Item = &Beat> {
        self.last.iter().filter(move |beat| !beat.is_good && beat.at >= last_good && now.since(beat.at) < DAY)
    }

    /// The state for the process that comes after this one.
    pub fn since_success(&self, now: Time) -> SinceSuccess {
        let failed = self.failed_since(self.last_good.unwrap_or(Time::ZERO), now);
        SinceSuccess {
            last_good: self.last_good,
            failed: failed.map(|beat| (beat.message, beat.at)).collect(),
        }
    }

    /// When something last got through and how many messages failed since, if that is an outage.
    pub fn outage(&self, now: Time) -> Option<Outage> {
        let failed = self.failed_since(self.last_good.unwrap_or(Time::ZERO), now).count();
        let is_outage = self.is_weak(now) || (failed >= FEW && self.last_good.is_some());
        is_outage.then_some(Outage { last_good: self.last_good, failed: failed as u64 })
    }

    /// Continues from the state of an earlier process.
    pub fn resume(&mut self, left: &SinceSuccess) {
        self.last_good = self.last_good.max(left.last_good);
        for (message, at) in left.failed.iter().take(LAST) {
            self.beat(*message, true, false, *at);
        }
    }

    /// Whether hardly anything has got through lately.
    pub fn is_weak(&self, now: Time) -> bool {
        let recent = self.last.iter().filter(|beat| now.since(beat.at) < OLD);
        let (all, good) =
            recent.fold((0, 0), |(all, good), beat| (all + 1, good + usize::from(beat.is_good)));
        all >= MIN && good * 100 < all * LEAST_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(10_000_000);

    #[test]
    fn twenty_messages_without_a_success_are_an_outage() {
        let mut pulse = Pulse::default();
        (0..19).for_each(|message| pulse.beat(message, true, false, NOW));
        assert!(!pulse.is_weak(NOW));
        pulse.beat(19, true, false, NOW);
        assert!(pulse.is_weak(NOW));
        assert!(!pulse.is_weak(NOW.plus(OLD)), "yesterday's outage says nothing about today");
    }

    #[test]
    fn one_bad_message_is_not_an_outage_however_often_it_fails() {
        let mut pulse = Pulse::default();
        (0..500).for_each(|attempt| pulse.beat(7, attempt == 0, false, NOW));
        assert!(!pulse.is_weak(NOW));
    }

    #[test]
    fn an_outage_of_seconds_is_seen_by_those_who_have_met_nothing_else() {
        let at = |second: u64| NOW.plus(Duration::from_secs(second));
        let mut pulse = Pulse::default();
        pulse.beat(1, true, false, at(0));
        pulse.beat(2, true, false, at(1));
        assert_eq!(
            pulse.stopped(at(0), at(2)),
            Stopped::No,
            "nothing has ever got through: is it the message or the sink?"
        );
        pulse.beat(3, true, true, at(2));
        pulse.beat(4, true, false, at(3));
        assert_eq!(pulse.stopped(at(3), at(4)), Stopped::ForOne);
        pulse.beat(5, true, false, at(4));
        assert_eq!(pulse.stopped(at(3), at(5)), Stopped::ForSeveral);
        assert_eq!(
            pulse.stopped(at(0), at(5)),
            Stopped::No,
            "another message got through since that one failed first"
        );
        assert_eq!(pulse.stopped(at(3), at(63)), Stopped::No, "two bad messages end after their schedule");
        pulse.beat(6, true, true, at(6));
        assert_eq!(pulse.stopped(at(3), at(7)), Stopped::No);
    }

    #[test]
    fn five_messages_and_nothing_delivered_since_are_an_outage_for_as_long_as_it_lasts_and_over_a_restart() {
        let at = |minute: u64| NOW.plus(Duration::from_mins(minute));
        let mut pulse = Pulse::default();
        pulse.beat(0, true, true, at(0));
        (1..5).for_each(|message| pulse.beat(message, true, false, at(message)));
        assert_eq!(pulse.stopped(at(1), at(6)), Stopped::No, "four may be bad messages");
        pulse.beat(5, true, false, at(6));
        assert_eq!(pulse.stopped(at(1), at(7)), Stopped::ForSeveral);
        assert_eq!(pulse.outage(at(7)), Some(Outage { last_good: Some(at(0)), failed: 5 }));
        // They are retried again and again; the last success is hours ago.
        for minute in 7..300 {
            pulse.beat(1 + minute % 5, false, false, at(minute));
        }
        assert_eq!(pulse.stopped(at(1), at(300)), Stopped::ForSeveral);
        let mut next = Pulse::default();
        next.resume(&pulse.since_success(at(300)));
        assert_eq!(next.since_success(at(300)).failed.len(), 5);
        assert_eq!(next.stopped(at(1), at(301)), Stopped::ForSeveral);
        // One of them was already known.
        next.beat(1, false, false, at(301));
        assert_eq!(next.since_success(at(301)).failed.len(), 5);
        next.beat(2, false, true, at(302));
        assert_eq!(next.stopped(at(1), at(303)), Stopped::No);
    }

    #[test]
    fn a_few_successes_among_many_are_a_pulse() {
        let mut pulse = Pulse::default();
        (0..32).for_each(|message| pulse.beat(message, true, message % 8 == 0, NOW));
        assert!(!pulse.is_weak(NOW));
        // Those that failed come back and fail again: they count once each.
        (0..32).filter(|m| m % 8 != 0).for_each(|message| pulse.beat(message, false, false, NOW));
        assert!(!pulse.is_weak(NOW));
        (100..132).for_each(|message| pulse.beat(message, true, false, NOW));
        assert!(pulse.is_weak(NOW));
    }
}
