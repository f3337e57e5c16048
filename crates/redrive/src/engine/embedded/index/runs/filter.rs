//! A Bloom filter whose bits for one key are all in one cache line. It is kept in memory and takes two bytes per
//! entry.

/// Gives a false-positive rate of about 1 in 1,500.
const BITS_PER_ENTRY: u64 = 16;
const LINE_BITS: u64 = 512;
const LINE_BYTES: usize = 64;

/// Odd multipliers, each choosing a bit in one word of a line.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    lines: Vec<[u64; 8]>,
}

impl Filter {
    /// An empty filter with room for this many entries.
    pub(crate) fn for_entries(entries: u64) -> Self {
        let lines = (entries * BITS_PER_ENTRY).div_ceil(LINE_BITS).max(1);
        Self { lines: vec![[0; 8]; lines as usize] }
    }

    pub(crate) fn add(&mut self, hash: u64) {
        let line = self.line(hash);
        for (word, bit) in self.lines[line].iter_mut().zip(bits(hash)) {
            *word |= bit;
        }
    }

    /// Returns `false` if the key is certainly absent.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.lines[self.line(hash)].iter().zip(bits(hash)).all(|(word, bit)| word & bit != 0)
    }

    /// The line of a key: the upper half of the hash chooses it, the lower half the bits in it.
    fn line(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        self.lines.iter().flatten().flat_map(|word| word.to_le_bytes())
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    /// Decodes a filter; `None` if the bytes are not valid.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(LINE_BYTES) {
            return None;
        }
        let word = |raw: &[u8]| raw.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let line = |raw: &[u8]| std::array::from_fn(|i| word(&raw[i * 8..i * 8 + 8]));
        Some(Self { lines: bytes.chunks_exact(LINE_BYTES).map(line).collect() })
    }
}

fn bits(hash: u64) -> impl Iterator<Item = u64> {
    let low = hash as u32;
    SALTS.into_iter().map(move |salt| 1 << (low.wrapping_mul(salt) >> 26))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(&n.to_le_bytes(), 7)
    }

    #[test]
    fn what_was_added_is_held_and_little_else() {
        let mut filter = Filter::for_entries(100_000);
        (0..100_000).for_each(|n| filter.add(hash(n)));
        assert!((0..100_000).all(|n| filter.may_hold(hash(n))));
        let wrong = (100_000..1_100_000).filter(|n| filter.may_hold(hash(*n))).count();
        assert!(wrong < 1_500, "{wrong} of a million");
        assert_eq!(filter.len_bytes(), 200_000);
    }

    #[test]
    fn a_filter_reads_back() {
        let mut filter = Filter::for_entries(100);
        (0..100).for_each(|n| filter.add(hash(n)));
        let bytes: Vec<u8> = filter.bytes().collect();
        assert_eq!(Filter::read(&bytes), Some(filter));
        assert_eq!(Filter::read(&bytes[1..]), None);
        assert_eq!(Filter::read(&[]), None);
    }
}
