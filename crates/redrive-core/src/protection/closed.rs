//! When a sink was closed, so that it is known of every message for how long that kept it waiting. Messages that wait for a
//! closed sink are not touched, so the time they spend is counted here and not at each of them.

use std::collections::VecDeque;

use crate::Time;
use crate::time::millis;

/// Spans that are stored separately. Beyond it the two oldest become one, which keeps their sum.
const SPANS_MAX: usize = 16;

/// The spans of the last time in which nothing was delivered.
#[derive(Clone, Debug, Default)]
pub struct ClosedSpans {
    over: VecDeque<ClosedSpan>,
    /// Since when it is closed now.
    open_end: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct ClosedSpan {
    from: Time,
    until: Time,
    /// How much of it the sink was closed.
    closed_ms: u64,
}

impl ClosedSpans {
    /// It is closed from `from` on. Nothing if it is already.
    pub fn close(&mut self, from: Time) {
        self.open_end = self.open_end.or(Some(from));
    }

    /// It is open again.
    pub fn open(&mut self, until: Time) {
        let Some(from) = self.open_end.take().filter(|from| *from < until) else { return };
        self.over.push_back(ClosedSpan { from, until, closed_ms: millis(until.since(from)) });
        if self.over.len() > SPANS_MAX
            && let Some(oldest) = self.over.pop_front()
            && let Some(next) = self.over.front_mut()
        {
            next.from = oldest.from;
            next.closed_ms = next.closed_ms.saturating_add(oldest.closed_ms);
        }
    }

    /// How long it was closed to a message between `since`, when it was ready, and `until`, in milliseconds. Never more
    /// than has passed.
    pub fn kept_ms(&self, since: Time, until: Time) -> u64 {
        // Most messages are younger than the last outage.
        if self.open_end.is_none() && self.over.back().is_none_or(|last| last.until <= since) {
            return 0;
        }
        let current = self.open_end.map_or(0, |from| millis(until.since(from.max(since))));
        let of = |span: &ClosedSpan| {
            let both = millis(until.min(span.until).since(since.max(span.from)));
            span.closed_ms.min(both)
        };
        self.over.iter().map(of).fold(current, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_millis(second * 1_000)
    }

    fn closed(spans: impl IntoIterator<Item = (u64, u64)>) -> ClosedSpans {
        let mut all = ClosedSpans::default();
        for (from, until) in spans {
            all.close(at(from));
            all.open(at(until));
        }
        all
    }

    #[test]
    fn only_the_time_it_was_closed_counts_and_only_since_a_message_was_ready() {
        let mut all = closed([(10, 20), (30, 40)]);
        assert_eq!(all.kept_ms(at(0), at(100)), 20_000);
        assert_eq!(all.kept_ms(at(15), at(100)), 15_000);
        assert_eq!(all.kept_ms(at(35), at(100)), 5_000);
        assert_eq!(all.kept_ms(at(50), at(100)), 0);
        assert_eq!(all.kept_ms(at(0), at(15)), 5_000);
        assert_eq!(all.kept_ms(at(0), at(25)), 10_000);
        all.close(at(100));
        all.close(at(105));
        assert_eq!(all.kept_ms(at(50), at(110)), 10_000, "closed twice is closed once");
        all.open(at(110));
        all.open(at(120));
        assert_eq!(all.kept_ms(at(0), at(200)), 30_000);
    }

    #[test]
    fn a_thousand_spans_take_little_room_and_their_sum_is_kept() {
        let all = closed((0..1_000).map(|n| (n * 10, n * 10 + 5)));
        assert_eq!(all.over.len(), SPANS_MAX);
        assert_eq!(all.kept_ms(at(0), at(20_000)), 5_000_000);
        assert_eq!(all.kept_ms(at(9_990), at(20_000)), 5_000);
        assert!(all.kept_ms(at(5_000), at(20_000)) >= 5_000 * 500, "never too little");
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_up() {
        let mut all = ClosedSpans::default();
        all.close(at(100));
        all.open(at(50));
        assert_eq!(all.kept_ms(at(0), at(200)), 0);
        all.close(at(100));
        assert_eq!(all.kept_ms(at(150), at(120)), 0);
    }
}
