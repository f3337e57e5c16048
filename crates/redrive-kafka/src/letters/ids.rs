//! Finds the letters of a message by a part of the hash of its id. The ids themselves are in the local file, where the
//! caller compares them.

use std::collections::BTreeSet;

use redrive::internal::engine::continued::ids_before;
use xxhash_rust::xxh3::xxh3_64;

/// 24 bits of the hash of a message's id: among a million letters, one in sixteen shares its bits with another. More
/// bits would make every entry larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdHash([u8; 3]);

impl IdHash {
    pub const NONE: Self = Self([0; 3]);

    /// Ids that an edit may have given hash like the original id: a letter is found by either, and an edit changes
    /// nothing here.
    pub fn of(id: &str) -> Self {
        let [a, b, c, ..] = xxh3_64(ids_before(id).last().unwrap_or(id).as_bytes()).to_le_bytes();
        Self([a, b, c])
    }
}

/// The letters ordered by hash: 16 bytes each, plus the tree.
#[derive(Debug, Default)]
pub struct IdIndex {
    letters: BTreeSet<(IdHash, u64)>,
}

impl IdIndex {
    /// Replaces the hash by which a letter is found.
    pub fn change(&mut self, letter: u64, before: Option<IdHash>, after: Option<IdHash>) {
        if before == after {
            return;
        }
        if let Some(hash) = before {
            self.letters.remove(&(hash, letter));
        }
        if let Some(hash) = after {
            self.letters.insert((hash, letter));
        }
    }

    /// Returns the letters that may belong to this message, in order; `None` if there are more than `max`.
    pub fn letters(&self, id: &str, max: usize) -> Option<Vec<u64>> {
        let hash = IdHash::of(id);
        let found = self.letters.range((hash, 0)..=(hash, u64::MAX)).take(max + 1);
        let found: Vec<u64> = found.map(|(_, letter)| *letter).collect();
        (found.len() <= max).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_found_by_the_ids_that_its_message_had_until_it_goes() {
        let mut ids = IdIndex::default();
        for (letter, id) in [(7, "o-1"), (3, "o-2"), (9, "o-1~e-12~e-k3x9q-13")] {
            ids.change(letter, None, Some(IdHash::of(id)));
        }
        for id in ["o-1", "o-1~e-12", "o-1~e-99"] {
            assert_eq!(ids.letters(id, 2), Some(vec![7, 9]), "{id}");
            assert_eq!(ids.letters(id, 1), None, "too many");
        }
        assert_eq!((ids.letters("o-2", 2), ids.letters("o-3", 2)), (Some(vec![3]), Some(Vec::new())));
        ids.change(7, Some(IdHash::of("o-1")), None);
        ids.change(9, Some(IdHash::of("o-1")), Some(IdHash::of("o-2")));
        assert_eq!((ids.letters("o-1", 2), ids.letters("o-2", 2)), (Some(Vec::new()), Some(vec![3, 9])));
    }
}
