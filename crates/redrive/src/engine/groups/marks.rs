//! The marks of a pipeline's groups: the latest of each group, up to a limit.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use redrive_core::GroupId;

use super::GROUPS_MAX;
use super::mark::{GroupMark, Handling};

/// At most [`GROUPS_MAX`] marks. Beyond that the oldest is dropped, resolved ones before all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMarks {
    marks: BTreeMap<GroupId, GroupMark>,
}

impl GroupMarks {
    /// Replaces the mark of a group; an empty mark removes it.
    pub fn set(&mut self, mark: GroupMark) {
        if mark.is_empty() {
            self.marks.remove(&mark.group);
            return;
        }
        self.marks.insert(mark.group, mark);
        if self.marks.len() > GROUPS_MAX {
            let age = |mark: &&GroupMark| (mark.handling != Handling::Resolved, mark.at, mark.group);
            let oldest = self.marks.values().min_by_key(age).map(|mark| mark.group);
            oldest.and_then(|oldest| self.marks.remove(&oldest));
        }
    }

    /// Removes a decision.
    pub fn remove(&mut self, group: GroupId) {
        self.marks.remove(&group);
    }

    /// The decision about a group.
    pub fn get(&self, group: GroupId) -> Option<&GroupMark> {
        self.marks.get(&group)
    }

    /// All decisions.
    pub fn iter(&self) -> impl Iterator<Item = &GroupMark> {
        self.marks.values()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mark::tests::mark;
    use super::*;

    #[test]
    fn the_last_word_counts_and_an_empty_one_takes_it_back() {
        let mut marks = GroupMarks::default();
        marks.set(mark(1, Handling::Acknowledged));
        marks.set(mark(1, Handling::Resolved));
        assert_eq!(marks.get(GroupId::from_number(1)).map(|mark| mark.handling), Some(Handling::Resolved));
        marks.set(mark(1, Handling::Open));
        assert_eq!(marks.iter().count(), 0);
        marks.set(GroupMark { note: Some("x".into()), ..mark(1, Handling::Open) });
        assert_eq!(marks.iter().count(), 1);
    }

    #[test]
    fn the_oldest_resolved_one_is_forgotten_first() {
        let mut marks = GroupMarks::default();
        marks.set(mark(1, Handling::Acknowledged));
        for number in 2..=GROUPS_MAX as u64 + 1 {
            marks.set(mark(number, Handling::Resolved));
        }
        assert_eq!(marks.iter().count(), GROUPS_MAX);
        assert!(marks.get(GroupId::from_number(1)).is_some());
        assert!(marks.get(GroupId::from_number(2)).is_none());
    }
}
