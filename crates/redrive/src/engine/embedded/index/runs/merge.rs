//! Merging runs, so that there are fewer to search, and removed or expired entries disappear for good.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::files::{failed, file_name};
use super::run::{Merged, Run};
use super::section::SectionWriter;
use super::sorted::{SortedRuns, Version};
use super::tiers::Rule;
use crate::engine::embedded::disk::real::{Disk, DiskFile};
use crate::engine::embedded::index::tables::{IdSlot, IndexError, Space};

impl<D: Disk> SortedRuns<D> {
    /// Does one step, if there is anything to do, and returns whether it did. Readers and checkpoints go on
    /// meanwhile.
    pub(crate) fn merge_once(&self) -> Result<bool, IndexError> {
        let _one_at_a_time = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        if self.drop_expired()? {
            return Ok(true);
        }
        let version = self.version();
        for space in Space::ALL {
            let runs = &version.tables[space as usize];
            let entries: Vec<u64> = runs.iter().map(|run| run.section.entries).collect();
            if let Some(chosen) = Rule::of(space, self.base).next(&entries) {
                let is_oldest = chosen.start == 0;
                self.merge_runs(space, &runs[chosen], is_oldest)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drops runs in which all ids have expired; the latest id of a run decides. The oldest runs go first: dropping an
    /// entry must not bring back an older one of the same id.
    fn drop_expired(&self) -> Result<bool, IndexError> {
        let from = self.ids_from.load(Ordering::Relaxed);
        let ids = Space::Ids as usize;
        let mut written = self.written();
        let mut catalog = written.catalog.clone();
        let expired = catalog.tables[ids].iter().take_while(|section| section.newest < from).count();
        if expired == 0 {
            return Ok(false);
        }
        catalog.tables[ids].drain(..expired);
        let version = self.version();
        let mut tables = version.tables.clone();
        tables[ids].drain(..expired);
        let version = Version { meta: version.meta.clone(), tables };
        self.publish(&mut written, catalog, version)?;
        Ok(true)
    }

    fn merge_runs(
        &self,
        space: Space,
        runs: &[Arc<Run<D::File>>],
        is_oldest: bool,
    ) -> Result<(), IndexError> {
        let number = {
            let mut written = self.written();
            written.catalog.next_file += 1;
            written.catalog.next_file - 1
        };
        let ids_from = self.ids_from.load(Ordering::Relaxed);
        let file = self.file(number)?;
        let entries = runs.iter().map(|run| run.section.entries).sum();
        let mut section = SectionWriter::new(&file, number, 0, space, self.seed, entries);
        let mut merged = Merged::seek(runs.iter().cloned(), &[])?;
        // No run is older than the oldest, so a removal or an expired id in it hides nothing.
        let is_needed = |value: Option<&[u8]>| {
            !is_oldest || value.is_some_and(|value| space != Space::Ids || IdSlot::at_of(value) >= ids_from)
        };
        while let Some(pushed) =
            merged.next(|key, value| if is_needed(value) { section.push(key, value) } else { Ok(()) })?
        {
            pushed.map_err(failed("writing", &file_name(number)))?;
        }
        let (section, _) = section.end().map_err(failed("writing", &file_name(number)))?;
        file.sync_data().map_err(failed("syncing", &file_name(number)))?;
        let merged = (section.entries > 0).then(|| Run::open(section, Arc::new(file))).transpose()?;

        let mut written = self.written();
        let version = self.version();
        let (mut catalog, mut tables) = (written.catalog.clone(), version.tables.clone());
        let table = &mut tables[space as usize];
        let Some(at) = table.iter().position(|run| Arc::ptr_eq(run, &runs[0])) else { return Ok(()) };
        let replaced = at..at + runs.len();
        if merged.is_none() {
            self.disk.remove(&file_name(number)).map_err(failed("removing", &file_name(number)))?;
        }
        catalog.tables[space as usize].splice(replaced.clone(), merged.as_ref().map(|run| run.section));
        table.splice(replaced, merged.map(Arc::new));
        let version = Version { meta: version.meta.clone(), tables };
        self.publish(&mut written, catalog, version)
    }
}

impl<F: DiskFile> Run<F> {
    /// Reads every block, reporting its bytes to `go_on`, until that returns `false`; returns whether it reached the
    /// end.
    pub(crate) fn verify(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<bool, IndexError> {
        for number in 0..self.blocks_len() {
            if !go_on(self.block(number)?.len()) {
                return Ok(false);
            }
        }
        self.check_end()?;
        Ok(true)
    }
}
