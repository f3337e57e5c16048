//! When an alert is sent: at once, then once per period while it lasts, and once when it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::Time;

use super::kind::AlertKind;
use super::notice::NoticeState;

/// The subject of an alert: a kind, of one pipeline or of the whole process.
pub type Subject = (AlertKind, Option<String>);

/// Keeps one alert from repeating itself too often. Its memory is bounded by kinds times pipelines.
#[derive(Clone, Debug)]
pub struct Rhythm {
    every: Duration,
    standings: BTreeMap<Subject, AlertPhase>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AlertPhase {
    /// When the problem began; `None` if there is none.
    since: Option<Time>,
    /// When the problem was last reported.
    sent: Option<Time>,
    /// Whether it was reported and its end was not.
    open: bool,
}

/// A report that is due, and when the problem began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    pub state: NoticeState,
    pub since: Time,
}

impl Rhythm {
    pub fn new(every: Duration) -> Self {
        Self { every, standings: BTreeMap::new() }
    }

    pub fn every(&self) -> Duration {
        self.every
    }

    /// Records whether the subject has a problem now, and returns the report that is due. A problem that comes and goes
    /// within a period is reported once, with its end; if there is one again after the period, it is reported again.
    pub fn hear(&mut self, subject: Subject, wrong: bool, now: Time) -> Option<Beat> {
        if !wrong && !self.standings.contains_key(&subject) {
            return None;
        }
        let standing = self.standings.entry(subject).or_default();
        if !wrong {
            let since = standing.since.take()?;
            return std::mem::take(&mut standing.open)
                .then_some(Beat { state: NoticeState::Resolved, since });
        }
        let since = *standing.since.get_or_insert(now);
        if standing.sent.is_some_and(|sent| now.since(sent) < self.every) {
            return None;
        }
        (standing.sent, standing.open) = (Some(now), true);
        Some(Beat { state: NoticeState::Firing, since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_millis(1_000_000_000 + secs * 1000)
    }

    /// The reports, second by second, if there is a problem during these spans.
    fn told(wrong: &[(u64, u64)], secs: u64) -> Vec<(u64, NoticeState, u64)> {
        let mut rhythm = Rhythm::new(Duration::from_mins(1));
        let subject = || (AlertKind::QueueDepth, Some("orders".to_owned()));
        let beats = (0..secs).filter_map(|now| {
            let is_wrong = wrong.iter().any(|(from, to)| (*from..*to).contains(&now));
            let beat = rhythm.hear(subject(), is_wrong, at(now))?;
            Some((now, beat.state, (beat.since.as_millis() - at(0).as_millis()) / 1000))
        });
        beats.collect()
    }

    #[test]
    fn it_is_told_at_once_then_once_a_period_then_that_it_is_over() {
        use NoticeState::{Firing, Resolved};
        assert_eq!(told(&[], 100), []);
        assert_eq!(
            told(&[(10, 150)], 200),
            [(10, Firing, 10), (70, Firing, 10), (130, Firing, 10), (150, Resolved, 10)]
        );
    }

    #[test]
    fn what_flickers_is_told_once_a_period() {
        use NoticeState::{Firing, Resolved};
        let flicker: Vec<_> = (0..10).map(|i| (i * 10, i * 10 + 5)).collect();
        assert_eq!(
            told(&flicker, 100),
            [(0, Firing, 0), (5, Resolved, 0), (60, Firing, 60), (65, Resolved, 60)]
        );
        // A problem that persists after the period is reported then, with its own beginning.
        assert_eq!(told(&[(0, 5), (50, 70)], 100)[2..], [(60, Firing, 50), (70, Resolved, 50)]);
    }

    #[test]
    fn subjects_do_not_hold_each_other_up() {
        let mut rhythm = Rhythm::new(Duration::from_mins(1));
        for pipeline in ["a", "b"] {
            for kind in [AlertKind::QueueDepth, AlertKind::OldestLetter] {
                assert!(rhythm.hear((kind, Some(pipeline.to_owned())), true, at(0)).is_some());
                assert!(rhythm.hear((kind, Some(pipeline.to_owned())), true, at(1)).is_none());
            }
        }
    }
}
