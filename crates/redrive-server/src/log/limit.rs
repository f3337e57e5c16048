//! Limits how many events of one kind are logged individually. Pure: the time comes with the events.

use std::time::Duration;

use redrive::Time;

/// The length of the window in which the limits apply.
pub const WINDOW: Duration = Duration::from_secs(10);
/// The maximum number of retries of one kind logged within the window. Each retry will lead to another decision.
const RETRIES_MAX: u64 = 10;
/// The same for dead letters of one kind, which a person decides about.
const DEAD_MAX: u64 = 100;

/// Events that are counted together. There are few groups: kinds and reasons are closed sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub is_dead: bool,
    /// The kind of failure, or the reason of a letter without one.
    pub kind: &'static str,
}

/// How many events of a group were not logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub group: Group,
    pub count: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Admitted {
    pub is_in: bool,
    /// Whether it is the first of its window to be left out.
    pub is_first_left_out: bool,
    /// What the previous window left out, if this event starts a new one.
    pub ended: Vec<LeftOut>,
}

#[derive(Debug, Default)]
pub struct LogLimit {
    began: Option<Time>,
    seen: Vec<(Group, u64)>,
}

impl LogLimit {
    /// Counts an event of this group, and decides whether it is logged.
    pub fn admit(&mut self, group: Group, at: Time) -> Admitted {
        let is_over = |began: Time| at < began || at.since(began) >= WINDOW;
        let ended = if self.began.is_some_and(is_over) { self.end() } else { Vec::new() };
        self.began = self.began.or(Some(at));
        let had_left_out = self.seen.iter().any(|(group, seen)| *seen > group.max());
        let at = self.seen.iter().position(|(known, _)| *known == group).unwrap_or_else(|| {
            self.seen.push((group, 0));
            self.seen.len() - 1
        });
        self.seen[at].1 += 1;
        let seen = self.seen[at].1;
        let is_in = seen <= group.max();
        Admitted { is_in, is_first_left_out: !is_in && !had_left_out, ended }
    }

    /// Ends the window, and returns what it left out.
    pub fn end(&mut self) -> Vec<LeftOut> {
        self.began = None;
        let left_out =
            |(group, seen): (Group, u64)| LeftOut { group, count: seen.saturating_sub(group.max()) };
        self.seen.drain(..).map(left_out).filter(|left_out| left_out.count > 0).collect()
    }
}

impl Group {
    fn max(self) -> u64 {
        if self.is_dead { DEAD_MAX } else { RETRIES_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: Group = Group { is_dead: false, kind: "reset" };

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    #[test]
    fn each_group_has_its_share_of_the_window() {
        let mut limit = LogLimit::default();
        let admitted: Vec<bool> = (0..12).map(|ms| limit.admit(RESET, at(ms)).is_in).collect();
        assert_eq!(admitted.iter().filter(|is_in| **is_in).count(), 10);
        assert!(
            limit.admit(Group { is_dead: true, ..RESET }, at(20)).is_in,
            "a dead letter is another group"
        );
        assert!(limit.admit(Group { kind: "timeout", ..RESET }, at(20)).is_in);
        let next = limit.admit(RESET, at(10_000));
        assert!(next.is_in);
        assert_eq!(next.ended, [LeftOut { group: RESET, count: 2 }]);
        assert!(limit.end().is_empty());
    }

    #[test]
    fn the_summary_is_asked_for_once() {
        let mut limit = LogLimit::default();
        let first: Vec<bool> = (0..40).map(|ms| limit.admit(RESET, at(ms)).is_first_left_out).collect();
        assert_eq!(first.iter().filter(|is_first| **is_first).count(), 1);
    }

    #[test]
    fn a_clock_that_is_set_back_begins_a_new_window() {
        let mut limit = LogLimit::default();
        (0..20).for_each(|_| drop(limit.admit(RESET, at(5_000))));
        assert_eq!(limit.admit(RESET, at(0)).ended.len(), 1);
    }
}
