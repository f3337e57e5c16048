//! Detects that the dispatch thread did not run for a while: the process was stopped, its machine was suspended, or
//! it was starved of processor or disk. Messages are late then for no other visible reason.

use std::time::{Duration, Instant};

/// The thread runs a round at least once a second, so it does not cause a gap of this length itself.
const NOTICED_FROM: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Standstill {
    last: Option<Instant>,
}

impl Standstill {
    /// A round begins. Returns for how long the thread stood still before it, if it did.
    pub(crate) fn round(&mut self, now: Instant) -> Option<Duration> {
        let before = self.last.replace(now)?;
        let gap = now.saturating_duration_since(before);
        (gap >= NOTICED_FROM).then_some(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_between_two_rounds_is_noticed_once() {
        let (mut standstill, start) = (Standstill::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(standstill.round(at(100)), None, "the first round has none before it");
        assert_eq!(standstill.round(at(101)), None);
        assert_eq!(standstill.round(at(143)), Some(Duration::from_secs(42)));
        assert_eq!(standstill.round(at(144)), None);
    }
}
