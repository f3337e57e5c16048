//! A disk in memory that loses exactly what a real one may lose, reproducibly for each seed.
//!
//! Writes are volatile until their file is synced, names until the directory is synced. A power failure keeps or loses each
//! 512-byte sector of an unsynced write by itself, so that writes come out lost, torn, reordered and with holes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::real::{Disk, DiskFile, FileCondition};
use redrive_core::SplitMix64;

use super::sim_inode::{Inode, InodeChange};

/// The operations that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimOp {
    Create,
    Remove,
    Read,
    Write,
    SetLen,
    Sync,
    SyncDir,
}

#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<DiskState>>);

#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: usize,
}

#[derive(Debug, Default)]
struct DiskState {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    failures: Vec<(SimOp, u64, ErrorKind)>,
    free_bytes: Option<u64>,
    syncs: u64,
}

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the disk as it may be after a power failure now. The original is unchanged.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Self {
        let state = self.lock();
        let mut random = SplitMix64::new(seed);
        let mut after = DiskState { free_bytes: state.free_bytes, ..DiskState::default() };
        let all: BTreeSet<&String> = state.names.keys().chain(state.synced_names.keys()).collect();
        for name in all {
            let choices = [state.synced_names.get(name), state.names.get(name)];
            let Some(&inode) = choices[random.below(2) as usize] else { continue };
            let content = state.inodes[inode].after_cut(&mut random);
            after.names.insert(name.clone(), after.inodes.len());
            after.inodes.push(Inode { live: content.clone(), synced: content, unsynced: Vec::new() });
        }
        after.synced_names = after.names.clone();
        Self(Arc::new(Mutex::new(after)))
    }

    /// Makes the `nth` operation of this kind from now on fail, counted from 1.
    ///
    /// A failed write may have happened in part. A failed sync drops what it should have made durable: the data can
    /// still be read and later syncs succeed, but a power failure removes it.
    pub fn fail_next(&self, op: SimOp, nth: u64, kind: ErrorKind) {
        assert!(nth > 0, "failures are counted from 1");
        self.lock().failures.push((op, nth, kind));
    }

    /// Damages one bit on the platter and in the page cache.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        let mut state = self.lock();
        let inode = state.names[name];
        let Inode { live, synced, .. } = &mut state.inodes[inode];
        for content in [live, synced] {
            if let Some(byte) = content.get_mut(offset as usize) {
                *byte ^= 1 << bit;
            }
        }
    }

    /// Limits the free space; `None` removes the limit. Growing a file beyond it fails.
    pub fn fill(&self, free_bytes: impl Into<Option<u64>>) {
        self.lock().free_bytes = free_bytes.into();
    }

    /// The number of file syncs.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, inode: usize) -> SimFile {
        SimFile { disk: self.clone(), inode }
    }
}

impl DiskState {
    fn attempt(&mut self, op: SimOp) -> io::Result<()> {
        let mut failed = None;
        self.failures.retain_mut(|(which, left, kind)| {
            *left -= u64::from(*which == op);
            if *left == 0 {
                failed = Some(*kind);
            }
            *left > 0
        });
        failed.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn named(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.lock();
        state.attempt(SimOp::Create)?;
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.names.insert(name.to_owned(), inode);
        Ok(self.file(inode))
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        Ok(self.file(self.lock().named(name)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.attempt(SimOp::Remove)?;
        let inode = state.named(name)?;
        state.names.remove(name);
        let freed = state.inodes[inode].live.len() as u64;
        state.free_bytes = state.free_bytes.map(|free| free + freed);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.attempt(SimOp::SyncDir)?;
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.lock().free_bytes.unwrap_or(u64::MAX))
    }
}

impl DiskFile for SimFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        let mut result = state.attempt(SimOp::Write);
        let offset = offset as usize;
        let mut len = if result.is_ok() { data.len() } else { data.len() / 2 };
        let size = state.inodes[self.inode].live.len();
        if let Some(free) = state.free_bytes {
            let room = (size + free as usize).saturating_sub(offset);
            if len > room {
                len = room;
                result = Err(ErrorKind::StorageFull.into());
            }
            state.free_bytes = Some(free - (offset + len).saturating_sub(size) as u64);
        }
        if len > 0 {
            state.inodes[self.inode].change(InodeChange::Write(offset, data[..len].to_vec()));
        }
        result
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        state.attempt(SimOp::Read)?;
        let content = state.inodes[self.inode].live.get(offset as usize..).unwrap_or_default();
        let len = content.len().min(into.len());
        into[..len].copy_from_slice(&content[..len]);
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().inodes[self.inode].live.len() as u64)
    }

    fn standing(&self) -> io::Result<FileCondition> {
        let state = self.disk.lock();
        let len = state.inodes[self.inode].live.len() as u64;
        Ok(FileCondition { len, has_name: state.names.values().any(|inode| *inode == self.inode) })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.attempt(SimOp::SetLen)?;
        state.inodes[self.inode].change(InodeChange::SetLen(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.syncs += 1;
        let result = state.attempt(SimOp::Sync);
        let Inode { synced, unsynced, .. } = &mut state.inodes[self.inode];
        for change in unsynced.drain(..) {
            if result.is_ok() {
                change.apply(synced);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
        let file = disk.open(name).ok()?;
        let mut content = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut content).unwrap();
        Some(content)
    }

    #[test]
    fn a_power_cut_keeps_what_is_synced_and_does_anything_to_the_rest() {
        let disk = SimDisk::new();
        let file = disk.create("kept").unwrap();
        file.write_at(0, &[1; 1024]).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir().unwrap();
        file.write_at(1024, &[2; 1024]).unwrap();
        file.write_at(2048, &[3; 1024]).unwrap();
        disk.create("new").unwrap();

        let mut outcomes = BTreeSet::new();
        for seed in 0..500 {
            let after = disk.power_cut(seed);
            let content = read(&after, "kept").unwrap();
            assert_eq!(content, read(&disk.power_cut(seed), "kept").unwrap(), "the same seed, the same disk");
            assert_eq!(content[..1024], [1; 1024]);
            let sector = |i: usize| content.get(i * 512).copied();
            outcomes.insert((sector(2), sector(3), sector(4), sector(5), read(&after, "new").is_some()));
        }
        let all = (Some(2), Some(2), Some(3), Some(3));
        let seen = |want: (Option<u8>, Option<u8>, Option<u8>, Option<u8>)| {
            outcomes.iter().any(|&(a, b, c, d, _)| (a, b, c, d) == want)
        };
        assert!(seen(all) && seen((None, None, None, None)), "all or nothing");
        assert!(seen((Some(0), Some(0), Some(3), Some(3))), "the later write only");
        assert!(seen((Some(2), Some(0), Some(3), Some(0))), "torn, with holes");
        assert!(
            outcomes.iter().any(|o| o.4) && outcomes.iter().any(|o| !o.4),
            "the name may be there or not"
        );
    }

    #[test]
    fn a_failed_sync_forgets_and_the_next_one_succeeds() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        disk.sync_dir().unwrap();
        file.write_at(0, b"lost").unwrap();
        disk.fail_next(SimOp::Sync, 1, ErrorKind::Other);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(read(&disk, "a").unwrap(), b"lost");
        assert_eq!(read(&disk.power_cut(1), "a").unwrap(), b"");
    }
}
