//! The tables on disk: sorted runs that are written once, merged in the background, and verified on each read.
//!
//! A checkpoint is one file with a section for each table that changed. The [`catalog`] lists the valid sections; it is
//! replaced as a whole, which makes checkpoints atomic. Everything read is verified, and damage is returned as an
//! error: the index is a cache, and its owner rebuilds it. See docs/adr/0023.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::catalog::Catalog;
use super::files::{CATALOG, catalog_name, failed, file_name, hash_of};
use super::run::{Found, Merged, Run};
use super::section::SectionWriter;
use crate::engine::embedded::disk::real::{Disk, DiskFile};
use crate::engine::embedded::index::tables::{IndexError, IndexTables, Pair, Space, Write};

/// A snapshot of the tables.
#[derive(Debug)]
pub(super) struct Version<F> {
    pub(super) meta: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) tables: [Vec<Arc<Run<F>>>; Space::ALL.len()],
}

#[derive(Debug)]
pub(super) struct Written {
    pub(super) catalog: Catalog,
    /// The number of the current catalog; 0 before the first checkpoint.
    pub(super) number: u64,
}

#[derive(Debug)]
pub struct SortedRuns<D: Disk> {
    pub(super) disk: D,
    pub(super) seed: u64,
    /// The number of entries in a typical checkpoint.
    pub(super) base: u64,
    pub(super) version: RwLock<Arc<Version<D::File>>>,
    pub(super) written: Mutex<Written>,
    /// Allows one merge at a time.
    pub(super) merging: Mutex<()>,
    /// Ids accepted before this time are forgotten.
    pub(super) ids_from: AtomicU64,
}

impl<D: Disk> SortedRuns<D> {
    /// Opens the existing tables. `seed` is that of the store, `base` the number of entries in a typical checkpoint.
    pub fn open(disk: D, seed: u64, base: usize) -> Result<Self, IndexError> {
        let (catalog, version, number) = match newest(&disk)? {
            Some(Newest { catalog, version, number }) => (catalog, version, number),
            None => (Catalog::default(), load(&disk, &Catalog::default())?, 0),
        };
        let runs = Self::with(disk, seed, base, version, Written { catalog, number });
        runs.remove_others()?;
        Ok(runs)
    }

    /// Removes everything that exists and starts with empty tables.
    pub fn anew(disk: D, seed: u64, base: usize) -> Result<Self, IndexError> {
        let mut written = Written { catalog: Catalog::default(), number: 0 };
        for name in disk.list().map_err(failed("listing", "the index"))? {
            // Readers of the old tables may still have their files open, so new files get other names.
            if let Some(number) = number_in(&name, "r-", ".run") {
                written.catalog.next_file = written.catalog.next_file.max(number + 1);
            } else if let Some(number) = number_in(&name, CATALOG, "") {
                written.number = written.number.max(number);
            } else {
                continue;
            }
            disk.remove(&name).map_err(failed("removing", &name))?;
        }
        let version = load(&disk, &Catalog::default())?;
        Ok(Self::with(disk, seed, base, version, written))
    }

    pub(super) fn with(disk: D, seed: u64, base: usize, version: Version<D::File>, written: Written) -> Self {
        Self {
            disk,
            seed,
            base: base.max(1) as u64,
            version: RwLock::new(Arc::new(version)),
            written: Mutex::new(written),
            merging: Mutex::default(),
            ids_from: AtomicU64::new(0),
        }
    }

    pub(super) fn version(&self) -> Arc<Version<D::File>> {
        self.version.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a file that no catalog lists yet.
    pub(super) fn file(&self, number: u64) -> Result<D::File, IndexError> {
        let name = file_name(number);
        self.disk.create(&name).map_err(failed("creating", &name))
    }

    /// Makes these tables the current ones, durably.
    pub(super) fn publish(
        &self,
        written: &mut Written,
        catalog: Catalog,
        version: Version<D::File>,
    ) -> Result<(), IndexError> {
        let (name, old) = (catalog_name(written.number + 1), catalog_name(written.number));
        let file = self.disk.create(&name).map_err(failed("creating", &name))?;
        file.write_at(0, &catalog.write()).map_err(failed("writing", &name))?;
        file.sync_data().map_err(failed("syncing", &name))?;
        self.disk.sync_dir().map_err(failed("syncing the directory of", &name))?;
        if written.number > 0 {
            // The file need not exist: after a fresh start nothing was written under this number.
            let _ = self.disk.remove(&old);
        }
        let unused = files_of(&written.catalog).into_iter().filter(|file| !files_of(&catalog).contains(file));
        for number in unused.collect::<Vec<_>>() {
            let name = file_name(number);
            self.disk.remove(&name).map_err(failed("removing", &name))?;
        }
        written.number += 1;
        written.catalog = catalog;
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(version);
        Ok(())
    }

    /// Removes what a crash left: files that no catalog lists, and older catalogs.
    pub(super) fn remove_others(&self) -> Result<(), IndexError> {
        let written = self.written();
        let used = files_of(&written.catalog);
        for name in self.disk.list().map_err(failed("listing", "the index"))? {
            let unused = number_in(&name, "r-", ".run").is_some_and(|number| !used.contains(&number));
            let older = number_in(&name, CATALOG, "").is_some_and(|number| number != written.number);
            if unused || older {
                self.disk.remove(&name).map_err(failed("removing", &name))?;
            }
        }
        Ok(())
    }
}

/// Reads every block of the tables in a directory that another process may own, and returns the number of bytes read.
/// Changes nothing.
pub fn check<D: Disk>(disk: &D) -> Result<u64, IndexError> {
    let Some(found) = newest(disk)? else { return Ok(0) };
    let mut bytes = 0;
    for run in found.version.tables.iter().flatten() {
        run.verify(&mut |read| {
            bytes += read;
            true
        })?;
    }
    Ok(bytes)
}

struct Newest<F> {
    catalog: Catalog,
    version: Version<F>,
    number: u64,
}

/// The newest complete tables; `None` if there are none at all.
fn newest<D: Disk>(disk: &D) -> Result<Option<Newest<D::File>>, IndexError> {
    let names = disk.list().map_err(failed("listing", "the index"))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_in(name, CATALOG, "")).collect();
    numbers.sort_unstable();
    if numbers.is_empty() && !names.is_empty() {
        return Err(IndexError::Damaged("it has no catalog, or is of another version".into()));
    }
    // A power failure may have torn the newest catalog, or taken one of its files; then the one before it still
    // exists.
    let mut wrong = None;
    for number in numbers.into_iter().rev() {
        match read_catalog(disk, number).and_then(|catalog| Ok((load(disk, &catalog)?, catalog))) {
            Ok((version, catalog)) => return Ok(Some(Newest { catalog, version, number })),
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    wrong.map_or(Ok(None), Err)
}

fn read_catalog<D: Disk>(disk: &D, number: u64) -> Result<Catalog, IndexError> {
    let name = catalog_name(number);
    let file = disk.open(&name).map_err(failed("opening", &name))?;
    let len = file.len().map_err(failed("reading", &name))?;
    let raw = file.read_vec(0, len as usize).map_err(failed("reading", &name))?;
    Catalog::read(&raw).ok_or_else(|| IndexError::Damaged(format!("{name} is damaged")))
}

fn load<D: Disk>(disk: &D, catalog: &Catalog) -> Result<Version<D::File>, IndexError> {
    let mut files: BTreeMap<u64, Arc<D::File>> = BTreeMap::new();
    let mut tables: [Vec<Arc<Run<D::File>>>; Space::ALL.len()] = Default::default();
    for (table, sections) in tables.iter_mut().zip(&catalog.tables) {
        for section in sections {
            let file = if let Some(file) = files.get(&section.file) {
                Arc::clone(file)
            } else {
                let name = file_name(section.file);
                Arc::new(disk.open(&name).map_err(failed("opening", &name))?)
            };
            files.insert(section.file, Arc::clone(&file));
            table.push(Arc::new(Run::open(*section, file)?));
        }
    }
    Ok(Version { meta: catalog.meta.clone(), tables })
}

fn files_of(catalog: &Catalog) -> std::collections::BTreeSet<u64> {
    catalog.tables.iter().flatten().map(|section| section.file).collect()
}

fn number_in(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let hex = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    u64::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 16)
}

impl<D: Disk> IndexTables for SortedRuns<D> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        let version = self.version();
        if space == Space::Meta {
            return Ok(version.meta.get(key).cloned());
        }
        let hash = hash_of(space, key, self.seed);
        for run in version.tables[space as usize].iter().rev().filter(|run| run.may_hold(hash)) {
            match run.get(key)? {
                Found::Value(value) => return Ok(Some(value)),
                Found::Removed => return Ok(None),
                Found::Nothing => {}
            }
        }
        Ok(None)
    }

    fn range(
        &self,
        space: Space,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, IndexError> {
        let version = self.version();
        let within = |key: &[u8]| to.is_none_or(|to| key <= to);
        if space == Space::Meta {
            let pairs = version.meta.range(from.to_vec()..).take_while(|(key, _)| within(key));
            return Ok(pairs.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect());
        }
        // The range is a single key line, or the letters of a single key: most runs have no entry of it.
        let (first, last) = (hash_of(space, from, self.seed), to.map(|to| hash_of(space, to, self.seed)));
        let runs = version.tables[space as usize].iter();
        let runs = runs.filter(|run| last != Some(first) || run.may_hold(first)).cloned();
        let mut merged = Merged::seek(runs, from)?;
        let mut pairs = Vec::new();
        while pairs.len() < limit {
            let next = merged
                .next(|key, value| within(key).then(|| value.map(|value| (key.to_vec(), value.to_vec()))))?;
            match next {
                Some(Some(pair)) => pairs.extend(pair),
                Some(None) | None => break,
            }
        }
        Ok(pairs)
    }

    fn apply(&self, writes: &mut Vec<Write>) -> Result<(), IndexError> {
        // Of several writes to a key the last one counts; the sort is stable.
        writes.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut written = self.written();
        let mut catalog = written.catalog.clone();
        let mut version = {
            let Version { meta, tables } = &*self.version();
            Version { meta: meta.clone(), tables: tables.clone() }
        };
        let number = catalog.next_file;
        let mut file: Option<D::File> = None;
        let mut at = 0;
        let mut sections = Vec::new();
        for of_space in writes.chunk_by(|a, b| a.0 == b.0) {
            let space = of_space[0].0;
            if space == Space::Meta {
                for (_, key, value) in of_space {
                    match value {
                        Some(value) => drop(version.meta.insert(key.clone(), value.clone())),
                        None => drop(version.meta.remove(key)),
                    }
                }
                continue;
            }
            let file = match &file {
                Some(file) => file,
                None => file.insert(self.file(number)?),
            };
            let len = of_space.len() as u64;
            let mut section = SectionWriter::new(file, number, at, space, self.seed, len);
            for (i, (_, key, value)) in of_space.iter().enumerate() {
                if of_space.get(i + 1).is_none_or(|next| next.1 != *key) {
                    section.push(key, value.as_deref()).map_err(failed("writing", &file_name(number)))?;
                }
            }
            let (section, end) = section.end().map_err(failed("writing", &file_name(number)))?;
            at = end;
            sections.push((space, section));
        }
        if let Some(file) = file {
            file.sync_data().map_err(failed("syncing", &file_name(number)))?;
            catalog.next_file += 1;
            let file = Arc::new(file);
            for (space, section) in sections {
                catalog.tables[space as usize].push(section);
                version.tables[space as usize].push(Arc::new(Run::open(section, Arc::clone(&file))?));
            }
        }
        catalog.meta = version.meta.clone();
        self.publish(&mut written, catalog, version)
    }

    fn persist(&self) -> Result<(), IndexError> {
        // Every checkpoint is synced already.
        Ok(())
    }

    fn merge(&self) -> Result<bool, IndexError> {
        self.merge_once()
    }

    fn verify(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), IndexError> {
        {
            // The lock keeps the catalog from being replaced meanwhile.
            let written = self.written();
            if written.catalog != Catalog::default() {
                read_catalog(&self.disk, written.number)?;
            }
        }
        let version = self.version();
        for run in version.tables.iter().flatten() {
            if !run.verify(go_on)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn bytes_of(&self, space: Space) -> u64 {
        let version = self.version();
        let runs = version.tables[space as usize].iter();
        runs.map(|run| run.section.index_at.saturating_sub(run.section.start)).sum()
    }

    fn forget_ids_before(&self, at: u64) {
        self.ids_from.fetch_max(at, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
