//! An in-memory layer of changes that are not yet in the table behind it.
//!
//! The source of truth is the table with these changes on top. An entry added and removed between two hand-overs never
//! reaches the table, and new changes can be made while a hand-over is under way.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// One entry that differs from the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayEntry<V> {
    /// `fresh`: the table has no such entry, so that a removal can just drop this change.
    Put {
        value: V,
        fresh: bool,
    },
    Gone,
}

impl<V> OverlayEntry<V> {
    pub fn value(&self) -> Option<&V> {
        match self {
            Self::Put { value, .. } => Some(value),
            Self::Gone => None,
        }
    }
}

pub type Changes<K, V> = BTreeMap<K, OverlayEntry<V>>;

/// Read access to the table behind an overlay.
pub trait Far<K, V> {
    type Error;
    fn get(&self, key: &K) -> Result<Option<V>, Self::Error>;
    /// Entries in `[from, to]` (open-ended if `to` is `None`), in order, at most `limit`.
    fn range(&self, from: &K, to: Option<&K>, limit: usize) -> Result<Vec<(K, V)>, Self::Error>;
}

#[derive(Clone, Debug)]
pub struct Overlay<K, V> {
    delta: Changes<K, V>,
    /// Changes handed over that are being written into the table.
    frozen: Arc<Changes<K, V>>,
}

impl<K: Ord + Clone, V: Clone> Default for Overlay<K, V> {
    fn default() -> Self {
        Self { delta: BTreeMap::new(), frozen: Arc::default() }
    }
}

impl<K: Ord + Clone, V: Clone> Overlay<K, V> {
    /// Adds an entry; its key must not be in use.
    pub fn put(&mut self, key: K, value: V) {
        let fresh = !self.delta.contains_key(&key) && !self.frozen.contains_key(&key);
        self.delta.insert(key, OverlayEntry::Put { value, fresh });
    }

    /// Sets an entry, whether its key is in use or not.
    pub fn set(&mut self, key: K, value: V) {
        let fresh = matches!(self.delta.get(&key), Some(OverlayEntry::Put { fresh: true, .. }));
        self.delta.insert(key, OverlayEntry::Put { value, fresh });
    }

    pub fn remove(&mut self, key: &K) {
        if matches!(self.delta.get(key), Some(OverlayEntry::Put { fresh: true, .. })) {
            self.delta.remove(key);
        } else {
            self.delta.insert(key.clone(), OverlayEntry::Gone);
        }
    }

    pub fn get<F: Far<K, V>>(&self, key: &K, far: &F) -> Result<Option<V>, F::Error> {
        match self.delta.get(key).or_else(|| self.frozen.get(key)) {
            Some(change) => Ok(change.value().cloned()),
            None => far.get(key),
        }
    }

    /// Entries at or after `from`, in order. Fewer than `limit` only at the end.
    pub fn range<F: Far<K, V>>(&self, from: &K, limit: usize, far: &F) -> Result<Vec<(K, V)>, F::Error> {
        self.range_until(from, None, limit, far)
    }

    /// Entries of `[from, to]`, in order. Fewer than `limit` only at the end.
    pub fn range_to<F: Far<K, V>>(
        &self,
        from: &K,
        to: &K,
        limit: usize,
        far: &F,
    ) -> Result<Vec<(K, V)>, F::Error> {
        self.range_until(from, Some(to), limit, far)
    }

    /// The first entry of `[from, to]`. Looks at no more changes than necessary: a key line may have hundreds of
    /// thousands of further entries and removals behind its first one.
    pub fn first<F: Far<K, V>>(&self, from: &K, to: &K, far: &F) -> Result<Option<(K, V)>, F::Error> {
        Ok(self.range_until(from, Some(to), 1, far)?.pop())
    }

    fn range_until<F: Far<K, V>>(
        &self,
        from: &K,
        to: Option<&K>,
        limit: usize,
        far: &F,
    ) -> Result<Vec<(K, V)>, F::Error> {
        let mut found = Vec::new();
        let mut from = Bound::Included(from.clone());
        // The table may hold entries that are removed in the overlay: read on until enough are left.
        while let Bound::Included(first) | Bound::Excluded(first) = &from
            && found.len() < limit
        {
            let chunk_len = limit.saturating_add(1).max(4);
            let mut chunk = far.range(first, to, chunk_len)?;
            let last = if chunk.len() < chunk_len { None } else { chunk.last().map(|(key, _)| key.clone()) };
            let last = last.filter(|last| to.is_none_or(|to| last < to));
            if matches!(from, Bound::Excluded(_)) && chunk.first().is_some_and(|(key, _)| key == first) {
                chunk.remove(0);
            }
            if let Some(to) = to {
                chunk.retain(|(key, _)| key <= to);
            }
            let end = last.as_ref().or(to).map_or(Bound::Unbounded, Bound::Included);
            self.merge(chunk, (from.as_ref(), end), limit, &mut found);
            from = last.map_or(Bound::Unbounded, Bound::Excluded);
        }
        Ok(found)
    }

    /// Merges entries of the table with the changes of the same range, until `found` has `limit` entries.
    fn merge(
        &self,
        table: Vec<(K, V)>,
        range: (Bound<&K>, Bound<&K>),
        limit: usize,
        found: &mut Vec<(K, V)>,
    ) {
        let mut table = table.into_iter().peekable();
        let mut frozen = self.frozen.range(range).peekable();
        let mut delta = self.delta.range(range).peekable();
        while found.len() < limit {
            let heads =
                [table.peek().map(|(key, _)| key), frozen.peek().map(|e| e.0), delta.peek().map(|e| e.0)];
            let Some(key) = heads.into_iter().flatten().min().cloned() else { return };
            let below = table.next_if(|(k, _)| *k == key).map(|(_, value)| value);
            let frozen = frozen.next_if(|(k, _)| **k == key).map(|(_, change)| change.value().cloned());
            let newest = delta.next_if(|(k, _)| **k == key).map(|(_, change)| change.value().cloned());
            if let Some(value) = newest.or(frozen).unwrap_or(below) {
                found.push((key, value));
            }
        }
    }

    /// Applies the changes of `[from, end]` (open if `None`) to entries read from the table.
    pub fn lay_over(&self, from: &K, end: Option<&K>, found: &mut BTreeMap<K, V>) {
        let bounds = (Bound::Included(from), end.map_or(Bound::Unbounded, Bound::Included));
        for (key, change) in self.frozen.range(bounds).chain(self.delta.range(bounds)) {
            match change {
                OverlayEntry::Put { value, .. } => drop(found.insert(key.clone(), value.clone())),
                OverlayEntry::Gone => drop(found.remove(key)),
            }
        }
    }

    /// Hands over the changes so far, to be written into the table. Call [`Overlay::thaw`] when they are written.
    pub fn freeze(&mut self) -> Arc<Changes<K, V>> {
        debug_assert!(self.frozen.is_empty(), "one hand-over at a time");
        self.frozen = Arc::new(std::mem::take(&mut self.delta));
        Arc::clone(&self.frozen)
    }

    /// Takes out the frozen changes, now that the table holds them.
    pub fn thaw(&mut self) -> Arc<Changes<K, V>> {
        std::mem::take(&mut self.frozen)
    }

    /// The entries not yet handed over.
    pub fn pending(&self) -> impl Iterator<Item = (&K, &V)> {
        self.delta.iter().filter_map(|(key, change)| Some((key, change.value()?)))
    }

    /// The number of changes not yet handed over.
    pub fn len(&self) -> usize {
        self.delta.len()
    }

    pub fn is_empty(&self) -> bool {
        self.delta.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    impl Far<u8, u32> for BTreeMap<u8, u32> {
        type Error = Infallible;
        fn get(&self, key: &u8) -> Result<Option<u32>, Infallible> {
            Ok(BTreeMap::get(self, key).copied())
        }
        fn range(&self, from: &u8, to: Option<&u8>, limit: usize) -> Result<Vec<(u8, u32)>, Infallible> {
            let entries = BTreeMap::range(self, from..).take_while(|(key, _)| to.is_none_or(|to| *key <= to));
            Ok(entries.take(limit).map(|(k, v)| (*k, *v)).collect())
        }
    }

    fn write(table: &mut BTreeMap<u8, u32>, changes: &Changes<u8, u32>) {
        for (key, change) in changes {
            match change.value() {
                Some(value) => drop(table.insert(*key, *value)),
                None => drop(table.remove(key)),
            }
        }
    }

    proptest! {
        #[test]
        fn overlay_and_table_together_are_a_plain_map(steps in prop::collection::vec((0u8..6, 0u8..40, any::<u32>()), 0..200)) {
            let (mut overlay, mut table) = (Overlay::<u8, u32>::default(), BTreeMap::new());
            let mut plain: BTreeMap<u8, u32> = BTreeMap::new();
            let mut under_way: Option<Arc<Changes<u8, u32>>> = None;
            for (step, key, value) in steps {
                match step {
                    0 | 1 if !plain.contains_key(&key) => { overlay.put(key, value); plain.insert(key, value); }
                    0..=2 => { overlay.set(key, value); plain.insert(key, value); }
                    3 => { overlay.remove(&key); plain.remove(&key); }
                    4 if under_way.is_none() => under_way = Some(overlay.freeze()),
                    _ => if let Some(changes) = under_way.take() {
                        write(&mut table, &changes);
                        if value % 2 == 0 { overlay.thaw(); } else { under_way = Some(changes); }
                    },
                }
                prop_assert_eq!(overlay.get(&key, &table).unwrap(), plain.get(&key).copied());
                let limit = usize::from(key % 7) + 1;
                let expected: Vec<_> = plain.range(key..).take(limit).map(|(k, v)| (*k, *v)).collect();
                prop_assert_eq!(overlay.range(&key, limit, &table).unwrap(), expected);
                let to = key.saturating_add(value as u8 % 40);
                let expected = plain.range(key..=to).next().map(|(k, v)| (*k, *v));
                prop_assert_eq!(overlay.first(&key, &to, &table).unwrap(), expected);
            }
        }
    }
}
