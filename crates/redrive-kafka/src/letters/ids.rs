//! Which letters are of which message: found by a part of the hash of the id. The ids themselves are in the local file, and
//! the caller compares them there.

use std::collections::BTreeSet;

use redrive::internal::engine::continued::ids_before;
use xxhash_rust::xxh3::xxh3_64;

/// 24 bits of the hash of a message's id: among a million letters, one in sixteen has a neighbour with the same bits. More
/// would make every letter larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdHash([u8; 3]);

impl IdHash {
    pub const NONE: Self = Self([0; 3]);

    /// An id that an edit may have given is the same as the one before it: a letter is found by either, and an edit
    /// changes nothing here.
    pub fn of(id: &str) -> Self {
        let [a, b, c, ..] = xxh3_64(ids_before(id).last().unwrap_or(id).as_bytes()).to_le_bytes();
        Self([a, b, c])
    }
}

/// The letters in the order of the hashes: 16 bytes for each, and what the tree takes.
#[derive(Debug, Default)]
pub struct IdIndex {
    letters: BTreeSet<(IdHash, u64)>,
}

impl IdIndex {
    /// What a letter was found by, and what it is found by now.
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

    /// Letters that may be of this message, in order; `None` if they are more than `max`.
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
