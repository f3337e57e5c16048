//! Open letters by group, in memory, indexed by number and by time of death.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use redrive_core::{GroupId, Time};

use super::rate::ArrivalRate;
use super::{GROUPS_MAX, GroupFigures};

/// A group; it has at least one open letter.
#[derive(Debug, Default)]
struct OpenGroup {
    times: BTreeSet<(Time, u64)>,
    numbers: BTreeSet<u64>,
    rate: ArrivalRate,
}

/// At most [`GROUPS_MAX`] groups, those that are reserved, and [`GroupId::OTHER`].
#[derive(Debug, Default)]
pub struct OpenGroups {
    groups: BTreeMap<GroupId, OpenGroup>,
    reserved: BTreeSet<GroupId>,
}

impl OpenGroups {
    /// Reserves counters for these groups even beyond the limit.
    pub fn reserve(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        self.reserved = groups.into_iter().collect();
    }

    /// Counts a letter that opens. Returns the group it is counted in, which must be passed when it leaves.
    pub fn enter(&mut self, group: GroupId, dead_at: Time, number: u64) -> GroupId {
        let group = self.enter_again(group, dead_at, number);
        if let Some(open) = self.groups.get_mut(&group) {
            open.rate.add(dead_at);
        }
        group
    }

    /// Counts a letter that opens again after an undone discard. It was counted when it died, so it is no new
    /// arrival.
    pub fn enter_again(&mut self, group: GroupId, dead_at: Time, number: u64) -> GroupId {
        let is_known = group.is_other() || self.groups.contains_key(&group) || self.reserved.contains(&group);
        let named = self.groups.len() - usize::from(self.groups.contains_key(&GroupId::OTHER));
        let group = if is_known || named < GROUPS_MAX { group } else { GroupId::OTHER };
        let open = self.groups.entry(group).or_default();
        open.times.insert((dead_at, number));
        open.numbers.insert(number);
        group
    }

    /// Removes a letter that is resolved or dies again.
    pub fn leave(&mut self, group: GroupId, dead_at: Time, number: u64) {
        let Some(open) = self.groups.get_mut(&group) else { return };
        open.times.remove(&(dead_at, number));
        open.numbers.remove(&number);
        if open.numbers.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// The groups that have open letters.
    pub fn figures(&self, now: Time) -> Vec<GroupFigures> {
        let figures = |(group, open): (&GroupId, &OpenGroup)| GroupFigures {
            group: *group,
            open: open.numbers.len() as u64,
            oldest: open.times.first().copied(),
            per_minute: open.rate.per_minute(now),
        };
        self.groups.iter().map(figures).collect()
    }

    /// Open letters of a group after `after`, in the order of their numbers.
    pub fn letters(&self, group: GroupId, after: Option<u64>, limit: usize) -> Vec<u64> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let numbers = self.groups.get(&group).map(|open| open.numbers.range((from, Bound::Unbounded)));
        numbers.into_iter().flatten().take(limit).copied().collect()
    }

    /// Open letters of a group that died after `since`, counted up to `max`.
    pub fn open_since(&self, group: GroupId, since: Time, max: u64) -> u64 {
        let later = (Bound::Excluded((since, u64::MAX)), Bound::Unbounded);
        let Some(open) = self.groups.get(&group) else { return 0 };
        open.times.range(later).take(usize::try_from(max).unwrap_or(usize::MAX)).count() as u64
    }

    /// When the letter that has been open longest died.
    pub fn oldest(&self) -> Option<Time> {
        self.groups.values().filter_map(|open| open.times.first()).map(|(dead_at, _)| *dead_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn letters_are_counted_as_they_come_and_go() {
        let (one, two) = (GroupId::from_number(1), GroupId::from_number(2));
        let mut groups = OpenGroups::default();
        assert_eq!(groups.enter(one, at(30), 7), one);
        groups.enter(one, at(10), 9);
        groups.enter(two, at(20), 8);
        let figures = groups.figures(at(60_000));
        assert_eq!((figures[0].open, figures[0].oldest), (2, Some((at(10), 9))));
        assert_eq!(groups.letters(one, None, 9), [7, 9]);
        assert_eq!(groups.letters(one, Some(7), 9), [9]);
        assert_eq!((groups.open_since(one, at(9), 9), groups.open_since(one, at(10), 9)), (2, 1));
        assert_eq!(groups.open_since(one, at(0), 1), 1);
        assert_eq!(groups.oldest(), Some(at(10)));
        groups.leave(one, at(10), 9);
        assert_eq!(groups.oldest(), Some(at(20)), "the oldest by time, not by number");
        groups.leave(two, at(20), 8);
        groups.leave(one, at(30), 7);
        assert!(groups.figures(at(0)).is_empty() && groups.oldest().is_none());
    }

    #[test]
    fn a_letter_that_opens_again_is_no_arrival() {
        let group = GroupId::from_number(1);
        let mut groups = OpenGroups::default();
        groups.enter(group, at(10), 7);
        groups.enter(group, at(20), 8);
        groups.leave(group, at(10), 7);
        groups.enter_again(group, at(10), 7);
        let figures = groups.figures(at(30));
        assert_eq!((figures[0].open, figures[0].per_minute), (2, 2));
    }

    #[test]
    fn beyond_the_bound_letters_are_counted_as_other() {
        let mut groups = OpenGroups::default();
        for number in 1..=GROUPS_MAX as u64 {
            groups.enter(GroupId::from_number(number), at(1), number);
        }
        let late = GroupId::from_number(5_000);
        assert_eq!(groups.enter(late, at(1), 5_000), GroupId::OTHER);
        assert_eq!(groups.enter(GroupId::from_number(1), at(1), 5_001), GroupId::from_number(1));
        assert_eq!(groups.figures(at(1)).len(), GROUPS_MAX + 1);
        assert_eq!(groups.letters(GroupId::OTHER, None, 9), [5_000]);
        groups.leave(GroupId::from_number(2), at(1), 2);
        assert_eq!(groups.enter(late, at(1), 5_002), late, "there is room again");
        let (decided, other) = (GroupId::from_number(6_000), GroupId::from_number(6_001));
        groups.reserve([decided]);
        assert_eq!(groups.enter(decided, at(1), 6_000), decided);
        assert_eq!(groups.enter(other, at(1), 6_001), GroupId::OTHER);
    }
}
