//! Chooses which runs of a table are merged next. Pure: takes sizes, returns a range of neighbours.

use std::ops::Range;

use crate::engine::embedded::index::tables::Space;

/// How runs of one table are merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// This many runs of one size class are merged into one of the next.
    fan_in: usize,
    /// The maximum size of a run in the lowest class.
    base: u64,
    /// Runs of at least this size are not merged any more.
    whole_at: u64,
}

impl Rule {
    /// Ids are written once and expire by age, so their merges are few and large, and no run spans days. The other
    /// tables change and are read in ranges, so they have fewer runs. `checkpoint` is the size of a typical checkpoint;
    /// many are smaller.
    pub(crate) fn of(space: Space, checkpoint: u64) -> Self {
        let base = checkpoint.div_ceil(64);
        match space {
            Space::Ids => Self { fan_in: 8, base, whole_at: checkpoint.saturating_mul(40) },
            _ => Self { fan_in: 4, base, whole_at: u64::MAX },
        }
    }

    fn class(&self, entries: u64) -> u32 {
        let mut class = 0;
        let mut most = self.base.max(1);
        while entries > most {
            most = most.saturating_mul(self.fan_in as u64);
            class += 1;
        }
        class
    }

    /// The runs to merge, given the entries of all runs, oldest first. They always include the newest run, so that the
    /// runs stay in the order in which they were written.
    pub(crate) fn next(&self, entries: &[u64]) -> Option<Range<usize>> {
        let first = entries.iter().rposition(|entries| *entries >= self.whole_at).map_or(0, |at| at + 1);
        let classes: Vec<u32> = entries[first..].iter().map(|entries| self.class(*entries)).collect();
        let highest = classes.iter().copied().max()?;
        (0..=highest).find_map(|class| {
            let young = classes.iter().rev().take_while(|here| **here <= class);
            let (all, of_class) =
                young.fold((0, 0), |(all, same), here| (all + 1, same + usize::from(*here == class)));
            (of_class >= self.fan_in).then(|| entries.len() - all..entries.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds runs of one size one by one, merging as needed. Returns the maximum number of runs, and how often an entry
    /// was rewritten on average.
    fn grow(rule: Rule, runs: u64, entries: u64) -> (usize, f64) {
        let (mut sizes, mut most, mut moved) = (Vec::new(), 0, 0);
        for _ in 0..runs {
            sizes.push(entries);
            while let Some(merge) = rule.next(&sizes) {
                let together: u64 = sizes[merge.clone()].iter().sum();
                moved += together;
                sizes.splice(merge, [together]);
            }
            most = most.max(sizes.len());
        }
        assert_eq!(sizes.iter().sum::<u64>(), runs * entries);
        (most, moved as f64 / (runs * entries) as f64)
    }

    #[test]
    fn a_hundred_million_ids_lie_in_few_runs_and_are_rarely_moved() {
        let rule = Rule::of(Space::Ids, 400_000);
        let (most, moved) = grow(rule, 250, 400_000);
        assert!(most <= 18 && moved <= 2.0, "{most} runs, moved {moved} times");
        let (most, moved) = grow(rule, 100_000, 1_000);
        assert!(most <= 40 && moved <= 5.0, "{most} runs, moved {moved} times");
    }

    #[test]
    fn other_tables_have_fewer_runs() {
        let rule = Rule::of(Space::Letters, 400_000);
        let (most, moved) = grow(rule, 256, 400_000);
        assert!(most <= 13 && moved <= 4.0, "{most} runs, moved {moved} times");
        let (most, moved) = grow(rule, 100_000, 1_000);
        assert!(most <= 24 && moved <= 9.0, "{most} runs, moved {moved} times");
    }
}
