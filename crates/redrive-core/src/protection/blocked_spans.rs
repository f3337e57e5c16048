//! Records when the sink could not be called, to compute how long each message was held. Waiting messages are not
//! updated one by one, so their time is tracked here.

use std::collections::VecDeque;

use crate::Time;
use crate::time::millis;

/// The maximum number of stored spans. Beyond it the two oldest are merged, which keeps their sum.
const SPANS_MAX: usize = 16;

/// Recent spans in which nothing could be delivered.
#[derive(Clone, Debug, Default)]
pub struct BlockedSpans {
    over: VecDeque<BlockedSpan>,
    /// Start of the current span, if calls are blocked now.
    open_end: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct BlockedSpan {
    from: Time,
    until: Time,
    /// How long the sink could not be called within the span.
    blocked_ms: u64,
}

impl BlockedSpans {
    /// Blocks calls from `from` on. Does nothing if they are already blocked.
    pub fn block(&mut self, from: Time) {
        self.open_end = self.open_end.or(Some(from));
    }

    /// Ends the current span: calls are possible again.
    pub fn unblock(&mut self, until: Time) {
        let Some(from) = self.open_end.take().filter(|from| *from < until) else { return };
        self.over.push_back(BlockedSpan { from, until, blocked_ms: millis(until.since(from)) });
        if self.over.len() > SPANS_MAX
            && let Some(oldest) = self.over.pop_front()
            && let Some(next) = self.over.front_mut()
        {
            next.from = oldest.from;
            next.blocked_ms = next.blocked_ms.saturating_add(oldest.blocked_ms);
        }
    }

    /// How long a message was blocked between `since`, when it became ready, and `until`, in milliseconds. Never more
    /// than the elapsed time.
    pub fn blocked_ms_between(&self, since: Time, until: Time) -> u64 {
        // Most messages are younger than the last outage.
        if self.open_end.is_none() && self.over.back().is_none_or(|last| last.until <= since) {
            return 0;
        }
        let current = self.open_end.map_or(0, |from| millis(until.since(from.max(since))));
        let of = |span: &BlockedSpan| {
            let both = millis(until.min(span.until).since(since.max(span.from)));
            span.blocked_ms.min(both)
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

    fn blocked(spans: impl IntoIterator<Item = (u64, u64)>) -> BlockedSpans {
        let mut all = BlockedSpans::default();
        for (from, until) in spans {
            all.block(at(from));
            all.unblock(at(until));
        }
        all
    }

    #[test]
    fn only_the_time_it_was_blocked_counts_and_only_since_a_message_was_ready() {
        let mut all = blocked([(10, 20), (30, 40)]);
        assert_eq!(all.blocked_ms_between(at(0), at(100)), 20_000);
        assert_eq!(all.blocked_ms_between(at(15), at(100)), 15_000);
        assert_eq!(all.blocked_ms_between(at(35), at(100)), 5_000);
        assert_eq!(all.blocked_ms_between(at(50), at(100)), 0);
        assert_eq!(all.blocked_ms_between(at(0), at(15)), 5_000);
        assert_eq!(all.blocked_ms_between(at(0), at(25)), 10_000);
        all.block(at(100));
        all.block(at(105));
        assert_eq!(all.blocked_ms_between(at(50), at(110)), 10_000, "blocked twice is blocked once");
        all.unblock(at(110));
        all.unblock(at(120));
        assert_eq!(all.blocked_ms_between(at(0), at(200)), 30_000);
    }

    #[test]
    fn a_thousand_spans_take_little_room_and_their_sum_is_kept() {
        let all = blocked((0..1_000).map(|n| (n * 10, n * 10 + 5)));
        assert_eq!(all.over.len(), SPANS_MAX);
        assert_eq!(all.blocked_ms_between(at(0), at(20_000)), 5_000_000);
        assert_eq!(all.blocked_ms_between(at(9_990), at(20_000)), 5_000);
        assert!(all.blocked_ms_between(at(5_000), at(20_000)) >= 5_000 * 500, "never too little");
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_up() {
        let mut all = BlockedSpans::default();
        all.block(at(100));
        all.unblock(at(50));
        assert_eq!(all.blocked_ms_between(at(0), at(200)), 0);
        all.block(at(100));
        assert_eq!(all.blocked_ms_between(at(150), at(120)), 0);
    }
}
