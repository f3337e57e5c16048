//! The dead letters that follow from the journal, indexed by number, by the id of their message, by the key they block,
//! and by group.

use std::sync::Arc;

use redrive_core::Time;

use super::groups::{GroupChanges, LetterGroups};
use crate::engine::embedded::index::tables::{IndexError, IndexTables, LetterSlot, Pointer, Reading, Space};
use crate::engine::letter::LetterState;
use crate::engine::overlay::{Changes, Overlay};

/// Key hash, letter number.
pub type BlockKey = (u64, u64);
/// Hash of the message's id, letter number.
pub type LetterIdKey = (u64, u64);

/// The number of letters in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterCounts {
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
    pub erased: u64,
}

impl LetterCounts {
    fn of(&mut self, state: LetterState) -> &mut u64 {
        match state {
            LetterState::Open => &mut self.open,
            LetterState::Replaying => &mut self.replaying,
            LetterState::Succeeded => &mut self.succeeded,
            LetterState::Discarded => &mut self.discarded,
            LetterState::Erased => &mut self.erased,
        }
    }

    fn add(&mut self, state: LetterState) {
        *self.of(state) += 1;
    }

    fn sub(&mut self, state: LetterState) {
        let count = self.of(state);
        *count = count.saturating_sub(1);
    }
}

/// The changes of the letter tables for a checkpoint.
#[derive(Debug, Clone)]
pub struct LetterChanges {
    pub slots: Arc<Changes<u64, LetterSlot>>,
    pub by_id: Arc<Changes<LetterIdKey, ()>>,
    pub blocking: Arc<Changes<BlockKey, ()>>,
    pub groups: GroupChanges,
}

/// All letters. Their states change only when the journal is folded.
#[derive(Debug, Default)]
pub struct LetterIndex {
    slots: Overlay<u64, LetterSlot>,
    by_id: Overlay<LetterIdKey, ()>,
    /// Open letters with a key.
    blocking: Overlay<BlockKey, ()>,
    groups: LetterGroups,
    counts: LetterCounts,
}

impl LetterIndex {
    /// Creates the index over existing tables.
    pub(super) fn counted(counts: LetterCounts, groups: LetterGroups) -> Self {
        Self { groups, counts, ..Self::default() }
    }

    /// The open letters by group.
    pub fn groups(&self) -> &LetterGroups {
        &self.groups
    }

    pub(super) fn groups_mut(&mut self) -> &mut LetterGroups {
        &mut self.groups
    }

    pub fn counts(&self) -> LetterCounts {
        self.counts
    }

    pub fn get<S: IndexTables>(
        &self,
        seq: u64,
        from: Reading<'_, S>,
    ) -> Result<Option<LetterSlot>, IndexError> {
        self.slots.get(&seq, &from.table(Space::Letters))
    }

    /// Letters in the order of their numbers, from `first` on.
    pub fn range<S: IndexTables>(
        &self,
        first: u64,
        limit: usize,
        from: Reading<'_, S>,
    ) -> Result<Vec<(u64, LetterSlot)>, IndexError> {
        self.slots.range(&first, limit, &from.table(Space::Letters))
    }

    /// The letters whose message has an id with this hash, in order.
    pub fn with_id_hash<S: IndexTables>(
        &self,
        hash: u64,
        limit: usize,
        from: Reading<'_, S>,
    ) -> Result<Vec<u64>, IndexError> {
        let (first, last) = ((hash, 0), (hash, u64::MAX));
        let found = self.by_id.range_to(&first, &last, limit, &from.table(Space::LetterIds))?;
        Ok(found.into_iter().map(|((_, number), ())| number).collect())
    }

    /// Whether an open letter of the key has a lower number than this message.
    pub fn blocks<S: IndexTables>(
        &self,
        hash: u64,
        seq: u64,
        from: Reading<'_, S>,
    ) -> Result<bool, IndexError> {
        let first = self.blocking.first(&(hash, 0), &(hash, u64::MAX), &from.table(Space::Doors))?;
        Ok(first.is_some_and(|((_, letter), ())| letter < seq))
    }

    /// Open letters by key, from `first` on.
    pub fn blocking_from<S: IndexTables>(
        &self,
        first: BlockKey,
        limit: usize,
        from: Reading<'_, S>,
    ) -> Result<Vec<BlockKey>, IndexError> {
        let found = self.blocking.range(&first, limit, &from.table(Space::Doors))?;
        Ok(found.into_iter().map(|(key, ())| key).collect())
    }

    /// All entries of the table of ids, for comparing two indexes.
    pub fn all_ids<S: IndexTables>(
        &self,
        limit: usize,
        from: Reading<'_, S>,
    ) -> Result<Vec<LetterIdKey>, IndexError> {
        let found = self.by_id.range(&(0, 0), limit, &from.table(Space::LetterIds))?;
        Ok(found.into_iter().map(|(key, ())| key).collect())
    }

    /// The number of changes not yet handed over.
    pub fn changes(&self) -> usize {
        self.blocking.len() + self.slots.len() + self.by_id.len() + self.groups.changes()
    }

    pub(super) fn freeze(&mut self) -> LetterChanges {
        let (slots, by_id) = (self.slots.freeze(), self.by_id.freeze());
        LetterChanges { slots, by_id, blocking: self.blocking.freeze(), groups: self.groups.freeze() }
    }

    pub(super) fn thaw(&mut self) -> LetterChanges {
        LetterChanges {
            slots: self.slots.thaw(),
            by_id: self.by_id.thaw(),
            blocking: self.blocking.thaw(),
            groups: self.groups.thaw(),
        }
    }

    /// Inserts a letter that is new, died again or was moved. `before` is the time of death of the letter it
    /// replaces.
    pub(super) fn insert(&mut self, seq: u64, mut slot: LetterSlot, before: Option<Time>) {
        self.counts.add(slot.state);
        if slot.state == LetterState::Open {
            let is_same_death = before == Some(slot.dead_at);
            let enter = if is_same_death { LetterGroups::enter_again } else { LetterGroups::enter };
            slot.group = enter(&mut self.groups, slot.group, slot.dead_at, seq);
        }
        match (slot.key, slot.state) {
            (Some(hash), LetterState::Open) => self.blocking.set((hash, seq), ()),
            // The letter that it replaces may have been open.
            (Some(hash), LetterState::Erased) => self.blocking.remove(&(hash, seq)),
            _ => {}
        }
        self.by_id.set((slot.id_hash, seq), ());
        self.slots.set(seq, slot);
    }

    /// Removes the letter with this number, which is about to be replaced. Returns where its content is and when it
    /// died.
    pub(super) fn replace<S: IndexTables>(
        &mut self,
        seq: u64,
        from: Reading<'_, S>,
    ) -> Result<Option<(Pointer, Time)>, IndexError> {
        let Some(before) = self.get(seq, from)? else { return Ok(None) };
        self.counts.sub(before.state);
        self.leave_group(seq, &before);
        self.by_id.remove(&(before.id_hash, seq));
        Ok(Some((before.pointer, before.dead_at)))
    }

    /// Removes a letter. Returns where its content is.
    pub(super) fn remove<S: IndexTables>(
        &mut self,
        seq: u64,
        from: Reading<'_, S>,
    ) -> Result<Option<Pointer>, IndexError> {
        let Some(slot) = self.get(seq, from)? else { return Ok(None) };
        self.counts.sub(slot.state);
        self.leave_group(seq, &slot);
        if let Some(hash) = slot.key {
            self.blocking.remove(&(hash, seq));
        }
        self.by_id.remove(&(slot.id_hash, seq));
        self.slots.remove(&seq);
        Ok(Some(slot.pointer))
    }

    fn leave_group(&mut self, seq: u64, slot: &LetterSlot) {
        if slot.state == LetterState::Open {
            self.groups.leave(slot.group, slot.dead_at, seq);
        }
    }

    pub(super) fn set_state<S: IndexTables>(
        &mut self,
        seq: u64,
        state: LetterState,
        from: Reading<'_, S>,
    ) -> Result<(), IndexError> {
        let Some(mut slot) = self.get(seq, from)? else { return Ok(()) };
        self.counts.sub(slot.state);
        self.counts.add(state);
        self.leave_group(seq, &slot);
        if state == LetterState::Open {
            slot.group = self.groups.enter_again(slot.group, slot.dead_at, seq);
        }
        if let Some(hash) = slot.key {
            match (slot.state, state) {
                (LetterState::Open, LetterState::Open) => {}
                (LetterState::Open, _) => self.blocking.remove(&(hash, seq)),
                (_, LetterState::Open) => self.blocking.set((hash, seq), ()),
                _ => {}
            }
        }
        slot.state = state;
        self.slots.set(seq, slot);
        Ok(())
    }

    /// Sets how often and by which jobs a letter was replayed.
    pub(super) fn set_replays<S: IndexTables>(
        &mut self,
        seq: u64,
        (replays, jobs): (u32, Vec<u64>),
        from: Reading<'_, S>,
    ) -> Result<(), IndexError> {
        if let Some(slot) = self.get(seq, from)? {
            self.slots.set(seq, LetterSlot { replays, jobs, ..slot });
        }
        Ok(())
    }

    /// Updates the position of a letter that was copied from `old` to `new`. Returns the previous pointer, or `None`
    /// if the letter is not at `old` any more.
    pub(super) fn repoint<S: IndexTables>(
        &mut self,
        seq: u64,
        old: u64,
        new: Pointer,
        from: Reading<'_, S>,
    ) -> Result<Option<Pointer>, IndexError> {
        let Some(slot) = self.get(seq, from)?.filter(|slot| slot.pointer.at == old) else { return Ok(None) };
        let before = slot.pointer;
        self.slots.set(seq, LetterSlot { pointer: new, ..slot });
        Ok(Some(before))
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::{Reason, Time};

    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;
    use crate::engine::embedded::index::runs::SortedRuns;

    fn slot(state: LetterState, key: Option<u64>, at: u64) -> LetterSlot {
        LetterSlot {
            pointer: Pointer::new(at, 64),
            state,
            reason: Reason::MaxRetries,
            dead_at: Time::from_millis(at),
            replays: 0,
            jobs: Vec::new(),
            key,
            id_hash: 77,
            group: 5,
            edits: 0,
        }
    }

    #[test]
    fn an_open_letter_blocks_later_messages_of_its_key_until_it_is_resolved() {
        let tables = SortedRuns::anew(SimDisk::new(), 0, 1).unwrap();
        let reading = Reading::patiently(&tables);
        let mut letters = LetterIndex::default();
        letters.insert(5, slot(LetterState::Open, Some(9), 100), None);
        assert!(letters.blocks(9, 6, reading).unwrap());
        assert!(!letters.blocks(9, 5, reading).unwrap() && !letters.blocks(8, 6, reading).unwrap());
        letters.set_state(5, LetterState::Discarded, reading).unwrap();
        assert!(!letters.blocks(9, 6, reading).unwrap());
        letters.set_state(5, LetterState::Open, reading).unwrap();
        assert!(letters.blocks(9, 6, reading).unwrap());
        assert_eq!(letters.remove(5, reading).unwrap(), Some(Pointer::new(100, 64)));
        assert!(!letters.blocks(9, 6, reading).unwrap());
        assert_eq!(letters.counts(), LetterCounts::default());
    }

    #[test]
    fn an_erased_letter_blocks_nothing_and_is_counted_as_such() {
        let tables = SortedRuns::anew(SimDisk::new(), 0, 1).unwrap();
        let reading = Reading::patiently(&tables);
        let mut letters = LetterIndex::default();
        letters.insert(5, slot(LetterState::Open, Some(9), 100), None);
        letters.replace(5, reading).unwrap();
        letters.insert(5, slot(LetterState::Erased, Some(9), 100), Some(Time::from_millis(100)));
        assert!(!letters.blocks(9, 6, reading).unwrap());
        assert_eq!(letters.counts(), LetterCounts { erased: 1, ..LetterCounts::default() });
        assert_eq!(letters.groups_mut().search_oldest(reading).unwrap(), None);
    }

    #[test]
    fn a_letter_that_moved_meanwhile_is_not_repointed() {
        let tables = SortedRuns::anew(SimDisk::new(), 0, 1).unwrap();
        let reading = Reading::patiently(&tables);
        let mut letters = LetterIndex::default();
        letters.insert(5, slot(LetterState::Open, None, 100), None);
        let new = Pointer::new(900, 64);
        assert_eq!(letters.repoint(5, 101, new, reading).unwrap(), None);
        assert_eq!(letters.repoint(5, 100, new, reading).unwrap(), Some(Pointer::new(100, 64)));
        assert_eq!(letters.get(5, reading).unwrap().map(|slot| slot.pointer), Some(new));
    }

    #[test]
    fn the_oldest_letter_is_the_one_that_died_first_whatever_its_number() {
        let tables = SortedRuns::anew(SimDisk::new(), 0, 1).unwrap();
        let reading = Reading::patiently(&tables);
        let mut letters = LetterIndex::default();
        let oldest = |letters: &mut LetterIndex| letters.groups_mut().search_oldest(reading).unwrap();
        letters.insert(3, slot(LetterState::Discarded, None, 30), None);
        letters.insert(7, slot(LetterState::Open, None, 70), None);
        // It was replayed and died again.
        letters.insert(5, slot(LetterState::Open, None, 500), None);
        assert_eq!(oldest(&mut letters), Some(Time::from_millis(70)));
        letters.set_state(3, LetterState::Open, reading).unwrap();
        assert_eq!(oldest(&mut letters), Some(Time::from_millis(30)));
        letters.set_state(3, LetterState::Discarded, reading).unwrap();
        letters.set_state(7, LetterState::Replaying, reading).unwrap();
        assert_eq!(oldest(&mut letters), Some(Time::from_millis(500)));
        letters.remove(5, reading).unwrap();
        assert_eq!(oldest(&mut letters), None);
        assert_eq!(letters.with_id_hash(77, 9, reading).unwrap(), [3, 7]);
    }
}
