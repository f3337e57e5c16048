//! Which numbers of a log are finished: a prefix, and the set of finished numbers beyond it.
//!
//! The embedded engine uses it for the fresh messages of its journal, Kafka for the offsets of a partition.

use std::collections::VecDeque;

/// Everything below the prefix is finished; beyond it, one bit per number.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CompletionSet {
    /// A multiple of 64; all numbers below are finished.
    base: u64,
    words: VecDeque<u64>,
    finished_beyond: u64,
}

impl CompletionSet {
    /// A set in which everything below `prefix` is finished.
    pub fn starting_at(prefix: u64) -> Self {
        let mut set = Self { base: prefix / 64 * 64, ..Self::default() };
        for number in set.base..prefix {
            set.insert(number);
        }
        set
    }

    /// Marks a number finished; `false` if it was already.
    pub fn insert(&mut self, number: u64) -> bool {
        if number < self.base {
            return false;
        }
        let word = ((number - self.base) / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let bit = 1 << (number % 64);
        if self.words[word] & bit != 0 {
            return false;
        }
        self.words[word] |= bit;
        self.finished_beyond += 1;
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.base += 64;
            self.finished_beyond -= 64;
        }
        true
    }

    pub fn contains(&self, number: u64) -> bool {
        number < self.base
            || self
                .words
                .get(((number - self.base) / 64) as usize)
                .is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// The first number that is not finished.
    pub fn prefix(&self) -> u64 {
        self.base + self.words.front().map_or(0, |word| u64::from(word.trailing_ones()))
    }

    /// How many numbers below `end` are not finished.
    pub fn unfinished_below(&self, end: u64) -> u64 {
        end.saturating_sub(self.base).saturating_sub(self.finished_beyond)
    }

    /// Returns the finished runs beyond the prefix, as (first, count). They must be stored together with the prefix.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let prefix = self.prefix();
        for (index, word) in self.words.iter().enumerate() {
            for bit in 0..64 {
                let number = self.base + index as u64 * 64 + bit;
                if word >> bit & 1 == 0 || number < prefix {
                    continue;
                }
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == number => *count += 1,
                    _ => runs.push((number, 1)),
                }
            }
        }
        runs
    }

    /// Returns the bits from `first` (a multiple of 64) on, one word per 64 numbers. Everything before the prefix is
    /// finished.
    pub fn words_from(&self, first: u64) -> impl Iterator<Item = u64> {
        let before = (self.base.saturating_sub(first) / 64) as usize;
        let skipped = (first.saturating_sub(self.base) / 64) as usize;
        std::iter::repeat_n(u64::MAX, before).chain(self.words.iter().skip(skipped).copied())
    }

    /// One past the highest finished number beyond the prefix, rounded up to a word.
    pub fn end(&self) -> u64 {
        self.base + self.words.len() as u64 * 64
    }

    /// Bytes held: one bit per number between the prefix and the highest finished one.
    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_prefix_waits_for_the_slowest() {
        let mut set = CompletionSet::default();
        (1..200).for_each(|n| assert!(set.insert(n)));
        assert_eq!(set.prefix(), 0);
        assert!(set.insert(0));
        assert!(!set.insert(0));
        assert_eq!(set.prefix(), 200);
        assert_eq!(set.unfinished_below(300), 100);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_set(start in 0u64..200, numbers in prop::collection::vec(0u64..500, 0..400)) {
            let mut set = CompletionSet::starting_at(start);
            let mut plain: BTreeSet<u64> = (0..start).collect();
            for n in numbers {
                prop_assert_eq!(set.insert(n), plain.insert(n));
            }
            let prefix = (0..=500).find(|n| !plain.contains(n)).unwrap();
            prop_assert_eq!(set.prefix(), prefix);
            let again = set.runs().into_iter().fold(CompletionSet::starting_at(prefix), |mut again, (first, count)| {
                (first..first + count).for_each(|n| { again.insert(n); });
                again
            });
            for n in 0..600 {
                prop_assert_eq!(set.contains(n), plain.contains(&n));
                prop_assert_eq!(again.contains(n), plain.contains(&n));
            }
            prop_assert_eq!(set.unfinished_below(600), (0..600).filter(|n| !plain.contains(n)).count() as u64);
        }
    }
}
