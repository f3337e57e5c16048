//! The last five minutes of a pipeline: latencies, how long messages were held, and failures.
//!
//! Counters since the start of the process remember an outage for ever; these forget it. Time during which nothing
//! could be sent (breaker open, Retry-After, pause) is counted separately, because it says nothing about how fast the
//! pipeline is.

use std::time::Duration;

use redrive_core::blocked_spans::BlockedSpans;
use redrive_core::{FailureKind, Time};

use super::histogram::Histogram;

/// The length of the window.
pub const WINDOW: Duration = Duration::from_mins(5);
/// Slots of the window; the oldest is dropped as a whole.
const SLOTS: usize = 10;
const SLOT_MS: u64 = WINDOW.as_millis() as u64 / SLOTS as u64;
/// Kinds of failures that are counted separately in a slot.
const KINDS_MAX: usize = 8;

/// The figures of the last five minutes.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentFigures {
    /// From a message's creation until it succeeded, without the time it was held.
    pub end_to_end: Histogram,
    /// How late messages with a due time started, without the time they were held.
    pub lateness: Histogram,
    /// How long messages had been held before they succeeded; only those that were held at all.
    pub held: Histogram,
    /// Calls that failed.
    pub failures: RecentFailures,
}

/// Failed attempts by kind, the most frequent first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RecentFailures {
    /// Counts by kind, the most frequent first.
    pub kinds: Vec<(FailureKind, u64)>,
    /// Failures of kinds that were not counted separately.
    pub more: u64,
    /// Of all failures, those of replayed letters.
    pub replayed: u64,
}

impl RecentFailures {
    /// All failures.
    pub fn total(&self) -> u64 {
        self.kinds.iter().map(|(_, count)| count).sum::<u64>() + self.more
    }
}

impl Default for RecentFigures {
    fn default() -> Self {
        let spans = Histogram::of_spans();
        Self { end_to_end: spans, lateness: spans, held: spans, failures: RecentFailures::default() }
    }
}

/// Counts into the slot of the current time.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    slots: Vec<RecentSlot>,
    gate: BlockedSpans,
}

#[derive(Debug)]
struct RecentSlot {
    number: u64,
    figures: RecentFigures,
}

impl Recent {
    /// Records whether sending is blocked from `now` on.
    pub(crate) fn gate(&mut self, is_closed: bool, now: Time) {
        if is_closed { self.gate.block(now) } else { self.gate.unblock(now) }
    }

    /// A message starts that was ready at `ready`; it is late if it had a due time.
    pub(crate) fn late(&mut self, ready: Time, now: Time) {
        let late = now.as_millis().saturating_sub(ready.as_millis());
        let held = self.gate.blocked_ms_between(ready, now);
        self.slot(now).lateness.observe_ms(late.saturating_sub(held));
    }

    /// A message succeeded that was created at `created`, deferred for `put_off_ms` in total without using up an
    /// attempt, and last ready at `ready`.
    pub(crate) fn succeeded(&mut self, created: Time, put_off_ms: u64, ready: Time, now: Time) {
        let took = now.as_millis().saturating_sub(created.as_millis());
        let held = put_off_ms.saturating_add(self.gate.blocked_ms_between(ready, now)).min(took);
        let slot = self.slot(now);
        slot.end_to_end.observe_ms(took - held);
        if held > 0 {
            slot.held.observe_ms(held);
        }
    }

    pub(crate) fn failed(&mut self, kind: FailureKind, is_replayed: bool, now: Time) {
        self.slot(now).failures.add(kind, 1);
        self.slot(now).failures.replayed += u64::from(is_replayed);
    }

    pub(crate) fn figures(&self, now: Time) -> RecentFigures {
        let from = (now.as_millis() / SLOT_MS).saturating_sub(SLOTS as u64 - 1);
        let mut all = RecentFigures::default();
        for RecentSlot { figures, .. } in self.slots.iter().filter(|slot| slot.number >= from) {
            all.end_to_end = all.end_to_end.merged(&figures.end_to_end);
            all.lateness = all.lateness.merged(&figures.lateness);
            all.held = all.held.merged(&figures.held);
            figures.failures.kinds.iter().for_each(|(kind, count)| all.failures.add(*kind, *count));
            all.failures.more += figures.failures.more;
            all.failures.replayed += figures.failures.replayed;
        }
        all.failures.kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
        all
    }

    fn slot(&mut self, now: Time) -> &mut RecentFigures {
        let number = now.as_millis() / SLOT_MS;
        let at = (number % SLOTS as u64) as usize;
        while self.slots.len() <= at {
            self.slots.push(RecentSlot { number: 0, figures: RecentFigures::default() });
        }
        let slot = &mut self.slots[at];
        if slot.number != number {
            *slot = RecentSlot { number, figures: RecentFigures::default() };
        }
        &mut slot.figures
    }
}

impl RecentFailures {
    fn add(&mut self, kind: FailureKind, count: u64) {
        let known = self.kinds.iter().position(|(known, _)| *known == kind);
        match known {
            Some(at) => self.kinds[at].1 += count,
            None if self.kinds.len() < KINDS_MAX => self.kinds.push((kind, count)),
            None => self.more += count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_millis(1_000_000 + second * 1_000)
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut recent = Recent::default();
        recent.succeeded(at(0), 0, at(0), at(60));
        recent.failed(FailureKind::Reset, false, at(60));
        assert_eq!(recent.figures(at(60)).end_to_end.max(), Some(60.0));
        assert_eq!(recent.figures(at(330)).end_to_end.count(), 1);
        let later = recent.figures(at(400));
        assert_eq!((later.end_to_end.count(), later.failures.total()), (0, 0));
        recent.succeeded(at(400), 0, at(400), at(401));
        assert_eq!(recent.figures(at(401)).end_to_end.max(), Some(1.0), "one outage is not remembered");
        assert!(recent.slots.len() <= SLOTS);
    }

    #[test]
    fn time_during_which_nothing_could_be_sent_is_counted_apart() {
        let mut recent = Recent::default();
        recent.gate(true, at(10));
        recent.gate(true, at(20));
        recent.gate(false, at(70));
        recent.late(at(5), at(72));
        recent.succeeded(at(0), 0, at(5), at(72));
        recent.succeeded(at(71), 0, at(71), at(72));
        let figures = recent.figures(at(72));
        assert_eq!(figures.lateness.max(), Some(7.0));
        assert_eq!((figures.end_to_end.max(), figures.end_to_end.count()), (Some(12.0), 2));
        assert_eq!((figures.held.max(), figures.held.count()), (Some(60.0), 1));
    }

    #[test]
    fn time_for_which_a_message_was_put_off_is_held_time() {
        let mut recent = Recent::default();
        recent.succeeded(at(0), 100_000, at(110), at(111));
        let figures = recent.figures(at(111));
        assert_eq!((figures.end_to_end.max(), figures.held.max()), (Some(11.0), Some(100.0)));
        recent.succeeded(at(0), u64::MAX, at(110), at(111));
        assert_eq!(recent.figures(at(111)).held.max(), Some(111.0), "never more than has passed");
    }

    #[test]
    fn failures_are_counted_by_kind_and_kinds_are_bounded() {
        let mut recent = Recent::default();
        recent.failed(FailureKind::Status(503), true, at(0));
        for _ in 0..3 {
            recent.failed(FailureKind::Reset, false, at(40));
        }
        let failures = recent.figures(at(41)).failures;
        assert_eq!(failures.kinds, [(FailureKind::Reset, 3), (FailureKind::Status(503), 1)]);
        assert_eq!(failures.replayed, 1);
        (400..500).for_each(|status| recent.failed(FailureKind::Status(status), false, at(42)));
        let failures = recent.figures(at(42)).failures;
        assert_eq!((failures.kinds.len(), failures.total()), (KINDS_MAX, 104));
    }
}
