//! A disk in memory that loses exactly what a real one may lose, the same way for the same seed.
//!
//! Writes are volatile until their file is synced, names until the directory is synced. A power cut keeps or loses each
//! 512-byte sector of an unsynced write by itself, so that writes come out lost, torn, reordered and with holes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, DiskFile};

const SECTOR: usize = 512;

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
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: usize,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    failures: Vec<(SimOp, u64, ErrorKind)>,
    free_bytes: Option<u64>,
    syncs: u64,
}

#[derive(Debug, Default)]
struct Inode {
    /// What a reader sees: the page cache.
    live: Vec<u8>,
    /// What the platter holds for certain.
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                let end = offset + data.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*offset..end].copy_from_slice(data);
            }
            Self::SetLen(len) => to.resize(*len, 0),
        }
    }

    /// The changes as far as they concern the sectors that `lands` lets through.
    fn apply_sectors(&self, to: &mut Vec<u8>, mut lands: impl FnMut(usize) -> bool) {
        let (from, end) = match self {
            Self::Write(offset, data) => (*offset, offset + data.len()),
            Self::SetLen(len) => (*len, to.len().max(*len)),
        };
        if to.len() < end {
            to.resize(end, 0);
        }
        let mut at = from;
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(end);
            if lands(at / SECTOR) {
                match self {
                    Self::Write(offset, data) => {
                        to[at..next].copy_from_slice(&data[at - offset..next - offset]);
                    }
                    Self::SetLen(_) => to[at..next].fill(0),
                }
            }
            at = next;
        }
    }
}

impl Inode {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    fn after_cut(&self, random: &mut Random) -> Vec<u8> {
        let mut disk = self.synced.clone();
        if self.unsynced.is_empty() {
            return disk;
        }
        let changes = self.unsynced.len() as u64;
        // Each sector holds one of the versions it went through; a cut often takes all, none, or a clean prefix.
        let (style, common) = (random.below(4), random.below(changes + 1));
        let mut versions: BTreeMap<usize, u64> = BTreeMap::new();
        let mut lengths = vec![self.synced.len()];
        for (i, change) in (0..).zip(&self.unsynced) {
            change.apply_sectors(&mut disk, |sector| match style {
                0 => i < common,
                _ => i < *versions.entry(sector).or_insert_with(|| random.below(changes + 1)),
            });
            lengths.push(match change {
                Change::Write(offset, data) => (offset + data.len()).max(lengths[lengths.len() - 1]),
                Change::SetLen(len) => *len,
            });
        }
        let pick = random.below(lengths.len() as u64) as usize;
        let len = match style {
            0 => lengths[common as usize],
            1 => lengths[pick],
            2 => lengths[lengths.len() - 1],
            _ => {
                let (low, high) = (lengths[0].min(lengths[pick]), lengths[0].max(lengths[pick]));
                low + random.below((high - low) as u64 + 1) as usize
            }
        };
        disk.resize(len, 0);
        disk
    }
}

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk as it may be after the power failed now. The original is left as it is.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Self {
        let state = self.lock();
        let mut random = Random(seed);
        let mut after = State { free_bytes: state.free_bytes, ..State::default() };
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
    /// A failed write may have happened in part. A failed sync forgets what it should have made durable: it can still
    /// be read, later syncs succeed, and a power cut takes it away.
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

    /// Leaves this much room; `None` for no limit. Growing a file beyond it fails.
    pub fn fill(&self, free_bytes: impl Into<Option<u64>>) {
        self.lock().free_bytes = free_bytes.into();
    }

    /// How many syncs of files there were.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, inode: usize) -> SimFile {
        SimFile { disk: self.clone(), inode }
    }
}

impl State {
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
            state.inodes[self.inode].change(Change::Write(offset, data[..len].to_vec()));
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

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.attempt(SimOp::SetLen)?;
        state.inodes[self.inode].change(Change::SetLen(len as usize));
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

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
