//! Open letters by group: their counts, and indexes by number and by time of death.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redrive_core::{GroupId, Time};

use crate::engine::embedded::index::tables::{IndexError, IndexTables, Reading, Space};
use crate::engine::groups::{ArrivalRate, GROUPS_MAX, GroupFigures};
use crate::engine::overlay::{Changes, Overlay};

/// Group, time of death in milliseconds, letter number.
pub type GroupTimeKey = (u64, u64, u64);
/// Group, letter number.
pub type GroupLetterKey = (u64, u64);

/// How many groups have their oldest letter looked up in one search for the oldest of all; the others follow later.
const OLDEST_LOOKUPS_MAX: usize = 64;
const OTHER: u64 = GroupId::OTHER.number();

/// A group with at least one open letter.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    open: u64,
    /// Time of death and number of its oldest letter; `None` if it has to be looked up.
    first: Option<(u64, u64)>,
    /// No open letter comes before this. Letters that left stay in the table until the next checkpoint, and a search
    /// from the start would pass all of them each time.
    floor: (u64, u64),
    rate: ArrivalRate,
}

/// The changes of both tables for a checkpoint.
#[derive(Debug, Clone)]
pub struct GroupChanges {
    pub times: Arc<Changes<GroupTimeKey, ()>>,
    pub letters: Arc<Changes<GroupLetterKey, ()>>,
}

/// The open letters of a pipeline by group. At most [`GROUPS_MAX`] groups, plus the reserved ones and `other`.
#[derive(Debug, Default)]
pub struct LetterGroups {
    times: Overlay<GroupTimeKey, ()>,
    letters: Overlay<GroupLetterKey, ()>,
    groups: BTreeMap<u64, Counted>,
    /// Groups that have their own counter even beyond the limit.
    reserved: BTreeSet<u64>,
}

impl LetterGroups {
    /// Creates the index over existing tables, from the number of open letters in each group.
    pub(super) fn counted(open: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let counted = |(group, open)| (group, Counted { open, ..Counted::default() });
        Self { groups: open.into_iter().map(counted).collect(), ..Self::default() }
    }

    /// Gives these groups their own counters from now on, however many groups there are.
    pub(super) fn reserve(&mut self, groups: &[GroupId]) {
        self.reserved = groups.iter().map(|group| group.number()).collect();
    }

    /// The number of open letters in each group.
    pub fn open(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.groups.iter().map(|(group, counted)| (*group, counted.open))
    }

    /// Counts a letter that opens. Returns the group it is counted in, which must be passed when it leaves.
    pub(super) fn enter(&mut self, group: u64, dead_at: Time, seq: u64) -> u64 {
        let group = self.enter_again(group, dead_at, seq);
        if let Some(counted) = self.groups.get_mut(&group) {
            counted.rate.add(dead_at);
        }
        group
    }

    /// Counts a letter that opens again after an undone discard or an edit. It was counted when it died, so it is no
    /// arrival.
    pub(super) fn enter_again(&mut self, group: u64, dead_at: Time, seq: u64) -> u64 {
        let named = self.groups.len() - usize::from(self.groups.contains_key(&OTHER));
        let is_known = group == OTHER || self.groups.contains_key(&group) || self.reserved.contains(&group);
        let group = if is_known || named < GROUPS_MAX { group } else { OTHER };
        let counted = self.groups.entry(group).or_default();
        let key = (dead_at.as_millis(), seq);
        if counted.open == 0 || key < counted.floor {
            (counted.floor, counted.first) = (key, Some(key));
        } else if counted.first.is_some_and(|first| key < first) {
            counted.first = Some(key);
        }
        counted.open += 1;
        self.times.set((group, key.0, seq), ());
        self.letters.set((group, seq), ());
        group
    }

    /// Removes a letter that is resolved or dies again.
    pub(super) fn leave(&mut self, group: u64, dead_at: Time, seq: u64) {
        let key = (dead_at.as_millis(), seq);
        self.times.remove(&(group, key.0, seq));
        self.letters.remove(&(group, seq));
        let Some(counted) = self.groups.get_mut(&group) else { return };
        counted.open = counted.open.saturating_sub(1);
        if counted.first == Some(key) {
            (counted.floor, counted.first) = (key, None);
        }
        if counted.open == 0 {
            self.groups.remove(&group);
        }
    }

    /// The oldest open letter of a group.
    fn search_first<S: IndexTables>(
        &mut self,
        group: u64,
        from: Reading<'_, S>,
    ) -> Result<Option<(u64, u64)>, IndexError> {
        let Some(counted) = self.groups.get_mut(&group) else { return Ok(None) };
        if counted.first.is_none() {
            let (low, high) = ((group, counted.floor.0, counted.floor.1), (group, u64::MAX, u64::MAX));
            let found = self.times.first(&low, &high, &from.table(Space::GroupTimes))?;
            counted.first = found.map(|((_, dead_at, seq), ())| (dead_at, seq));
            counted.floor = counted.first.unwrap_or(counted.floor);
        }
        Ok(counted.first)
    }

    pub fn figures<S: IndexTables>(
        &mut self,
        now: Time,
        from: Reading<'_, S>,
    ) -> Result<Vec<GroupFigures>, IndexError> {
        let groups: Vec<(u64, Counted)> =
            self.groups.iter().map(|(group, counted)| (*group, *counted)).collect();
        let mut figures = Vec::with_capacity(groups.len());
        for (group, counted) in groups {
            let first = self.search_first(group, from)?;
            figures.push(GroupFigures {
                group: GroupId::from_number(group),
                open: counted.open,
                oldest: first.map(|(dead_at, seq)| (Time::from_millis(dead_at), seq)),
                per_minute: counted.rate.per_minute(now),
            });
        }
        Ok(figures)
    }

    /// When the oldest open letter died, as far as a bounded number of look-ups can tell.
    pub fn search_oldest<S: IndexTables>(
        &mut self,
        from: Reading<'_, S>,
    ) -> Result<Option<Time>, IndexError> {
        let unknown = self.groups.iter().filter(|(_, counted)| counted.first.is_none());
        let unknown: Vec<u64> = unknown.take(OLDEST_LOOKUPS_MAX).map(|(group, _)| *group).collect();
        for group in unknown {
            match self.search_first(group, from) {
                // It can be looked up later.
                Err(IndexError::Rebuilding) => return Ok(None),
                found => found?,
            };
        }
        let first = self.groups.values().filter_map(|counted| counted.first).min();
        Ok(first.map(|(dead_at, _)| Time::from_millis(dead_at)))
    }

    /// Open letters of a group, from `first` on.
    pub fn letters_from<S: IndexTables>(
        &self,
        group: GroupId,
        first: u64,
        limit: usize,
        from: Reading<'_, S>,
    ) -> Result<Vec<u64>, IndexError> {
        let (low, high) = ((group.number(), first), (group.number(), u64::MAX));
        let found = self.letters.range_to(&low, &high, limit, &from.table(Space::GroupLetters))?;
        Ok(found.into_iter().map(|((_, seq), ())| seq).collect())
    }

    /// Open letters of a group that died after `since`, counted up to `max`.
    pub fn open_since<S: IndexTables>(
        &self,
        group: GroupId,
        since: Time,
        max: u64,
        from: Reading<'_, S>,
    ) -> Result<u64, IndexError> {
        let group = group.number();
        let low = (group, since.as_millis().saturating_add(1), 0);
        let limit = usize::try_from(max).unwrap_or(usize::MAX);
        let high = (group, u64::MAX, u64::MAX);
        let found = self.times.range_to(&low, &high, limit, &from.table(Space::GroupTimes))?;
        Ok(found.len() as u64)
    }

    /// All entries of both tables, for comparing two indexes.
    pub fn dump<S: IndexTables>(&self, from: Reading<'_, S>) -> Result<Vec<String>, IndexError> {
        let all = usize::MAX / 4;
        let times = self.times.range(&(0, 0, 0), all, &from.table(Space::GroupTimes))?;
        let letters = self.letters.range(&(0, 0), all, &from.table(Space::GroupLetters))?;
        let times = times.iter().map(|entry| format!("group time {entry:?}"));
        let letters = letters.iter().map(|entry| format!("group letter {entry:?}"));
        let open = self.open().map(|(group, open)| format!("group {group} open {open}"));
        Ok(open.chain(times).chain(letters).collect())
    }

    /// The number of changes not yet handed over.
    pub fn changes(&self) -> usize {
        self.times.len() + self.letters.len()
    }

    pub(super) fn freeze(&mut self) -> GroupChanges {
        GroupChanges { times: self.times.freeze(), letters: self.letters.freeze() }
    }

    pub(super) fn thaw(&mut self) -> GroupChanges {
        GroupChanges { times: self.times.thaw(), letters: self.letters.thaw() }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;
    use redrive_core::{Class, FailureKind, Message, Meta, Reason};

    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;
    use crate::engine::embedded::index::runs::SortedRuns;
    use crate::engine::embedded::index::tables::{Cell, Write};
    use crate::engine::embedded::journal::frame::Frame;
    use crate::engine::embedded::journal::record::{Stored, Was, kind};
    use crate::engine::embedded::state::book::Book;
    use crate::engine::groups::{Grouping, OpenGroups};
    use crate::engine::history::{Attempt, History};
    use crate::engine::seam::StoreOptions;

    /// Writes the changes as a checkpoint does.
    fn write(groups: &mut LetterGroups, tables: &SortedRuns<SimDisk>) {
        let changes = groups.freeze();
        let mut writes: Vec<Write> = Vec::new();
        for (key, change) in changes.times.iter() {
            writes.push((Space::GroupTimes, key.bytes(), change.value().map(|()| Vec::new())));
        }
        for (key, change) in changes.letters.iter() {
            writes.push((Space::GroupLetters, key.bytes(), change.value().map(|()| Vec::new())));
        }
        tables.apply(&mut writes).unwrap();
        groups.thaw();
    }

    proptest! {
        /// The index agrees with plain sets, over checkpoints and restarts.
        #[test]
        fn groups_are_counted_as_letters_come_and_go(
            steps in prop::collection::vec((0u8..8, 1u64..4, 0u64..20, 0u64..40), 0..120)
        ) {
            let tables = SortedRuns::anew(SimDisk::new(), 0, 1).unwrap();
            let reading = Reading::patiently(&tables);
            let (mut groups, mut plain) = (LetterGroups::default(), OpenGroups::default());
            let mut open: BTreeMap<u64, (u64, Time)> = BTreeMap::new();
            for (step, group, ms, seq) in steps {
                match step {
                    0..=3 => {
                        let at = Time::from_millis(ms);
                        if let Some((group, before)) = open.insert(seq, (group, at)) {
                            groups.leave(group, before, seq);
                            plain.leave(GroupId::from_number(group), before, seq);
                        }
                        prop_assert_eq!(groups.enter(group, at, seq), group);
                        plain.enter(GroupId::from_number(group), at, seq);
                    }
                    4 | 5 => {
                        if let Some((group, at)) = open.remove(&seq) {
                            groups.leave(group, at, seq);
                            plain.leave(GroupId::from_number(group), at, seq);
                        }
                    }
                    6 => write(&mut groups, &tables),
                    _ => {
                        write(&mut groups, &tables);
                        let counts: Vec<(u64, u64)> = groups.open().collect();
                        groups = LetterGroups::counted(counts);
                    }
                }
                let id = GroupId::from_number(group);
                prop_assert_eq!(groups.search_oldest(reading).unwrap(), plain.oldest());
                let (since, most) = (Time::from_millis(ms), 3);
                prop_assert_eq!(groups.open_since(id, since, most, reading).unwrap(), plain.open_since(id, since, most));
                prop_assert_eq!(groups.letters_from(id, seq, 5, reading).unwrap(), plain.letters(id, seq.checked_sub(1), 5));
                let bare = |mut all: Vec<GroupFigures>| {
                    all.iter_mut().for_each(|figures| figures.per_minute = 0);
                    all
                };
                prop_assert_eq!(bare(groups.figures(since, reading).unwrap()), bare(plain.figures(since)));
            }
        }
    }

    /// Frames of letters from before there were groups have none.
    #[test]
    fn a_letter_that_an_older_program_wrote_is_grouped_when_it_is_read() {
        let attempt = |error: &str| Attempt {
            number: 1,
            at: Time::ZERO,
            took_ms: 1,
            class: Class::Permanent,
            counted: true,
            ambiguous: false,
            error: error.to_owned(),
            kind: FailureKind::Status(404),
            code: None,
        };
        let stored = Stored {
            was: Was::Fresh,
            key: None,
            due: None,
            jobs: Vec::new(),
            reason: Some(Reason::Permanent),
            state: None,
            dead_at: 9,
            moved_from: 0,
            meta: Meta::default(),
            history: History::default().with(&attempt("404 order 17 is gone")).raw().clone(),
            group: None,
            options: None,
            replaced: Vec::new(),
            wire: Message::builder("o-17").build().unwrap().wire().clone(),
        };
        let mut body = BytesMut::new();
        stored.write(&mut body);
        let frame = Frame { kind: kind::DEAD, flags: 0, tag: 7, body: body.freeze(), position: 0 };
        let tables = Arc::new(SortedRuns::anew(SimDisk::new(), 0, 1).unwrap());
        let mut book = Book::new(StoreOptions::default(), 1, tables, 100);
        book.fold(&frame, &mut |_| {}).unwrap();
        let found = book.group_figures(Time::ZERO).unwrap();
        let like = Grouping::default().of(Reason::Permanent, Some(&attempt("404 order 99 is gone")));
        assert_eq!((found[0].group, found[0].oldest), (like.group, Some((Time::from_millis(9), 7))));
    }

    #[test]
    fn beyond_the_bound_letters_are_counted_as_other() {
        let mut groups = LetterGroups::default();
        for number in 1..=GROUPS_MAX as u64 {
            assert_eq!(groups.enter(number, Time::ZERO, number), number);
        }
        assert_eq!(groups.enter(9_999, Time::ZERO, 9_999), OTHER);
        assert_eq!(groups.enter(9_998, Time::ZERO, 9_998), OTHER);
        groups.leave(1, Time::ZERO, 1);
        assert_eq!(groups.enter(9_999, Time::ZERO, 10_000), 9_999);
        groups.reserve(&[GroupId::from_number(9_000)]);
        assert_eq!(groups.enter(9_000, Time::ZERO, 10_001), 9_000, "something was decided about it");
        assert_eq!(groups.enter(9_001, Time::ZERO, 10_002), OTHER);
    }
}
