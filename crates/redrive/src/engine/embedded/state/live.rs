//! How much of each stretch of the logs is still referenced; the cleaner chooses segments by it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::engine::embedded::index::tables::Pointer;

const STRETCH_BYTES: u64 = 1 << 20;

/// Live frames and bytes per MiB of log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    stretches: BTreeMap<u64, (u64, u64)>,
    bytes: u64,
}

impl Live {
    pub fn add(&mut self, pointer: Pointer) {
        let stretch = self.stretches.entry(pointer.at / STRETCH_BYTES).or_default();
        stretch.0 += 1;
        stretch.1 += u64::from(pointer.len);
        self.bytes += u64::from(pointer.len);
    }

    pub fn sub(&mut self, pointer: Pointer) {
        let at = pointer.at / STRETCH_BYTES;
        let Some(stretch) = self.stretches.get_mut(&at) else { return };
        stretch.0 = stretch.0.saturating_sub(1);
        stretch.1 = stretch.1.saturating_sub(u64::from(pointer.len));
        self.bytes = self.bytes.saturating_sub(u64::from(pointer.len));
        if stretch.0 == 0 {
            self.stretches.remove(&at);
        }
    }

    /// Whether anything in this range of positions may be live. A stretch shared by two segments counts for both.
    pub fn any_in(&self, positions: Range<u64>) -> bool {
        let last = positions.end.saturating_sub(1) / STRETCH_BYTES;
        self.stretches.range(positions.start / STRETCH_BYTES..=last).next().is_some()
    }

    /// Live bytes in this range, rounded to whole stretches.
    pub fn bytes_in(&self, positions: Range<u64>) -> u64 {
        let stretches = positions.start / STRETCH_BYTES..positions.end.div_ceil(STRETCH_BYTES);
        self.stretches.range(stretches).map(|(_, (_, bytes))| bytes).sum()
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.stretches.iter().flat_map(|(at, (frames, bytes))| [*at, *frames, *bytes]).collect()
    }

    pub fn from_numbers(numbers: &[u64]) -> Self {
        let stretches: BTreeMap<_, _> = numbers.chunks_exact(3).map(|n| (n[0], (n[1], n[2]))).collect();
        let bytes = stretches.values().map(|(_, bytes)| bytes).sum();
        Self { stretches, bytes }
    }
}
