//! Finds what is wrong with a pipeline. Pure: limits, facts and earlier counts are arguments.

use std::collections::VecDeque;
use std::time::Duration;

use redrive::{StatusPage, Time};
use redrive_core::duration;

use super::facts::Facts;
use super::groups::FoundGroups;
use super::kind::AlertKind;

/// Thresholds above which an alert is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// New dead letters within the span `within`.
    pub dead_letters: u64,
    pub within: Duration,
    /// The age of the oldest open letter.
    pub oldest_letter: Duration,
    /// Pending messages.
    pub queue_depth: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dead_letters: 100,
            within: Duration::from_mins(10),
            oldest_letter: Duration::from_hours(24),
            queue_depth: 10_000,
        }
    }
}

/// A problem that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: AlertKind,
    /// The problem, in a sentence.
    pub summary: String,
    /// The number that is too high: letters, seconds, messages.
    pub value: Option<u64>,
    pub limit: Option<u64>,
    /// Status pages that show whether the service is at fault.
    pub status_pages: &'static [StatusPage],
}

/// The earlier counts of one pipeline.
#[derive(Clone, Debug)]
pub struct Past {
    /// The counter of dead letters at earlier times, oldest first. Bounded by [`MARKS_MAX`].
    marks: VecDeque<(Time, u64)>,
    last_pill: Option<Time>,
    last_new_group: Option<Time>,
    last_regressed: Option<Time>,
}

/// The resolution of the window of new dead letters.
const MARKS_MAX: u32 = 60;

impl Past {
    /// The state before anything was counted: counters start at zero with the process.
    pub fn at(now: Time) -> Self {
        Self {
            marks: VecDeque::from([(now, 0)]),
            last_pill: None,
            last_new_group: None,
            last_regressed: None,
        }
    }

    /// The number of new dead letters within the window; also records this time.
    fn arrived(&mut self, dead: u64, within: Duration, now: Time) -> u64 {
        let (step, begin) = (within / MARKS_MAX, now.as_millis().saturating_sub(within.as_millis() as u64));
        // Count from the youngest mark that is old enough; older ones are no longer needed.
        while self.marks.len() > 1 && self.marks[1].0.as_millis() <= begin {
            self.marks.pop_front();
        }
        let before = self.marks.front().map_or(0, |(_, count)| *count);
        if self.marks.back().is_none_or(|(at, _)| now.since(*at) >= step) {
            self.marks.push_back((now, dead));
        }
        dead.saturating_sub(before)
    }
}

/// Whether something happens now, or happened at most `memory` ago.
fn is_recent(last: &mut Option<Time>, happened: bool, memory: Duration, now: Time) -> bool {
    if happened {
        *last = Some(now);
    }
    last.is_some_and(|last| now.since(last) < memory)
}

/// All current problems of a pipeline. A poison pill, and a group that is new or back, count for as long as `memory`:
/// they are events without an end.
pub fn judge(
    pipeline: &str,
    facts: &Facts,
    limits: &Limits,
    past: &mut Past,
    memory: Duration,
    now: Time,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |kind, summary: String, value: Option<u64>, limit: Option<u64>| {
        let is_breaker = kind == AlertKind::BreakerOpen;
        let status_pages = if is_breaker { facts.status_pages } else { &[] };
        findings.push(Finding { kind, summary, value, limit, status_pages });
    };
    if let Some(why) = &facts.breaker_open {
        let pages: Vec<String> = facts.status_pages.iter().map(ToString::to_string).collect();
        let see =
            if pages.is_empty() { String::new() } else { format!("; status pages: {}", pages.join(", ")) };
        find(AlertKind::BreakerOpen, format!("{pipeline}: the breaker is open: {why}{see}"), None, None);
    }
    let arrived = past.arrived(facts.dead, limits.within, now);
    if arrived > limits.dead_letters {
        let within = duration::print(limits.within);
        let summary =
            format!("{pipeline}: {arrived} new dead letters within {within}, {} open", facts.open_letters);
        find(AlertKind::DeadLetters, summary, Some(arrived), Some(limits.dead_letters));
    }
    if let Some(age) = facts.oldest_letter.map(|at| now.since(at)).filter(|age| *age > limits.oldest_letter) {
        let hours = age.as_secs() / 3600;
        let summary = format!("{pipeline}: the oldest open dead letter died {hours} hours ago");
        find(AlertKind::OldestLetter, summary, Some(age.as_secs()), Some(limits.oldest_letter.as_secs()));
    }
    if facts.pending > limits.queue_depth {
        let summary = format!("{pipeline}: {} messages are pending", facts.pending);
        find(AlertKind::QueueDepth, summary, Some(facts.pending), Some(limits.queue_depth));
    }
    if is_recent(&mut past.last_pill, !facts.pills.is_empty(), memory, now) {
        let summary = format!("{pipeline}: a message crashed its worker too often and is quarantined");
        find(AlertKind::PoisonPill, summary, None, None);
    }
    if let Some(why) = &facts.guarded {
        find(AlertKind::Guard, format!("{pipeline}: paused by the guard: {why}"), None, None);
    }
    if let Some(why) = &facts.purging_stopped {
        find(AlertKind::PurgingStopped, format!("{pipeline}: purging stopped: {why}"), None, None);
    }
    let FoundGroups { new, regressed } = &facts.groups;
    if is_recent(&mut past.last_new_group, !new.is_empty(), memory, now) {
        let summary = format!("{pipeline}: a new group of dead letters appeared");
        find(AlertKind::NewGroup, summary, None, None);
    }
    if is_recent(&mut past.last_regressed, !regressed.is_empty(), memory, now) {
        let summary = format!("{pipeline}: resolved groups of dead letters are back");
        find(AlertKind::GroupRegressed, summary, None, None);
    }
    if let Some(why) = &facts.replay_stopped {
        find(AlertKind::ReplayStopped, format!("{pipeline}: {why}"), None, None);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::facts::Pill;
    use crate::alerts::groups::{GroupNews, GroupsFound};

    const MEMORY: Duration = Duration::from_mins(15);

    fn at(secs: u64) -> Time {
        Time::from_millis(1_000_000_000 + secs * 1000)
    }

    fn pill() -> Pill {
        Pill {
            message_id: "o-1".to_owned(),
            crash_count: 3,
            first_crash_at: Some(at(0)),
            last_crash_at: Some(at(9)),
            quarantined_at: at(10),
            attempts: 3,
        }
    }

    #[test]
    fn each_limit_is_told_above_it_and_not_at_it() {
        let none: &[AlertKind] = &[];
        let day = 24 * 3600;
        let quiet = Facts { dead: 100, pending: 10_000, oldest_letter: Some(at(0)), ..Facts::default() };
        let table: &[(Facts, u64, &[AlertKind])] = &[
            (Facts::default(), 60, none),
            (quiet.clone(), day, none),
            (Facts { dead: 101, ..quiet.clone() }, 60, &[AlertKind::DeadLetters]),
            (quiet.clone(), day + 1, &[AlertKind::OldestLetter]),
            (Facts { pending: 10_001, ..quiet.clone() }, 60, &[AlertKind::QueueDepth]),
            (Facts { breaker_open: Some("51 %".to_owned()), ..quiet.clone() }, 60, &[AlertKind::BreakerOpen]),
            (Facts { guarded: Some("90 %".to_owned()), ..quiet.clone() }, 60, &[AlertKind::Guard]),
            (
                Facts { purging_stopped: Some("2.3 %".to_owned()), ..quiet.clone() },
                60,
                &[AlertKind::PurgingStopped],
            ),
            (
                Facts { replay_stopped: Some("replay r-3 was stopped".to_owned()), ..quiet.clone() },
                60,
                &[AlertKind::ReplayStopped],
            ),
            (Facts { pills: vec![pill()], ..quiet }, 60, &[AlertKind::PoisonPill]),
        ];
        for (facts, secs, expected) in table {
            let found = judge("orders", facts, &Limits::default(), &mut Past::at(at(0)), MEMORY, at(*secs));
            let kinds: Vec<AlertKind> = found.iter().map(|finding| finding.kind).collect();
            assert_eq!(&kinds, expected, "{facts:?} after {secs} s");
            assert!(found.iter().all(|finding| finding.summary.starts_with("orders: ")), "{found:?}");
        }
    }

    fn group(id: &str) -> GroupsFound {
        let title = "422: field must be one of <quoted>".to_owned();
        GroupsFound { named: vec![GroupNews { id: id.to_owned(), title, open: 12 }], more: 0 }
    }

    #[test]
    fn a_group_that_is_new_or_back_is_named_and_over_after_a_while() {
        let mut past = Past::at(at(0));
        let groups = FoundGroups { new: group("g1"), regressed: group("g2") };
        let facts = Facts { groups, ..Facts::default() };
        let found = judge("orders", &facts, &Limits::default(), &mut past, MEMORY, at(1));
        let told: Vec<(AlertKind, &str)> =
            found.iter().map(|finding| (finding.kind, finding.summary.as_str())).collect();
        assert_eq!(
            told,
            [
                (AlertKind::NewGroup, "orders: a new group of dead letters appeared"),
                (AlertKind::GroupRegressed, "orders: resolved groups of dead letters are back"),
            ]
        );
        let quiet = Facts::default();
        assert_eq!(judge("orders", &quiet, &Limits::default(), &mut past, MEMORY, at(900)).len(), 2);
        assert_eq!(judge("orders", &quiet, &Limits::default(), &mut past, MEMORY, at(901)), []);
    }

    #[test]
    fn only_dead_letters_of_the_window_are_new() {
        let mut past = Past::at(at(0));
        let mut told = Vec::new();
        // 60 per minute for two minutes, then none.
        for secs in 1..=1200 {
            let facts = Facts { dead: secs.min(120), ..Facts::default() };
            let found = judge("orders", &facts, &Limits::default(), &mut past, MEMORY, at(secs));
            told.extend(found.iter().map(|finding| (secs, finding.value.unwrap())));
            assert!(past.marks.len() <= MARKS_MAX as usize + 2);
        }
        assert_eq!(told.first(), Some(&(101, 101)));
        let last = told.last().unwrap().0;
        assert!(
            (610..=640).contains(&last),
            "it is over ten minutes after it was, give or take a mark: {last}"
        );
    }

    #[test]
    fn letters_of_an_earlier_process_are_not_new() {
        let facts = Facts { dead: 0, open_letters: 90_000, ..Facts::default() };
        assert_eq!(judge("orders", &facts, &Limits::default(), &mut Past::at(at(0)), MEMORY, at(1)), []);
    }

    #[test]
    fn a_pill_is_remembered_for_a_while() {
        let mut past = Past::at(at(0));
        let facts = Facts { pills: vec![pill()], ..Facts::default() };
        assert_eq!(judge("orders", &facts, &Limits::default(), &mut past, MEMORY, at(1)).len(), 1);
        let quiet = Facts::default();
        assert_eq!(judge("orders", &quiet, &Limits::default(), &mut past, MEMORY, at(900)).len(), 1);
        assert_eq!(judge("orders", &quiet, &Limits::default(), &mut past, MEMORY, at(901)), []);
    }
}
