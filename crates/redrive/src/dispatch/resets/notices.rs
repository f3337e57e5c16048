//! Rate limit for log lines about closed connections: the first few per minute are logged singly, the rest as a
//! summary.

use std::time::Duration;

use redrive_core::Time;

/// Resets logged singly …
const ONE_BY_ONE: u64 = 3;
/// … within this span.
pub(super) const WITHIN: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Notices {
    began: Option<Time>,
    resets: u64,
    /// Resets of the previous span.
    before: u64,
}

impl Notices {
    /// Records a closed connection. Returns whether to log it on a line of its own.
    pub(super) fn closed(&mut self, now: Time) -> bool {
        self.began.get_or_insert(now);
        self.resets += 1;
        self.resets <= ONE_BY_ONE
    }

    /// Returns how many were not logged, once the span is over.
    pub(super) fn tick(&mut self, now: Time) -> Option<u64> {
        let began = self.began?;
        if now >= began && now.since(began) < WITHIN {
            return None;
        }
        let resets = std::mem::take(&mut self.resets);
        self.before = resets;
        // While resets continue, the next span begins where this one ended.
        self.began = (resets > 0).then_some(now);
        Some(resets.saturating_sub(ONE_BY_ONE)).filter(|more| *more > 0)
    }

    /// Resets of the last one to two minutes.
    pub(super) fn lately(&self) -> u64 {
        self.resets + self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + second * 1_000)
    }

    #[test]
    fn a_flood_takes_a_few_lines() {
        let mut notices = Notices::default();
        let lines = (0..1_800).filter(|n| notices.closed(at(n / 30))).count();
        assert_eq!((lines, notices.tick(at(59)), notices.tick(at(60))), (3, None, Some(1_797)));
        assert_eq!(notices.lately(), 1_800);
        assert!(notices.closed(at(61)));
        assert_eq!((notices.tick(at(119)), notices.tick(at(120)), notices.lately()), (None, None, 1));
        assert_eq!((notices.tick(at(180)), notices.lately(), notices.began), (None, 0, None));
    }
}
