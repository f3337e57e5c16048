//! The shelf on disk. fjall holds pointers only, with small memtables and no sync of its own: the journal is the truth.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::shelf::{Pair, Shelf, ShelfError, Space, Write};

const CACHE_BYTES: u64 = 16 << 20;
const MEMTABLE_BYTES: u64 = 8 << 20;
/// fjall rotates its own journal below this; it must be at least 64 MiB.
const JOURNAL_BYTES: u64 = 64 << 20;
/// Sorts behind every key. Each batch writes its number here in every table: after a crash fjall may bring the tables
/// back to different batches (a flushed memtable outlives an unsynced journal), and then they must not be believed.
const MARK: [u8; 40] = [0xFF; 40];

pub struct FjallShelf {
    database: Database,
    tables: [Keyspace; Space::ALL.len()],
    batches: AtomicU64,
}

impl std::fmt::Debug for FjallShelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallShelf").finish_non_exhaustive()
    }
}

impl FjallShelf {
    pub fn open(path: &Path) -> Result<Self, ShelfError> {
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()
            .map_err(error)?;
        let open = |space: Space| {
            let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
            database.keyspace(space.name(), options).map_err(error)
        };
        let [meta, delay, lines, doors, letters, ids, places] = Space::ALL.map(open);
        let tables = [meta?, delay?, lines?, doors?, letters?, ids?, places?];
        let mut batches = 0;
        for (index, table) in tables.iter().enumerate() {
            let mark = table.get(MARK).map_err(error)?;
            let mark = mark.map_or(Some(0), |raw| Some(u64::from_be_bytes(raw.as_ref().try_into().ok()?)));
            match mark {
                Some(mark) if index == 0 || mark == batches => batches = mark,
                _ => return Err(ShelfError("its tables are of different batches".into())),
            }
        }
        Ok(Self { tables, database, batches: AtomicU64::new(batches) })
    }

    fn table(&self, space: Space) -> &Keyspace {
        &self.tables[space as usize]
    }
}

impl Shelf for FjallShelf {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, ShelfError> {
        Ok(self.table(space).get(key).map_err(error)?.map(|value| value.to_vec()))
    }

    fn range(&self, space: Space, from: &[u8], limit: usize) -> Result<Vec<Pair>, ShelfError> {
        let pairs = self.table(space).range(from..&MARK[..]).take(limit);
        pairs.map(|guard| guard.into_inner().map(|(k, v)| (k.to_vec(), v.to_vec())).map_err(error)).collect()
    }

    fn apply(&self, writes: Vec<Write>) -> Result<(), ShelfError> {
        let mut batch = self.database.batch();
        for (space, key, value) in writes {
            match value {
                Some(value) => batch.insert(self.table(space), key, value),
                None => batch.remove(self.table(space), key),
            }
        }
        let number = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        for table in &self.tables {
            batch.insert(table, MARK, number.to_be_bytes());
        }
        batch.commit().map_err(error)?;
        // Synced, although the journal is the truth: a power cut may take an earlier batch and leave a later one, whose
        // marks would agree. Once per checkpoint, on the keeper's thread.
        self.database.persist(PersistMode::SyncAll).map_err(error)
    }

    fn persist(&self) -> Result<(), ShelfError> {
        self.database.persist(PersistMode::SyncAll).map_err(error)
    }
}

#[allow(clippy::needless_pass_by_value)] // used as `map_err(error)`
fn error(error: fjall::Error) -> ShelfError {
    ShelfError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(shelf: &FjallShelf, space: Space, key: &[u8]) {
        shelf.apply(vec![(space, key.to_vec(), Some(b"value".to_vec()))]).unwrap();
    }

    #[test]
    fn what_was_applied_is_there_after_a_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = FjallShelf::open(dir.path()).unwrap();
        put(&shelf, Space::Delay, b"b");
        put(&shelf, Space::Delay, b"a");
        shelf.persist().unwrap();
        drop(shelf);
        let shelf = FjallShelf::open(dir.path()).unwrap();
        let keys: Vec<_> =
            shelf.range(Space::Delay, b"", 10).unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [b"a", b"b"], "in order, and the mark is not an entry");
    }

    /// A flushed table can outlive the journal that the others needed: such a set of tables reflects no moment at all.
    #[test]
    fn tables_of_different_batches_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = FjallShelf::open(dir.path()).unwrap();
        put(&shelf, Space::Letters, b"a");
        shelf.table(Space::Letters).insert(MARK, 99u64.to_be_bytes()).unwrap();
        shelf.persist().unwrap();
        drop(shelf);
        let error = FjallShelf::open(dir.path()).unwrap_err();
        assert_eq!(error.to_string(), "the index: its tables are of different batches");
    }
}
