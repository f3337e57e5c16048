//! A file of the simulated disk: its cached content, its durable content, and the outcome of a power failure.

use std::collections::BTreeMap;

use redrive_core::SplitMix64;

const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Inode {
    /// What readers see: the page cache.
    pub(crate) live: Vec<u8>,
    /// What is certainly on the platter.
    pub(crate) synced: Vec<u8>,
    pub(crate) unsynced: Vec<InodeChange>,
}

#[derive(Debug)]
pub(crate) enum InodeChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl InodeChange {
    pub(crate) fn apply(&self, to: &mut Vec<u8>) {
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

    /// Applies the changes to the sectors that `lands` accepts.
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
    pub(crate) fn change(&mut self, change: InodeChange) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    pub(crate) fn after_cut(&self, random: &mut SplitMix64) -> Vec<u8> {
        let mut disk = self.synced.clone();
        if self.unsynced.is_empty() {
            return disk;
        }
        let changes = self.unsynced.len() as u64;
        // Each sector ends up with one of the versions it had; a power failure often keeps all, none, or a clean
        // prefix.
        let (style, common) = (random.below(4), random.below(changes + 1));
        let mut versions: BTreeMap<usize, u64> = BTreeMap::new();
        let mut lengths = vec![self.synced.len()];
        for (i, change) in (0..).zip(&self.unsynced) {
            change.apply_sectors(&mut disk, |sector| match style {
                0 => i < common,
                _ => i < *versions.entry(sector).or_insert_with(|| random.below(changes + 1)),
            });
            lengths.push(match change {
                InodeChange::Write(offset, data) => (offset + data.len()).max(lengths[lengths.len() - 1]),
                InodeChange::SetLen(len) => *len,
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
