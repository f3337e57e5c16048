//! Messages that wait for their due time: a window of the nearest ones in memory, the others in the table behind it.
//!
//! The table with the overlay's changes is the source of truth; the window holds the part of it before the horizon. So
//! the window can be cut at any time without losing anything, and an entry added below the horizon is visible at once.
//! The embedded engine keeps its waiting messages here.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::Time;

use super::numbers::NumberMap;
use super::overlay::{Changes, Far, Overlay};

/// Due time in milliseconds, then the message's number.
pub type DelayKey = (u64, u64);

const EVERYTHING: DelayKey = (u64::MAX, u64::MAX);
/// Entries read from the table at once; inserting them must not delay deliveries for long.
const LOAD_MAX: usize = 16 * 1024;

#[derive(Clone, Debug)]
pub struct DelayIndex<V> {
    overlay: Overlay<DelayKey, V>,
    /// Every waiting entry below the horizon that is not handed out.
    near: BTreeMap<DelayKey, V>,
    /// Entries that are handed out, so that removing them needs no table lookup.
    out: NumberMap<DelayKey, V>,
    horizon: DelayKey,
    near_max: usize,
    loading: bool,
    waiting: u64,
}

impl<V: Clone> DelayIndex<V> {
    /// Creates an index over a table that holds `waiting` entries, with at most about `near_max` of them in memory.
    pub fn new(near_max: usize, waiting: u64) -> Self {
        let horizon = if waiting == 0 { EVERYTHING } else { (0, 0) };
        Self {
            overlay: Overlay::default(),
            near: BTreeMap::new(),
            out: NumberMap::default(),
            horizon,
            near_max,
            loading: false,
            waiting,
        }
    }

    /// Adds an entry; its key must not be in use.
    pub fn put(&mut self, key: DelayKey, value: V) {
        if key < self.horizon {
            self.near.insert(key, value.clone());
            self.cut();
        }
        self.overlay.put(key, value);
        self.waiting += 1;
    }

    /// Changes the value of an entry, whether it waits or is handed out.
    pub fn repoint(&mut self, key: DelayKey, value: V) {
        if let Some(held) = self.near.get_mut(&key).or_else(|| self.out.get_mut(&key)) {
            *held = value.clone();
        }
        self.overlay.set(key, value);
    }

    pub fn get<F: Far<DelayKey, V>>(&self, key: &DelayKey, far: &F) -> Result<Option<V>, F::Error> {
        match self.out.get(key).or_else(|| self.near.get(key)) {
            Some(value) => Ok(Some(value.clone())),
            None => self.overlay.get(key, far),
        }
    }

    /// Removes an entry for good and returns it.
    pub fn remove<F: Far<DelayKey, V>>(&mut self, key: &DelayKey, far: &F) -> Result<Option<V>, F::Error> {
        let held = self.out.remove(key).or_else(|| self.near.remove(key));
        let value = match held {
            Some(value) => Some(value),
            None => self.overlay.get(key, far)?,
        };
        let Some(value) = value else { return Ok(None) };
        self.overlay.remove(key);
        self.waiting -= 1;
        Ok(Some(value))
    }

    /// Hands out the next due entry. It stays in the index until it is removed, but is not handed out again.
    pub fn pop_due(&mut self, now: Time) -> Option<(DelayKey, V)> {
        let entry = self.near.first_entry()?;
        if entry.key().0 > now.as_millis() {
            return None;
        }
        let (key, value) = entry.remove_entry();
        self.out.insert(key, value.clone());
        Some((key, value))
    }

    /// Hands out one entry regardless of its due time, as [`DelayIndex::pop_due`] does. The caller has looked it up.
    pub fn hand_out(&mut self, key: DelayKey, value: V) {
        self.near.remove(&key);
        self.out.insert(key, value);
    }

    /// Entries at or after `from`, in order, whether handed out or not. Fewer than `limit` only at the end.
    pub fn range<F: Far<DelayKey, V>>(
        &self,
        from: &DelayKey,
        limit: usize,
        far: &F,
    ) -> Result<Vec<(DelayKey, V)>, F::Error> {
        self.overlay.range(from, limit, far)
    }

    /// The first `limit` entries of the window, by due time.
    pub fn first(&self, limit: usize) -> impl Iterator<Item = (&DelayKey, &V)> {
        self.near.iter().take(limit)
    }

    /// How many entries are due, counted up to `limit`.
    pub fn due_count(&self, now: Time, limit: usize) -> usize {
        self.near.range(..=(now.as_millis(), u64::MAX)).take(limit).count()
    }

    /// Puts back an entry that was handed out.
    pub fn put_back(&mut self, key: DelayKey, value: V) {
        self.out.remove(&key);
        if key < self.horizon {
            self.near.insert(key, value);
        }
    }

    /// The earliest known moment at which something comes due. If the window is empty, that is the horizon, because the
    /// entries behind it must be loaded by then.
    pub fn next_due(&self) -> Option<Time> {
        match self.near.first_key_value() {
            Some(((due, _), _)) => Some(Time::from_millis(*due)),
            None if self.horizon < EVERYTHING => Some(Time::from_millis(self.horizon.0)),
            None => None,
        }
    }

    /// Asks for a load if the window runs low: from which key and how many entries. Answer with
    /// [`DelayIndex::loaded`].
    pub fn wants_load(&mut self) -> Option<(DelayKey, usize)> {
        if self.loading || self.horizon == EVERYTHING || self.near.len() > self.near_max / 4 {
            return None;
        }
        self.loading = true;
        Some((self.horizon, (self.near_max / 2).min(LOAD_MAX)))
    }

    /// Takes in the entries of the table from the horizon on. `handed_out` says which of them are handed out already.
    pub fn loaded(
        &mut self,
        entries: Vec<(DelayKey, V)>,
        limit: usize,
        handed_out: impl Fn(&DelayKey) -> bool,
    ) {
        self.loading = false;
        let end = if entries.len() < limit { EVERYTHING } else { entries[entries.len() - 1].0 };
        let mut found: BTreeMap<DelayKey, V> = entries.into_iter().collect();
        self.overlay.lay_over(&self.horizon, Some(&end), &mut found);
        // One by one: `append` would rebuild the whole window.
        self.near.extend(found.into_iter().filter(|(key, _)| !handed_out(key)));
        self.horizon = if end == EVERYTHING { EVERYTHING } else { (end.0, end.1.saturating_add(1)) };
        self.cut();
    }

    /// Drops the far half of a window that grew too large.
    fn cut(&mut self) {
        if self.near.len() <= self.near_max || self.loading {
            return;
        }
        if let Some(key) = self.near.keys().nth(self.near_max / 2).copied() {
            self.near.split_off(&key);
            self.horizon = key;
        }
    }

    pub fn freeze(&mut self) -> Arc<Changes<DelayKey, V>> {
        self.overlay.freeze()
    }

    pub fn thaw(&mut self) -> Arc<Changes<DelayKey, V>> {
        self.overlay.thaw()
    }

    /// The number of changes not yet handed over to the table.
    pub fn changes(&self) -> usize {
        self.overlay.len()
    }

    /// The number of entries, handed out or not.
    pub fn len(&self) -> u64 {
        self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// All entries, for comparing two indexes.
    pub fn dump<F: Far<DelayKey, V>>(&self, far: &F) -> Result<Vec<(DelayKey, V)>, F::Error> {
        self.overlay.range(&(0, 0), usize::MAX / 2, far)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    type Table = BTreeMap<DelayKey, u32>;

    impl Far<DelayKey, u32> for Table {
        type Error = Infallible;
        fn get(&self, key: &DelayKey) -> Result<Option<u32>, Infallible> {
            Ok(BTreeMap::get(self, key).copied())
        }
        fn range(
            &self,
            from: &DelayKey,
            to: Option<&DelayKey>,
            limit: usize,
        ) -> Result<Vec<(DelayKey, u32)>, Infallible> {
            let entries = BTreeMap::range(self, from..).take_while(|(key, _)| to.is_none_or(|to| *key <= to));
            Ok(entries.take(limit).map(|(k, v)| (*k, *v)).collect())
        }
    }

    proptest! {
        /// Entries added below the horizon are found; nothing is handed out early or twice.
        #[test]
        fn every_entry_comes_out_once_and_never_early(
            steps in prop::collection::vec((0u8..10, 0u64..60), 1..300), near_max in 4usize..16
        ) {
            let mut table = Table::new();
            let mut index = DelayIndex::<u32>::new(near_max, 0);
            let mut plain = Table::new();
            let mut out: BTreeSet<DelayKey> = BTreeSet::new();
            let mut load: Option<(Vec<(DelayKey, u32)>, usize)> = None;
            let (mut now, mut seq) = (0u64, 0u64);
            for (step, n) in steps {
                match step {
                    0..=4 => { seq += 1; index.put((n, seq), seq as u32); plain.insert((n, seq), seq as u32); }
                    5 => now = n,
                    6 => if let Some(key) = out.pop_first() {
                        prop_assert_eq!(index.remove(&key, &table).unwrap(), plain.remove(&key));
                    },
                    7 => {
                        // The loader answers requests in order.
                        if let Some((entries, limit)) = load.take() { index.loaded(entries, limit, |key| out.contains(key)); }
                        for (key, change) in index.freeze().iter() {
                            match change.value() { Some(v) => drop(table.insert(*key, *v)), None => drop(table.remove(key)) }
                        }
                        index.thaw();
                    }
                    8 => if let Some((from, limit)) = index.wants_load() {
                        load = Some((Far::range(&table, &from, None, limit).unwrap(), limit));
                    },
                    _ => if let Some((entries, limit)) = load.take() { index.loaded(entries, limit, |key| out.contains(key)); },
                }
                while let Some((key, value)) = index.pop_due(Time::from_millis(now)) {
                    prop_assert!(key.0 <= now, "early");
                    prop_assert_eq!(plain.get(&key), Some(&value));
                    prop_assert!(out.insert(key), "handed out twice");
                }
                prop_assert_eq!(index.len(), plain.len() as u64);
            }
            if let Some((entries, limit)) = load.take() { index.loaded(entries, limit, |key| out.contains(key)); }
            for _ in 0..2000 {
                while let Some((key, _)) = index.pop_due(Time::MAX) { prop_assert!(out.insert(key)); }
                let Some((from, limit)) = index.wants_load() else { break };
                let entries = Far::range(&table, &from, None, limit).unwrap();
                index.loaded(entries, limit, |key| out.contains(key));
            }
            prop_assert_eq!(out.into_iter().collect::<Vec<_>>(), plain.keys().copied().collect::<Vec<_>>());
        }
    }
}
