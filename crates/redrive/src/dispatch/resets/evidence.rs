//! Finds the message that kills a receiver, from the connections that the receiver closes.
//!
//! When a receiver dies, every call in flight there breaks at once, and any of them may be the cause. A message is
//! suspected only if its connection breaks repeatedly, the endpoint answers others in between, and nothing else was
//! in flight the last time. Where resets are common they say nothing about a message, and nothing is suspected. The
//! evidence is kept in memory only, so a restart starts over.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use redrive_core::Time;

/// Messages that are remembered, in total and per endpoint. Beyond that a reset is an ordinary failure.
const REMEMBERED_MAX: usize = 256;
const REMEMBERED_PER_ENDPOINT_MAX: usize = 64;
/// Endpoints that are remembered.
const ENDPOINTS_MAX: usize = 1_000;
/// A message is forgotten after this long without a reset.
const REMEMBERED_FOR: Duration = Duration::from_hours(1);
/// How often old entries are removed.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Resets within this span count as one: they are the calls in flight when a receiver died.
const TOGETHER: Duration = Duration::from_millis(100);
/// More breaks than this make resets common at an endpoint …
const COMMON: usize = 16;
/// … if they fall into this span.
const COMMON_WITHIN: Duration = Duration::from_mins(10);

/// A connection that broke after the request was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reset {
    pub(super) message: u64,
    pub(super) endpoint: u64,
    /// Whether it had its turn among messages with earlier resets.
    pub(super) in_turn: bool,
    /// Whether other calls to this endpoint were in flight.
    pub(super) beside_others: bool,
    /// Number of resets that quarantine a message.
    pub(super) quarantines_at: u32,
}

/// What a reset says about its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Resets attributed to this message; `None` if it is not tracked.
    pub(super) times: Option<u32>,
    /// Whether another message may be the cause.
    pub(super) is_shared: bool,
    pub(super) is_quarantined: bool,
}

/// A message with resets attributed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    pub(super) endpoint: u64,
    pub(super) times: u32,
}

#[derive(Debug, Default)]
pub(super) struct Evidence {
    messages: BTreeMap<u64, KnownCause>,
    endpoints: BTreeMap<u64, Resetting>,
    /// When old entries were last removed.
    looked: Time,
}

#[derive(Clone, Copy, Debug)]
struct KnownCause {
    endpoint: u64,
    times: u32,
    /// All its resets, attributed or not.
    resets: usize,
    last: Time,
}

#[derive(Debug, Default)]
struct Resetting {
    /// When connections broke, oldest first; simultaneous ones count as one.
    breaks: VecDeque<Time>,
    /// When it last answered any message.
    answered: Option<Time>,
    messages: usize,
}

impl Evidence {
    pub(super) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Messages that are remembered.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns `None` for a message that may run like any other.
    pub(super) fn suspicion(&self, message: u64) -> Option<Suspicion> {
        let KnownCause { endpoint, times, resets, .. } = *self.messages.get(&message)?;
        let is_common = self.endpoints.get(&endpoint).is_none_or(|endpoint| endpoint.is_common(resets));
        (!is_common).then_some(Suspicion { endpoint, times })
    }

    /// The endpoint answered a message, which clears that message.
    pub(super) fn answered(&mut self, message: u64, endpoint: u64, now: Time) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.answered = Some(now);
        }
        self.forget(message);
    }

    /// Forgets a message that is terminal or cleared.
    pub(super) fn forget(&mut self, message: u64) {
        if let Some(known) = self.messages.remove(&message)
            && let Some(endpoint) = self.endpoints.get_mut(&known.endpoint)
        {
            endpoint.messages -= 1;
        }
    }

    /// Records that a receiver closed the connection.
    pub(super) fn broke_off(&mut self, reset: Reset, now: Time) -> Finding {
        let Reset { message, endpoint: at, in_turn, beside_others, quarantines_at } = reset;
        if !self.endpoints.contains_key(&at) && self.endpoints.len() >= ENDPOINTS_MAX {
            return Finding { times: None, is_shared: beside_others, is_quarantined: false };
        }
        let endpoint = self.endpoints.entry(at).or_default();
        let is_shared = endpoint.breaks_at(now) || beside_others;
        let has_room =
            self.messages.len() < REMEMBERED_MAX && endpoint.messages < REMEMBERED_PER_ENDPOINT_MAX;
        if !self.messages.contains_key(&message) {
            if !has_room {
                return Finding { times: None, is_shared, is_quarantined: false };
            }
            endpoint.messages += 1;
        }
        let known = self.messages.entry(message).or_insert(KnownCause {
            endpoint: at,
            times: 0,
            resets: 0,
            last: now,
        });
        let is_first = known.resets == 0;
        // Without an answer to any message in between, the endpoint is simply down.
        let is_there = endpoint.answered.is_some_and(|answered| answered >= known.last);
        let would_quarantine = known.times + 1 >= quarantines_at;
        let may_be_its_doing = !is_shared || (in_turn && !would_quarantine);
        known.times += u32::from(is_first || (is_there && may_be_its_doing));
        known.resets += 1;
        known.last = now;
        let (times, resets) = (known.times, known.resets);
        let is_common = endpoint.is_common(resets);
        let is_quarantined = times >= quarantines_at && !is_common;
        if is_quarantined {
            // The quarantined message explains these breaks.
            endpoint.breaks.truncate(endpoint.breaks.len().saturating_sub(resets));
            self.forget(message);
        }
        Finding { times: (!is_common).then_some(times), is_shared, is_quarantined }
    }

    /// Removes old entries, at most once a minute.
    pub(super) fn tick(&mut self, now: Time) {
        if self.is_empty() || (now >= self.looked && now.since(self.looked) < LOOK_EVERY) {
            return;
        }
        self.looked = now;
        let is_old = |last: Time, span: Duration| now < last || now.since(last) >= span;
        let old = self.messages.iter().filter(|(_, known)| is_old(known.last, REMEMBERED_FOR));
        let old: Vec<u64> = old.map(|(message, _)| *message).collect();
        old.into_iter().for_each(|message| self.forget(message));
        for endpoint in self.endpoints.values_mut() {
            endpoint.breaks.retain(|at| !is_old(*at, COMMON_WITHIN));
        }
        self.endpoints.retain(|_, endpoint| endpoint.messages > 0 || !endpoint.breaks.is_empty());
    }
}

impl Resetting {
    /// Records a break. Returns whether another connection broke at the same time.
    fn breaks_at(&mut self, now: Time) -> bool {
        let is_together =
            self.breaks.back().is_some_and(|began| now >= *began && now.since(*began) < TOGETHER);
        if !is_together {
            if self.breaks.len() > 2 * COMMON {
                self.breaks.pop_front();
            }
            self.breaks.push_back(now);
        }
        is_together
    }

    /// Whether resets are common here, not counting `own` ones of the message in question.
    fn is_common(&self, own: usize) -> bool {
        self.breaks.len().saturating_sub(own) > COMMON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: u64 = 9;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    fn alone(message: u64) -> Reset {
        Reset { message, endpoint: ENDPOINT, in_turn: true, beside_others: false, quarantines_at: 3 }
    }

    fn beside(message: u64) -> Reset {
        Reset { beside_others: true, in_turn: false, ..alone(message) }
    }

    #[test]
    fn three_resets_quarantine_if_others_were_answered_in_between_and_it_was_alone_the_last_time() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.broke_off(beside(1), at(0)).times, Some(1));
        evidence.answered(50, ENDPOINT, at(500));
        let second = evidence.broke_off(Reset { in_turn: true, ..beside(1) }, at(1_000));
        assert_eq!((second.times, second.is_quarantined), (Some(2), false));
        evidence.answered(51, ENDPOINT, at(1_500));
        let beside_others = evidence.broke_off(Reset { in_turn: true, ..beside(1) }, at(2_000));
        assert_eq!(
            (beside_others.times, beside_others.is_quarantined),
            (Some(2), false),
            "whose fault was it?"
        );
        evidence.answered(52, ENDPOINT, at(2_500));
        let last = evidence.broke_off(alone(1), at(3_000));
        assert!(last.is_quarantined && last.times == Some(3) && !last.is_shared, "{last:?}");
        assert_eq!((evidence.len(), evidence.suspicion(1)), (0, None));
    }

    #[test]
    fn a_receiver_that_answers_nobody_is_just_gone() {
        let mut evidence = Evidence::default();
        for n in 0..20 {
            let finding = evidence.broke_off(alone(1), at(n * 60_000));
            assert_eq!((finding.times, finding.is_quarantined), (Some(1), false));
        }
    }

    #[test]
    fn what_breaks_off_together_is_shared_by_all() {
        let mut evidence = Evidence::default();
        assert!(evidence.broke_off(beside(1), at(0)).is_shared);
        // The last of them: no other call is in flight any more.
        assert!(evidence.broke_off(alone(2), at(3)).is_shared);
        assert!(!evidence.broke_off(alone(3), at(200)).is_shared);
        assert_eq!(evidence.endpoints[&ENDPOINT].breaks.len(), 2);
    }

    #[test]
    fn whoever_is_answered_is_cleared() {
        let mut evidence = Evidence::default();
        evidence.broke_off(beside(1), at(0));
        assert_eq!(evidence.suspicion(1), Some(Suspicion { endpoint: ENDPOINT, times: 1 }));
        evidence.answered(1, ENDPOINT, at(10));
        assert_eq!((evidence.suspicion(1), evidence.len()), (None, 0));
        assert_eq!(evidence.endpoints[&ENDPOINT].messages, 0);
    }

    #[test]
    fn where_resets_are_common_nothing_is_suspected() {
        let mut evidence = Evidence::default();
        for n in 0..20 {
            evidence.broke_off(alone(100 + n), at(n * 1_000));
            evidence.answered(100 + n, ENDPOINT, at(n * 1_000 + 500));
        }
        for n in 0..5 {
            let finding = evidence.broke_off(alone(1), at(30_000 + n * 1_000));
            assert_eq!((finding.times, finding.is_quarantined), (None, false));
            evidence.answered(2, ENDPOINT, at(30_500 + n * 1_000));
        }
        assert_eq!(evidence.suspicion(1), None, "it runs like any other");
        // Ten minutes later that is forgotten.
        evidence.tick(at(700_000));
        let later = evidence.broke_off(alone(7), at(700_000));
        assert_eq!(later.times, Some(1));
    }

    #[test]
    fn eight_pills_are_told_from_a_network_that_drops_connections() {
        let mut evidence = Evidence::default();
        let mut quarantined = 0;
        for round in 0..3 {
            for pill in 0..8 {
                let now = round * 10_000 + pill * 1_000;
                let reset = if round < 2 { Reset { in_turn: true, ..beside(pill) } } else { alone(pill) };
                quarantined += u32::from(evidence.broke_off(reset, at(now)).is_quarantined);
                evidence.answered(99, ENDPOINT, at(now + 500));
            }
        }
        assert_eq!(quarantined, 8);
    }

    #[test]
    fn memory_is_bounded_by_message_and_by_endpoint_key() {
        let mut evidence = Evidence::default();
        for n in 0..10_000 {
            evidence.broke_off(alone(n), at(n));
        }
        assert_eq!(evidence.len(), REMEMBERED_PER_ENDPOINT_MAX);
        assert!(evidence.endpoints[&ENDPOINT].breaks.len() <= 2 * COMMON + 1);
        for n in 0..10_000 {
            evidence.broke_off(Reset { endpoint: n, ..alone(20_000 + n) }, at(20_000 + n));
        }
        assert_eq!((evidence.len(), evidence.endpoints.len()), (REMEMBERED_MAX, ENDPOINTS_MAX));
        evidence.tick(at(2 * 3_600_000));
        assert!(evidence.is_empty(), "hours later nothing of it is left");
    }
}
