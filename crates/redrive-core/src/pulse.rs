//! Whether anything gets through at all: the last outcomes of distinct messages, whatever their attempt.
//!
//! The breaker needs many messages within seconds. A pipeline with a message a minute has outages too, and nothing of it
//! shall be given up for exhaustion meanwhile; so this one looks at numbers and not at seconds.

use std::time::Duration;

use crate::Time;

/// Outcomes that are remembered.
const LAST: usize = 32;
/// So many are needed to say anything.
const MIN: usize = 20;
/// Weaker than this, in percent of them that succeeded, is no pulse.
const LEAST_PERCENT: usize = 10;
/// What is older says nothing about now.
const OLD: Duration = Duration::from_hours(1);

#[derive(Clone, Debug, Default)]
pub struct Pulse {
    last: Vec<Beat>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    message: u64,
    at: Time,
    is_good: bool,
}

impl Pulse {
    /// An attempt of `message` ended. A message is remembered once, with its latest outcome.
    pub fn beat(&mut self, message: u64, is_first: bool, is_good: bool, at: Time) {
        let beat = Beat { message, at, is_good };
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
