//! Decides which letters are deleted from `T.DLQ`. Kafka deletes only from the front, so resolved letters are deleted
//! up to the first unresolved one, and a few old ones that hold up many are rewritten to the end. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use redrive::actions::RESOLVED_RETENTION;
use redrive::internal::engine::LetterState;
use redrive::internal::engine::position::PartitionOffset;
use redrive_core::{Reason, Time};

use super::entry::{DlqPosition, LetterEntry};
use super::index::Index;

/// When letters are deleted.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long a letter stays whose replay succeeded: it is visible in the replay meanwhile. One that may have been
    /// imported stays as long as a discarded one, or importing it once more would make it anew.
    pub succeeded_keep: Duration,
    /// Old letters are rewritten only if at least this many resolved ones can be deleted then,
    pub move_gain_min: u64,
    /// and at least this many for each rewritten one.
    pub move_gain_each: u64,
    /// Letters of one partition that are rewritten in one go.
    pub moves_max: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            succeeded_keep: Duration::from_hours(1),
            move_gain_min: 10_000,
            move_gain_each: 4,
            moves_max: 10_000,
        }
    }
}

impl Rules {
    /// The rules for a command: a single resolved letter is reason enough to rewrite old ones.
    pub fn eager() -> Self {
        Self { move_gain_min: 1, move_gain_each: 0, ..Self::default() }
    }
}

/// A discard can be undone until [`RESOLVED_RETENTION`] after the letter's death, and for at least this time. The
/// letter is kept for [`LEAVE_LATER`] more, so that clocks need not agree.
const UNDO_MIN: Duration = Duration::from_hours(1);
const LEAVE_LATER: Duration = Duration::from_hours(24);

/// Whether a discard of this letter can still be undone.
pub fn can_be_undone(entry: &LetterEntry, now: Time) -> bool {
    entry.dead_at().plus(RESOLVED_RETENTION).max(entry.stated_at().plus(UNDO_MIN)) >= now
}

/// The extent of one partition of `T.DLQ`: its first record, and the first one that has not been read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub partition: i32,
    pub low: i64,
    pub next: i64,
}

/// The offset of a record that stays, and the number of its letter, unless it is a foreign record.
type RetainedRecord = (i64, Option<u64>);

/// What to do with a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    pub partition: i32,
    /// Everything below this offset can be deleted.
    pub cut: i64,
    /// Letters that have to be rewritten so that more can be deleted.
    pub moves: Vec<u64>,
}

/// Whether a letter may have been imported. The reason of one that died again says so no longer, unless its number does.
fn may_be_imported(number: u64, entry: &LetterEntry) -> bool {
    let has_died_again = entry.generation() > 0;
    entry.reason() == Some(Reason::Imported) || has_died_again || PartitionOffset::of(number).is_made()
}

impl Rules {
    /// Whether a letter is not needed any more.
    fn leaves(&self, number: u64, entry: &LetterEntry, now: Time) -> bool {
        let remembered_until = entry.dead_at().plus(RESOLVED_RETENTION + LEAVE_LATER);
        match entry.state() {
            Some(LetterState::Succeeded) => {
                let shown_until = entry.stated_at().plus(self.succeeded_keep);
                let is_remembered = may_be_imported(number, entry) && remembered_until >= now;
                shown_until < now && !is_remembered
            }
            Some(LetterState::Discarded) => remembered_until.max(entry.stated_at().plus(LEAVE_LATER)) < now,
            // A tombstone stays: it is the proof.
            Some(LetterState::Open | LetterState::Replaying | LetterState::Erased) | None => false,
        }
    }

    pub fn plan(&self, index: &Index, stretches: &[Stretch], now: Time) -> Vec<Leave> {
        let mut kept: HashMap<i32, Vec<RetainedRecord>> = HashMap::new();
        // People may want to look at foreign records, and these cannot be rewritten.
        for place in index.foreigners() {
            kept.entry(place.partition()).or_default().push((place.offset(), None));
        }
        for (number, _, entry) in
            index.after(None).filter(|(number, _, entry)| !self.leaves(*number, entry, now))
        {
            let place = entry.place();
            kept.entry(place.partition()).or_default().push((place.offset(), Some(number)));
        }
        let plan = |stretch: &Stretch| {
            let mut kept = kept.remove(&stretch.partition).unwrap_or_default();
            // Records below `low` are deleted already, whatever the index holds.
            kept.retain(|(offset, _)| (stretch.low..stretch.next).contains(offset));
            kept.sort_unstable();
            let cut = kept.first().map_or(stretch.next, |(offset, _)| *offset);
            let moves =
                kept[..self.moves(&kept, stretch.next)].iter().filter_map(|(_, number)| *number).collect();
            Leave { partition: stretch.partition, cut, moves }
        };
        stretches.iter().map(plan).collect()
    }

    /// Returns how many of the first letters are worth rewriting.
    fn moves(&self, kept: &[RetainedRecord], next: i64) -> usize {
        let Some((first, _)) = kept.first() else { return 0 };
        let gain = |count: usize| {
            let end = kept.get(count).map_or(next, |(offset, _)| *offset);
            (end - first).cast_unsigned() - count as u64
        };
        let worth = |count: &usize| {
            gain(*count) >= self.move_gain_min && gain(*count) >= self.move_gain_each * *count as u64
        };
        let movable = kept.iter().take_while(|(_, number)| number.is_some()).count();
        (1..=movable.min(self.moves_max)).filter(worth).min_by_key(|count| Reverse(gain(*count))).unwrap_or(0)
    }

    /// Returns letters of which no record is left once everything below these offsets, by partition, is deleted.
    pub fn gone(&self, index: &Index, cuts: &HashMap<i32, i64>, now: Time) -> Vec<u64> {
        let is_cut =
            |place: DlqPosition| cuts.get(&place.partition()).is_some_and(|cut| place.offset() < *cut);
        let resolved = index.after(None).filter(|(number, _, entry)| self.leaves(*number, entry, now));
        let gone = resolved.filter(|(number, _, entry)| {
            is_cut(entry.place()) && index.last_place(*number).is_none_or(is_cut)
        });
        gone.map(|(number, ..)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letters::entry::{Extent, LetterRecord};
    use crate::letters::index::LearnedFrom;
    use crate::letters::state::StateRecord;

    const DAY: u64 = 86_400_000;
    const NOW: Time = Time::from_millis(100 * DAY);

    fn rules() -> Rules {
        Rules { move_gain_min: 10, move_gain_each: 2, moves_max: 5, ..Rules::default() }
    }

    fn at(days_ago: u64) -> Time {
        Time::from_millis(NOW.as_millis() - days_ago * DAY)
    }

    fn parked(offset: i64, days_ago: u64) -> LetterRecord {
        LetterRecord {
            generation: 0,
            place: DlqPosition::new(2, offset),
            at: 0,
            group: redrive_core::GroupId::OTHER,
            reason: Reason::MaxRetries,
            dead_at: at(days_ago),
            id_hash: crate::letters::ids::IdHash::NONE,
            job: None,
            extent: Extent::Whole,
            moved: false,
        }
    }

    /// Letters at the offsets of their numbers. Those for which `resolved` holds succeeded a day ago.
    fn index(numbers: impl Iterator<Item = u64>, resolved: impl Fn(u64) -> bool) -> Index {
        let mut index = Index::default();
        for number in numbers {
            index.parked(number, &parked(number.cast_signed(), 5), LearnedFrom::Topic);
            if resolved(number) {
                index.state_is(
                    number,
                    &StateRecord { generation: 0, is: LetterState::Succeeded, jobs: vec![], at: at(1) },
                );
            }
        }
        index
    }

    fn plan(index: &Index, low: i64, next: i64) -> (i64, Vec<u64>) {
        let leave = rules().plan(index, &[Stretch { partition: 2, low, next }], NOW).remove(0);
        (leave.cut, leave.moves)
    }

    #[test]
    fn everything_below_the_first_letter_that_is_not_resolved_leaves() {
        assert_eq!(plan(&index(0..8, |n| n < 5), 0, 8), (5, vec![]));
        assert_eq!(plan(&index(0..8, |_| true), 0, 8), (8, vec![]), "nothing is left");
        assert_eq!(plan(&index(0..8, |_| false), 0, 8), (0, vec![]));
        assert_eq!(
            plan(&index(0..0, |_| true), 3, 9),
            (9, vec![]),
            "old records of letters that are elsewhere by now"
        );
    }

    #[test]
    fn a_few_old_letters_that_hold_up_many_are_written_again() {
        assert_eq!(plan(&index(0..40, |n| n != 3), 0, 40), (3, vec![3]));
        assert_eq!(plan(&index(0..40, |n| n != 3 && n != 20), 0, 40), (3, vec![3, 20]));
        assert_eq!(
            plan(&index(0..40, |n| n != 3 && n < 30), 0, 40),
            (3, vec![3]),
            "up to where open ones are dense"
        );
        assert_eq!(plan(&index(0..10, |n| n != 3), 0, 10), (3, vec![]), "it is not worth it");
        assert_eq!(plan(&index(0..40, |n| n % 2 == 0), 0, 40).1, Vec::<u64>::new(), "half of them are open");
    }

    #[test]
    fn what_is_no_letter_stays_and_everything_behind_it() {
        let mut all = index(0..40, |n| n != 3);
        all.foreign(DlqPosition::new(2, 8));
        assert_eq!((plan(&all, 0, 40), all.counts.unreadable), ((3, vec![]), 1));
        all.foreign(DlqPosition::new(2, 1));
        assert_eq!(plan(&all, 0, 40), (1, vec![]));
        assert_eq!(plan(&all, 5, 40), (8, vec![]), "one that was deleted does not matter any more");
    }

    #[test]
    fn a_letter_that_was_resolved_a_moment_ago_stays_for_a_while() {
        let mut all = index(0..2, |_| false);
        let mut close = |number, is, at| {
            all.state_is(number, &StateRecord { generation: 0, is, jobs: vec![], at });
            plan(&all, 0, 2).0
        };
        assert_eq!(close(0, LetterState::Succeeded, NOW), 0);
        assert_eq!(
            close(1, LetterState::Succeeded, at(1)),
            0,
            "nothing can be deleted behind one that stays"
        );
        let mut old = Index::default();
        for (number, dead, discarded) in [(0, 40, 5), (1, 40, 0), (2, 20, 5)] {
            old.parked(number, &parked(number.cast_signed(), dead), LearnedFrom::Topic);
            let state =
                StateRecord { generation: 0, is: LetterState::Discarded, jobs: vec![], at: at(discarded) };
            old.state_is(number, &state);
        }
        assert_eq!(
            plan(&old, 0, 3).0,
            1,
            "a discard can be taken back for thirty days from the letter's death"
        );
        let undo = |number| can_be_undone(old.get(number).unwrap(), NOW);
        assert_eq!([undo(0), undo(1), undo(2)], [false, true, true]);
    }

    #[test]
    fn a_success_is_remembered_for_a_month_if_importing_the_letter_again_would_make_it_anew() {
        let of_no_source = PartitionOffset::made(77).number();
        let leaves = |number: u64, reason, generation, days_ago| {
            let mut all = Index::default();
            let letter = LetterRecord { reason, generation, ..parked(0, days_ago) };
            all.parked(number, &letter, LearnedFrom::Topic);
            let is = LetterState::Succeeded;
            all.state_is(number, &StateRecord { generation, is, jobs: vec![], at: at(1) });
            plan(&all, 0, 1).0 == 1
        };
        assert!(leaves(0, Reason::MaxRetries, 0, 5), "one that died here comes back by no import");
        for (number, reason, generation) in
            [(0, Reason::Imported, 0), (0, Reason::MaxRetries, 1), (of_no_source, Reason::MaxRetries, 1)]
        {
            let case = format!("{number} {reason:?} {generation}");
            assert!(!leaves(number, reason, generation, 30), "{case}");
            assert!(leaves(number, reason, generation, 32), "{case}");
        }
    }

    #[test]
    fn a_letter_is_gone_once_no_record_of_it_is_left() {
        let mut all = index(0..10, |n| n != 5);
        // A twin of the first letter, far behind it.
        all.parked(0, &parked(8, 5), LearnedFrom::Topic);
        let gone = |index: &Index, cut| rules().gone(index, &HashMap::from([(2, cut)]), NOW);
        assert_eq!(gone(&all, 5), [1, 2, 3, 4], "its twin would be an open letter by itself");
        assert_eq!(gone(&all, 10), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(gone(&all, 0), Vec::<u64>::new());
    }

    #[test]
    fn one_that_was_written_again_lies_where_it_lies_now() {
        let mut all = index(0..40, |n| n != 3);
        all.parked(3, &LetterRecord { moved: true, ..parked(40, 5) }, LearnedFrom::Acknowledgement);
        assert_eq!(plan(&all, 0, 41), (40, vec![]));
        assert_eq!((all.counts.open, all.counts.twins), (1, 0));
    }
}
