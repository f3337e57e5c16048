//! The catalog: the sections of each table, and the meta entries. Each version is written to its own file; the latest
//! complete one counts.

use std::collections::BTreeMap;

use super::section::Section;
use crate::engine::embedded::index::tables::Space;

const MAGIC: &[u8; 16] = b"redrive index 2\n";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// All file numbers are below this.
    pub(crate) next_file: u64,
    pub(crate) meta: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The sections of each table, oldest first.
    pub(crate) tables: [Vec<Section>; Space::ALL.len()],
}

impl Catalog {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
        put(self.next_file);
        for sections in &self.tables {
            put(sections.len() as u64);
            sections.iter().flat_map(Section::numbers).for_each(&mut put);
        }
        put(self.meta.len() as u64);
        for (key, value) in &self.meta {
            for part in [key, value] {
                out.extend_from_slice(&(part.len() as u64).to_le_bytes());
                out.extend_from_slice(part);
            }
        }
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes a catalog; `None` if it is damaged or incomplete.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        let (body, checksum) = raw.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = body.strip_prefix(MAGIC)?;
        let mut catalog = Self { next_file: number(&mut rest)?, ..Self::default() };
        for sections in &mut catalog.tables {
            for _ in 0..number(&mut rest)? {
                let mut numbers = [0; Section::NUMBERS];
                for slot in &mut numbers {
                    *slot = number(&mut rest)?;
                }
                sections.push(Section::of_numbers(numbers)?);
            }
        }
        for _ in 0..number(&mut rest)? {
            let (key, value) = (part(&mut rest)?, part(&mut rest)?);
            catalog.meta.insert(key, value);
        }
        rest.is_empty().then_some(catalog)
    }
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk::<8>()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

fn part(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::try_from(number(rest)?).ok()?;
    let (part, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(part.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_reads_back_and_no_flipped_bit_passes() {
        let mut catalog = Catalog { next_file: 7, ..Catalog::default() };
        catalog.meta.insert(b"m".to_vec(), vec![1, 2, 3]);
        catalog.tables[2].push(Section { file: 3, entries: 9, checksum: 1, ..Section::default() });
        let raw = catalog.write();
        assert_eq!(Catalog::read(&raw), Some(catalog));
        for bit in 0..raw.len() * 8 {
            let mut flipped = raw.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Catalog::read(&flipped), None, "bit {bit}");
        }
        for len in 0..raw.len() {
            assert_eq!(Catalog::read(&raw[..len]), None, "cut to {len}");
        }
    }
}
