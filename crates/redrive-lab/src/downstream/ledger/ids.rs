//! A compact set of ids: sixty million orders take eight megabytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::seed;

/// Orders per chunk, one bit each: 8 KiB.
const CHUNK: u64 = 65_536;
const WORDS: usize = (CHUNK / 64) as usize;
/// Maximum number of chunks: 256 MiB, two billion orders.
const CHUNKS_MAX: usize = 32_768;
/// Maximum number of ids that are not ours.
const OTHERS_MAX: usize = 5_000_000;

/// Ids in a fixed order: our orders by seed and number, then all others by their bytes.
#[derive(Debug, Default)]
pub(super) struct IdSet {
    chunks: BTreeMap<(u64, u64), Box<[u64; WORDS]>>,
    others: BTreeSet<Box<str>>,
    len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    Known,
    /// The bound is reached; the id was not inserted.
    Full,
}

impl IdSet {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        let as_order = seed::parse(id).is_some_and(|(seed, number)| {
            self.chunks.get(&(seed, number / CHUNK)).is_some_and(|chunk| has_bit(chunk, number % CHUNK))
        });
        as_order || self.others.contains(id)
    }

    pub(super) fn insert(&mut self, id: &str) -> Inserted {
        if self.contains(id) {
            return Inserted::Known;
        }
        let place = seed::parse(id).map(|(seed, number)| ((seed, number / CHUNK), number % CHUNK));
        match place {
            Some((chunk, bit)) if self.chunks.contains_key(&chunk) || self.chunks.len() < CHUNKS_MAX => {
                let words = self.chunks.entry(chunk).or_insert_with(|| Box::new([0; WORDS]));
                words[(bit / 64) as usize] |= 1 << (bit % 64);
            }
            _ if self.others.len() < OTHERS_MAX => {
                self.others.insert(id.into());
            }
            _ => return Inserted::Full,
        }
        self.len += 1;
        Inserted::New
    }

    /// Up to `limit` ids after `after`, in the set's order.
    pub(super) fn page(&self, after: Option<&str>, limit: usize) -> Vec<String> {
        let mut ids = Vec::new();
        let order = after.and_then(seed::parse);
        // All orders precede an `after` that is not an order.
        if after.is_none() || order.is_some() {
            let (seed, number) = order.unwrap_or_default();
            let from = order.is_some().then_some((seed, number));
            for ((seed, chunk), words) in self.chunks.range((seed, number / CHUNK)..) {
                let numbers = bits(words).map(|bit| (*seed, chunk * CHUNK + bit));
                let fresh = numbers.filter(|place| from.is_none_or(|from| *place > from));
                ids.extend(fresh.take(limit - ids.len()).map(|(seed, number)| seed::id(seed, number)));
                if ids.len() == limit {
                    return ids;
                }
            }
        }
        // Orders are among the others only if the chunks were full. They come last, so after an order all others
        // follow.
        let others = match after.filter(|_| order.is_none()) {
            Some(after) => self.others.range::<str, _>((Excluded(after), Unbounded)),
            None => self.others.range::<str, _>((Unbounded, Unbounded)),
        };
        ids.extend(others.take(limit - ids.len()).map(ToString::to_string));
        ids
    }
}

fn has_bit(words: &[u64; WORDS], bit: u64) -> bool {
    words[(bit / 64) as usize] & (1 << (bit % 64)) != 0
}

fn bits(words: &[u64; WORDS]) -> impl Iterator<Item = u64> {
    words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(index, word)| {
        let word = *word;
        (0..64_u64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| index as u64 * 64 + bit)
    })
}

/// Every single statement leaves the set consistent, so a poisoned lock can be ignored.
pub(super) fn locked(ids: &Mutex<IdSet>) -> MutexGuard<'_, IdSet> {
    ids.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn any_id() -> impl Strategy<Value = String> {
        prop_oneof![
            (0_u64..200).prop_map(|n| seed::id(seed::DEFAULT_SEED, n)),
            (0_u64..5, any::<u64>()).prop_map(|(seed, n)| seed::id(seed, n)),
            "[a-z/-]{1,6}",
            Just("o-007".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_ids_and_pages_give_each_once(ids in prop::collection::vec(any_id(), 0..200), limit in 1_usize..50) {
            let (mut set, mut model) = (IdSet::default(), HashSet::new());
            for id in &ids {
                let expected = if model.insert(id.clone()) { Inserted::New } else { Inserted::Known };
                prop_assert_eq!(set.insert(id), expected);
                prop_assert!(set.contains(id));
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            let mut paged = Vec::new();
            loop {
                let page = set.page(paged.last().map(String::as_str), limit);
                prop_assert!(page.len() <= limit);
                if page.is_empty() {
                    break;
                }
                paged.extend(page);
                prop_assert!(paged.len() <= model.len(), "an id came twice");
            }
            prop_assert_eq!(paged.into_iter().collect::<HashSet<_>>(), model);
        }
    }

    #[test]
    fn an_id_in_another_spelling_is_another_id() {
        let mut set = IdSet::default();
        assert_eq!(set.insert("o-7"), Inserted::New);
        assert!(!set.contains("o-07") && !set.contains("o-7 ") && !set.contains("o-7-7"));
    }

    #[test]
    fn what_is_scattered_beyond_the_bound_is_still_remembered() {
        let mut set = IdSet::default();
        for n in 0..=CHUNKS_MAX as u64 {
            assert_eq!(set.insert(&seed::id(7, n * CHUNK)), Inserted::New);
        }
        assert_eq!((set.chunks.len(), set.others.len()), (CHUNKS_MAX, 1));
        assert_eq!(set.insert(&seed::id(7, CHUNKS_MAX as u64 * CHUNK)), Inserted::Known);
    }
}
