//! Key lines: the messages that wait behind an earlier one of their key, or for their due time, in the order of
//! acceptance.

use std::sync::Arc;

use crate::engine::embedded::index::tables::LineSlot;
use crate::engine::numbers::NumberMap;
use crate::engine::overlay::{Changes, Far, Overlay};

/// Key hash, message number: the order of a key is the order of acceptance.
pub type LineKey = (u64, u64);

/// The number of keys whose head is cached. Dropping the cache only makes searches longer.
const HEADS_MAX: usize = 64 * 1024;
/// The cached head of an empty line.
const NOBODY: u64 = u64::MAX;

#[derive(Debug, Default)]
pub struct Lines {
    slots: Overlay<LineKey, LineSlot>,
    /// No message before this number is in the key's line. Messages that left stay in the table until the next
    /// checkpoint, and a search from the start would pass all of them each time.
    heads: NumberMap<u64, u64>,
}

impl Lines {
    pub fn set(&mut self, key: LineKey, slot: LineSlot) {
        if let Some(head) = self.heads.get_mut(&key.0) {
            *head = key.1.min(*head);
        }
        self.slots.set(key, slot);
    }

    /// The first message in a key's line.
    pub fn first<F>(&mut self, hash: u64, far: &F) -> Result<Option<(LineKey, LineSlot)>, F::Error>
    where
        F: Far<LineKey, LineSlot>,
    {
        let from = self.heads.get(&hash).copied().unwrap_or(0);
        if from == NOBODY {
            return Ok(None);
        }
        let first = self.slots.first(&(hash, from), &(hash, NOBODY), far)?;
        if self.heads.len() >= HEADS_MAX && !self.heads.contains_key(&hash) {
            self.heads.clear();
        }
        self.heads.insert(hash, first.as_ref().map_or(NOBODY, |(key, _)| key.1));
        Ok(first)
    }

    pub fn get<F>(&self, key: &LineKey, far: &F) -> Result<Option<LineSlot>, F::Error>
    where
        F: Far<LineKey, LineSlot>,
    {
        self.slots.get(key, far)
    }

    pub fn range<F>(
        &self,
        from: &LineKey,
        limit: usize,
        far: &F,
    ) -> Result<Vec<(LineKey, LineSlot)>, F::Error>
    where
        F: Far<LineKey, LineSlot>,
    {
        self.slots.range(from, limit, far)
    }

    pub fn remove(&mut self, key: &LineKey) {
        self.slots.remove(key);
    }

    pub fn freeze(&mut self) -> Arc<Changes<LineKey, LineSlot>> {
        self.slots.freeze()
    }

    pub fn thaw(&mut self) -> Arc<Changes<LineKey, LineSlot>> {
        self.slots.thaw()
    }

    /// The number of changes not yet handed over.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    type Table = BTreeMap<LineKey, LineSlot>;

    impl Far<LineKey, LineSlot> for Table {
        type Error = Infallible;
        fn get(&self, key: &LineKey) -> Result<Option<LineSlot>, Infallible> {
            Ok(BTreeMap::get(self, key).copied())
        }
        fn range(
            &self,
            from: &LineKey,
            to: Option<&LineKey>,
            limit: usize,
        ) -> Result<Vec<(LineKey, LineSlot)>, Infallible> {
            let entries = BTreeMap::range(self, from..).take_while(|(key, _)| to.is_none_or(|to| *key <= to));
            Ok(entries.take(limit).map(|(k, v)| (*k, *v)).collect())
        }
    }

    proptest! {
        /// Even if a message with a lower number joins late: one ingested with a delay, or a letter.
        #[test]
        fn the_first_in_line_is_the_lowest_that_is_left(
            steps in prop::collection::vec((0u8..6, 0u64..3, 0u64..30), 0..200)
        ) {
            let (mut lines, mut table, mut plain) = (Lines::default(), Table::new(), Table::new());
            for (step, hash, seq) in steps {
                match step {
                    0 | 1 => { lines.set((hash, seq), LineSlot::Delayed); plain.insert((hash, seq), LineSlot::Delayed); }
                    2 | 3 => { lines.remove(&(hash, seq)); plain.remove(&(hash, seq)); }
                    4 => {
                        for (key, change) in lines.freeze().iter() {
                            match change.value() { Some(v) => drop(table.insert(*key, *v)), None => drop(table.remove(key)) }
                        }
                        lines.thaw();
                    }
                    _ => {}
                }
                let first = plain.range((hash, 0)..=(hash, u64::MAX)).next().map(|(k, v)| (*k, *v));
                prop_assert_eq!(lines.first(hash, &table).unwrap(), first);
            }
        }
    }
}
