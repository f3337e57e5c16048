//! Reconciles every produced id with its outcome. Pure; the marks come from outside.

use super::produced_ids::{Marks, ProducedIds};

/// The outcome of one produced id. Every id has exactly one fate, so the counts add up to the number produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdFate {
    /// The witness has it.
    Succeeded,
    /// It has an open letter. `applied`: the witness has it as well, so the failure was reported after the effect.
    DeadOpen { applied: bool },
    /// Its letter was discarded, or erased.
    DeadDiscarded { applied: bool },
    /// It is waiting, running or being replayed.
    Pending,
    /// Neither the witness nor Redrive has it, or only Redrive says that it succeeded.
    Missing,
}

/// Determines the fate. A letter takes precedence over the witness, since it still needs attention. The witness takes
/// precedence over everything else that Redrive says.
pub fn fate(marks: Marks) -> IdFate {
    let applied = marks.has(Marks::APPLIED);
    if marks.has(Marks::OPEN) {
        IdFate::DeadOpen { applied }
    } else if marks.has(Marks::DISCARDED) {
        IdFate::DeadDiscarded { applied }
    } else if applied {
        IdFate::Succeeded
    } else if marks.has(Marks::PENDING) || marks.has(Marks::REPLAYING) {
        IdFate::Pending
    } else {
        IdFate::Missing
    }
}

/// The counts of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    pub produced: u64,
    pub succeeded: u64,
    pub dead_open: u64,
    pub dead_discarded: u64,
    pub dead_erased: u64,
    /// Dead ones that the witness has as well.
    pub dead_also_succeeded: u64,
    pub pending: u64,
    pub missing: u64,
    /// The first missing ids in order, at most as many as requested.
    pub missing_ids: Vec<String>,
    /// Ids that the witness has more than once.
    pub duplicate_effects: u64,
    /// Ids that the list of produced ids names more than once.
    pub listed_again: u64,
    /// Produced ids that continue under another one after an edit; and how many of these the witness has under both.
    pub continued: u64,
    pub continued_applied_before: u64,
}

impl Reconciliation {
    pub fn dead(&self) -> u64 {
        self.dead_open + self.dead_discarded + self.dead_erased
    }

    pub fn is_good(&self) -> bool {
        self.missing == 0 && self.duplicate_effects == 0
    }
}

/// Counts the fates of all ids, and names at most `name` missing ones.
pub fn reconcile(produced: &ProducedIds, name: usize) -> Reconciliation {
    let (continued, continued_applied_before) = produced.continued();
    let mut reconciliation = Reconciliation {
        produced: produced.len(),
        continued,
        continued_applied_before,
        ..Reconciliation::default()
    };
    produced.each(|marks, id| {
        match fate(marks) {
            IdFate::Succeeded => reconciliation.succeeded += 1,
            IdFate::DeadOpen { applied } => {
                reconciliation.dead_open += 1;
                reconciliation.dead_also_succeeded += u64::from(applied);
            }
            IdFate::DeadDiscarded { applied } => {
                let is_erased = produced.is_erased(&id());
                reconciliation.dead_erased += u64::from(is_erased);
                reconciliation.dead_discarded += u64::from(!is_erased);
                reconciliation.dead_also_succeeded += u64::from(applied);
            }
            IdFate::Pending => reconciliation.pending += 1,
            IdFate::Missing => {
                reconciliation.missing += 1;
                reconciliation.missing_ids.push(id());
                // Truncated regularly, so that a witness that lost everything does not double memory use.
                if reconciliation.missing_ids.len() >= name.saturating_mul(2).max(1_024) {
                    keep_first(&mut reconciliation.missing_ids, name);
                }
            }
        }
        reconciliation.duplicate_effects += u64::from(marks.has(Marks::APPLIED_AGAIN));
        reconciliation.listed_again += u64::from(marks.has(Marks::LISTED_AGAIN));
    });
    keep_first(&mut reconciliation.missing_ids, name);
    reconciliation
}

/// Sorts shorter ids first, so that `o-9` comes before `o-10`.
fn keep_first(ids: &mut Vec<String>, count: usize) {
    ids.sort_unstable_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    ids.truncate(count);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_witness_has_is_never_missing_and_what_nobody_has_always_is() {
        for marks in Marks::all() {
            let missing = fate(marks) == IdFate::Missing;
            let known = [Marks::APPLIED, Marks::OPEN, Marks::DISCARDED, Marks::REPLAYING, Marks::PENDING];
            assert_eq!(missing, !known.iter().any(|mark| marks.has(*mark)), "{marks:?}");
        }
    }

    #[test]
    fn an_open_letter_is_dead_also_if_the_effect_happened() {
        let both = Marks::OPEN.with(Marks::APPLIED);
        assert_eq!(fate(both), IdFate::DeadOpen { applied: true });
        assert_eq!(fate(Marks::REPLAYING.with(Marks::APPLIED)), IdFate::Succeeded);
        assert_eq!(fate(Marks::REPLAYING), IdFate::Pending);
        assert_eq!(fate(Marks::DISCARDED.with(Marks::PENDING)), IdFate::DeadDiscarded { applied: false });
    }

    #[test]
    fn an_erased_letter_is_dead_and_counted_apart_from_discarded_ones() {
        let mut produced = ProducedIds::range("o-", 0, 3).unwrap();
        produced.mark("o-0", Marks::APPLIED);
        produced.mark("o-1", Marks::DISCARDED);
        produced.erased("o-2");
        produced.erased("o-9");
        produced.mark("o-3", Marks::OPEN);
        let found = reconcile(&produced, 9);
        assert_eq!((found.dead(), found.dead_discarded, found.dead_erased, found.missing), (3, 1, 1, 0));
    }

    #[test]
    fn missing_ids_are_named_in_the_order_people_count() {
        let produced = ProducedIds::range("o-", 0, 4_999).unwrap();
        let reconciliation = reconcile(&produced, 12);
        assert_eq!(reconciliation.missing, 5_000);
        let first: Vec<_> = (0..12).map(|i| format!("o-{i}")).collect();
        assert_eq!(reconciliation.missing_ids, first);
    }

    type Ids = BTreeSet<u16>;

    fn ids() -> impl Strategy<Value = Ids> {
        btree_set(0_u16..60, 0..50)
    }

    /// The same reconciliation by set arithmetic, as on paper.
    fn on_paper(produced: &Ids, applied: &Ids, open: &Ids, discarded: &Ids, pending: &Ids) -> [u64; 5] {
        let open: Ids = produced & open;
        let discarded: Ids = &(produced & discarded) - &open;
        let succeeded: Ids = &(&(produced & applied) - &open) - &discarded;
        let rest: Ids = &(&(produced - &open) - &discarded) - &succeeded;
        let pending: Ids = &rest & pending;
        let missing = &rest - &pending;
        [succeeded, open, discarded, pending, missing].map(|set| set.len() as u64)
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_set_arithmetic(
            produced in ids(), applied in ids(), open in ids(), discarded in ids(), pending in ids(),
        ) {
            let mut marked = ProducedIds::listed();
            for id in &produced {
                prop_assert!(marked.add(&id.to_string()));
            }
            for (set, mark) in [
                (&applied, Marks::APPLIED), (&open, Marks::OPEN), (&discarded, Marks::DISCARDED),
                (&pending, Marks::PENDING),
            ] {
                for id in set {
                    prop_assert_eq!(marked.mark(&id.to_string(), mark), produced.contains(id));
                }
            }
            let found = reconcile(&marked, 100);
            prop_assert_eq!(found.produced, produced.len() as u64);
            prop_assert_eq!(found.succeeded + found.dead() + found.pending + found.missing, found.produced);
            prop_assert_eq!(
                [found.succeeded, found.dead_open, found.dead_discarded, found.pending, found.missing],
                on_paper(&produced, &applied, &open, &discarded, &pending)
            );
            prop_assert_eq!(found.missing_ids.len() as u64, found.missing);
            for id in &found.missing_ids {
                let id: u16 = id.parse().unwrap();
                prop_assert!(produced.contains(&id) && !applied.contains(&id));
            }
        }

        #[test]
        fn a_range_and_a_list_of_the_same_ids_agree(marks in vec(0_usize..256, 1..80)) {
            let all: Vec<Marks> = Marks::all().collect();
            let mut range = ProducedIds::range("x", 0, marks.len() as u64 - 1).unwrap();
            let mut listed = ProducedIds::listed();
            for (i, mark) in marks.iter().enumerate() {
                let id = format!("x{i}");
                prop_assert!(listed.add(&id));
                prop_assert!(range.mark(&id, all[*mark]) && listed.mark(&id, all[*mark]));
            }
            prop_assert_eq!(reconcile(&range, 7), reconcile(&listed, 7));
        }

        #[test]
        fn losing_one_row_of_the_witness_makes_exactly_that_id_missing(count in 1_u64..50, lost in 0_u64..50) {
            let lost = lost % count;
            let mut produced = ProducedIds::range("o-", 0, count - 1).unwrap();
            for id in (0..count).filter(|id| *id != lost) {
                let id = format!("o-{id}");
                prop_assert!(produced.mark(&id, Marks::APPLIED));
            }
            let found = reconcile(&produced, 20);
            prop_assert_eq!(found.missing_ids, [format!("o-{lost}")]);
        }
    }
}
