//! The groups whose letters a replay has touched, so that the next replay of such a group can mention it. Bounded.

use std::collections::BTreeSet;

use redrive_core::GroupId;
use serde_json::{Value, json};

/// Groups that are stored with a job, whose file is written every second.
const GROUPS_MAX: usize = 50;

/// The groups of the letters of a selection.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TouchedGroups {
    named: BTreeSet<GroupId>,
    /// Whether there were more groups.
    more: bool,
}

/// Whether a replay had letters of certain groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// It had.
    Yes,
    /// It had so many groups that not all of them were stored.
    Perhaps,
    /// It had not, or its version did not store groups.
    No,
}

impl FromIterator<GroupId> for TouchedGroups {
    fn from_iter<I: IntoIterator<Item = GroupId>>(groups: I) -> Self {
        let mut touched = Self::default();
        groups.into_iter().for_each(|group| touched.add(group));
        touched
    }
}

impl TouchedGroups {
    pub(super) fn add(&mut self, group: GroupId) {
        if self.named.contains(&group) {
            return;
        }
        if self.named.len() < GROUPS_MAX {
            self.named.insert(group);
        } else {
            self.more = true;
        }
    }

    /// Whether both have letters of the same group.
    pub fn touches(&self, other: &Self) -> Touched {
        if !self.named.is_disjoint(&other.named) {
            return Touched::Yes;
        }
        let is_open = (self.more && !other.named.is_empty()) || (other.more && !self.named.is_empty());
        if is_open { Touched::Perhaps } else { Touched::No }
    }

    pub(super) fn to_json(&self) -> Value {
        let named: Vec<String> = self.named.iter().map(ToString::to_string).collect();
        json!({ "named": named, "more": self.more })
    }

    /// Reads the groups; empty for a job of a version that did not store them.
    pub(super) fn of_json(value: Option<&Value>) -> Self {
        let named = value.and_then(|value| value.get("named")?.as_array());
        let named = named.into_iter().flatten().filter_map(|name| name.as_str()?.parse().ok());
        let more = value.and_then(|value| value.get("more")?.as_bool()).unwrap_or(false);
        Self { named: named.take(GROUPS_MAX).collect(), more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(groups: std::ops::Range<u64>) -> TouchedGroups {
        groups.map(GroupId::from_number).collect()
    }

    #[test]
    fn replays_of_the_same_group_are_told_from_others() {
        assert_eq!(of(0..5).touches(&of(4..6)), Touched::Yes);
        assert_eq!(of(0..5).touches(&of(5..6)), Touched::No);
        assert_eq!(of(0..5).touches(&TouchedGroups::default()), Touched::No, "of an earlier version");
    }

    #[test]
    fn what_does_not_fit_is_not_denied() {
        let many = of(0..200);
        assert_eq!((many.named.len(), many.more), (GROUPS_MAX, true));
        assert_eq!(many.touches(&of(150..151)), Touched::Perhaps);
        assert_eq!(of(150..151).touches(&many), Touched::Perhaps);
        assert_eq!(many.touches(&of(7..8)), Touched::Yes);
    }

    #[test]
    fn they_come_back_as_they_were_written() {
        for groups in [of(0..3), of(0..200), of(0..0)] {
            assert_eq!(TouchedGroups::of_json(Some(&groups.to_json())), groups);
        }
        assert_eq!(TouchedGroups::of_json(None), of(0..0));
    }
}
