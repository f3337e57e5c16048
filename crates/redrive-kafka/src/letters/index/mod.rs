//! All letters of a pipeline ordered by number, and how many there are in which state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use redrive::internal::engine::groups::OpenGroups;
use redrive::internal::engine::{LetterStanding, LetterState};
use redrive_core::{GroupId, Time};

use super::edit_record::EditedLetter;
use super::entry::{DlqPosition, Extent, LetterEntry, LetterRecord};
use super::ids::IdIndex;
use super::state::StateRecord;

/// How many letters are in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LetterTotals {
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
    pub erased: u64,
    /// Merged second records of one letter and generation: a crash left two copies of a message, and both died.
    pub twins: u64,
    /// Records in `T.DLQ` and `T.DLQ.state` that are foreign or damaged.
    pub unreadable: u64,
}

/// How a record became known: by the acknowledgement of this process's own write, or by reading the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnedFrom {
    Acknowledgement,
    Topic,
}

#[derive(Debug, Default)]
pub struct Index {
    entries: BTreeMap<u64, LetterEntry>,
    /// The last record of each letter whose last record is not the one that counts.
    later: BTreeMap<u64, DlqPosition>,
    /// The first [`FOREIGN_MAX`] records in `T.DLQ` that are not letters. Nothing from them on is ever deleted.
    foreign: BTreeSet<DlqPosition>,
    /// Letters that are gone but still have states, up to [`ORPHANS_MAX`].
    orphans: BTreeSet<u64>,
    /// The latest edit record of each letter.
    edited: BTreeMap<u64, EditedLetter>,
    pub counts: LetterTotals,
    groups: OpenGroups,
    ids: IdIndex,
}

/// How many foreign records are remembered.
const FOREIGN_MAX: usize = 10_000;

/// If more letters share an id's hash, all letters are searched instead.
const OF_ID_MAX: usize = 1_000;

/// States of letters that are gone are deleted this many at a time; the rest follows later.
const ORPHANS_MAX: usize = 10_000;

impl Index {
    /// Whether a record is news, so that its bytes have to be kept.
    pub fn wants(&self, number: u64, parked: &LetterRecord) -> bool {
        self.entries.get(&number).is_none_or(|entry| entry.wants(parked))
    }

    pub fn parked(&mut self, number: u64, parked: &LetterRecord, learned: LearnedFrom) {
        let (mut twin, mut last, mut counts) = (false, parked.place, parked.place);
        self.change(number, |entry| {
            if entry.is_known() {
                last = last.max(entry.place());
            }
            entry.parked(parked);
            counts = entry.place();
            // One that was cut or written again is a second record on purpose.
            let is_plain = parked.extent == Extent::Whole && !parked.moved;
            twin = learned == LearnedFrom::Topic && is_plain && entry.meet(parked.generation);
        });
        self.counts.twins += u64::from(twin);
        if last > counts {
            let later = self.later.entry(number).or_insert(last);
            *later = last.max(*later);
        }
    }

    /// Notes a record in `T.DLQ` that is foreign or damaged, and so not a letter.
    pub fn foreign(&mut self, place: DlqPosition) {
        self.counts.unreadable += 1;
        self.foreign.insert(place);
        if self.foreign.len() > FOREIGN_MAX {
            self.foreign.pop_last();
        }
    }

    /// Returns the positions of the foreign records, in order.
    pub fn foreigners(&self) -> impl Iterator<Item = DlqPosition> {
        self.foreign.iter().copied()
    }

    /// Returns the last record of a letter, if it is not the one that counts.
    pub fn last_place(&self, number: u64) -> Option<DlqPosition> {
        self.later.get(&number).copied()
    }

    /// Erased letters that have a record behind their tombstone: somebody had read them before they were erased, and wrote
    /// them again.
    pub fn overtaken_tombstones(&self) -> Vec<u64> {
        let is_overtaken = |(number, last): &(&u64, &DlqPosition)| {
            self.entries.get(number).is_some_and(|entry| entry.is_tombstone() && entry.place() < **last)
        };
        self.later.iter().filter(is_overtaken).map(|(number, _)| *number).collect()
    }

    /// Nothing is left of a letter.
    pub fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.count(entry.state(), |count| *count -= 1);
            self.ids.change(number, entry.id_hash(), None);
            if let Some((group, dead_at)) = open_in(&entry) {
                self.groups.leave(group, dead_at, number);
            }
        }
        self.later.remove(&number);
        self.orphans.remove(&number);
        self.edited.remove(&number);
    }

    pub fn edited(&self, number: u64) -> Option<&EditedLetter> {
        self.edited.get(&number)
    }

    pub fn set_edited(&mut self, number: u64, edited: EditedLetter) {
        self.edited.insert(number, edited);
    }

    pub fn not_edited(&mut self, number: u64) {
        self.edited.remove(&number);
    }

    /// Whether anything is known about a letter.
    pub fn has(&self, number: u64) -> bool {
        self.entries.contains_key(&number)
    }

    /// Notes the state of a letter that is gone: its deletion was interrupted, or has not been read yet.
    pub fn orphan(&mut self, number: u64) {
        if self.orphans.len() < ORPHANS_MAX {
            self.orphans.insert(number);
        }
    }

    /// Returns the letters of which only states are left.
    pub fn orphans(&self) -> impl Iterator<Item = u64> {
        let of_slots = self.entries.iter().filter(|(_, entry)| !entry.is_known()).map(|(number, _)| *number);
        of_slots.chain(self.orphans.iter().copied())
    }

    pub fn state_is(&mut self, number: u64, state: &StateRecord) {
        self.change(number, |entry| entry.state_is(state));
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut LetterEntry)) {
        let entry = self.entries.entry(number).or_insert(LetterEntry::EMPTY);
        let (before, was_in, found_by) = (entry.state(), open_in(entry), entry.id_hash());
        let died = before.map(|_| entry.dead_at());
        change(entry);
        self.ids.change(number, found_by, entry.id_hash());
        let (after, is_in) = (entry.state(), open_in(entry));
        if was_in != is_in {
            if let Some((group, dead_at)) = was_in {
                self.groups.leave(group, dead_at, number);
            }
            if let Some((group, dead_at)) = is_in {
                // A discarded letter that is reopened did not die a second time.
                let is_same_death = died == Some(dead_at);
                let enter = if is_same_death { OpenGroups::enter_again } else { OpenGroups::enter };
                entry.set_group(enter(&mut self.groups, group, dead_at, number));
            }
        }
        if before != after {
            self.count(before, |count| *count -= 1);
            self.count(after, |count| *count += 1);
        }
    }

    /// Reserves groups with a decision.
    pub fn reserve_groups(&mut self, groups: &[GroupId]) {
        self.groups.reserve(groups.iter().copied());
    }

    /// Returns the letters that may belong to the message with this id, also if an edit has changed it; `None` if there
    /// are too many.
    pub fn letters_of(&self, id: &str) -> Option<Vec<u64>> {
        self.ids.letters(id, OF_ID_MAX)
    }

    /// Returns the open letters by group.
    pub fn groups(&self) -> &OpenGroups {
        &self.groups
    }

    fn count(&mut self, state: Option<LetterState>, change: impl FnOnce(&mut u64)) {
        match state {
            Some(LetterState::Open) => change(&mut self.counts.open),
            Some(LetterState::Replaying) => change(&mut self.counts.replaying),
            Some(LetterState::Succeeded) => change(&mut self.counts.succeeded),
            Some(LetterState::Discarded) => change(&mut self.counts.discarded),
            Some(LetterState::Erased) => change(&mut self.counts.erased),
            None => {}
        }
    }

    /// Returns the letter, if its record is known.
    pub fn get(&self, number: u64) -> Option<&LetterEntry> {
        self.entries.get(&number).filter(|entry| entry.state().is_some())
    }

    /// Returns the letters after `after`, with their states.
    pub fn after(&self, after: Option<u64>) -> impl Iterator<Item = (u64, LetterState, &LetterEntry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range((from, Bound::Unbounded));
        entries.filter_map(|(number, entry)| Some((*number, entry.state()?, entry)))
    }

    pub fn standing(&self, job: u64, number: u64) -> Option<LetterStanding> {
        let entry = self.get(number)?;
        Some(LetterStanding {
            state: entry.state()?,
            dead_at: entry.dead_at(),
            replays: entry.replays(),
            in_job: entry.jobs().contains(&job),
            is_last_job: entry.job() == Some(job),
        })
    }
}

/// Returns where an open letter is counted.
fn open_in(entry: &LetterEntry) -> Option<(GroupId, Time)> {
    (entry.state() == Some(LetterState::Open)).then(|| (entry.group(), entry.dead_at()))
}

#[cfg(test)]
mod tests;
