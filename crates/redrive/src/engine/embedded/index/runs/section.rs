//! A section: the entries of one table in key order, written once and verified on each read.
//!
//! ```text
//! entry    key len u16 | value len u16, 0xFFFF: removed | key | value
//! block    entries, about 8 KiB
//! index    for each block: key len u16 | first key | offset u64 | len u32 | checksum u32
//! section  blocks | index | filter
//! ```
//!
//! The checksum of index and filter is in the catalog, that of each block in the index.

use std::io;

use super::files::hash_of;
use super::filter::Filter;
use crate::engine::embedded::disk::real::DiskFile;
use crate::engine::embedded::index::tables::{IdSlot, Space};

const BLOCK_BYTES: usize = 8 * 1024;
/// How much is buffered before a write.
const WRITE_BYTES: usize = 1 << 20;
const REMOVED: u16 = u16::MAX;

/// The location and checksum of a section, as stored in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Section {
    pub(crate) file: u64,
    pub(crate) start: u64,
    /// The start of the index, which is the end of the blocks.
    pub(crate) index_at: u64,
    pub(crate) index_len: u64,
    pub(crate) filter_len: u64,
    /// The checksum of index and filter.
    pub(crate) checksum: u32,
    pub(crate) entries: u64,
    /// The time of the latest acceptance among its ids; 0 in other tables.
    pub(crate) newest: u64,
}

impl Section {
    pub(crate) const NUMBERS: usize = 8;

    pub(crate) fn numbers(&self) -> [u64; Self::NUMBERS] {
        [
            self.file,
            self.start,
            self.index_at,
            self.index_len,
            self.filter_len,
            u64::from(self.checksum),
            self.entries,
            self.newest,
        ]
    }

    pub(crate) fn of_numbers(numbers: [u64; Self::NUMBERS]) -> Option<Self> {
        let [file, start, index_at, index_len, filter_len, checksum, entries, newest] = numbers;
        let checksum = u32::try_from(checksum).ok()?;
        Some(Self { file, start, index_at, index_len, filter_len, checksum, entries, newest })
    }
}

/// Writes a section from entries in key order.
pub(crate) struct SectionWriter<'a, F> {
    file: &'a F,
    space: Space,
    seed: u64,
    section: Section,
    /// The file offset of `out`.
    at: u64,
    out: Vec<u8>,
    block: Vec<u8>,
    first_key: Vec<u8>,
    index: Vec<u8>,
    filter: Filter,
}

impl<'a, F: DiskFile> SectionWriter<'a, F> {
    /// Starts a section at `start` in a file, for at most this many entries.
    pub(crate) fn new(file: &'a F, number: u64, start: u64, space: Space, seed: u64, entries: u64) -> Self {
        Self {
            file,
            space,
            seed,
            section: Section { file: number, start, ..Section::default() },
            at: start,
            out: Vec::new(),
            block: Vec::new(),
            first_key: Vec::new(),
            index: Vec::new(),
            filter: Filter::for_entries(entries),
        }
    }

    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        if self.block.is_empty() {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        self.block.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.block.extend_from_slice(&value.map_or(REMOVED, |value| value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value.unwrap_or_default());
        self.filter.add(hash_of(self.space, key, self.seed));
        self.section.entries += 1;
        if self.space == Space::Ids
            && let Some(value) = value
        {
            self.section.newest = self.section.newest.max(IdSlot::at_of(value));
        }
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let offset = self.at + self.out.len() as u64;
        self.index.extend_from_slice(&(self.first_key.len() as u16).to_le_bytes());
        self.index.extend_from_slice(&self.first_key);
        self.index.extend_from_slice(&offset.to_le_bytes());
        self.index.extend_from_slice(&(self.block.len() as u32).to_le_bytes());
        self.index.extend_from_slice(&crc32fast::hash(&self.block).to_le_bytes());
        self.out.append(&mut self.block);
        if self.out.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(self.at, &self.out)?;
        self.at += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Finishes the section and returns it, together with the start of the next one. The caller has to sync the file.
    pub(crate) fn end(mut self) -> io::Result<(Section, u64)> {
        self.end_block()?;
        let section = &mut self.section;
        section.index_at = self.at + self.out.len() as u64;
        section.index_len = self.index.len() as u64;
        section.filter_len = self.filter.len_bytes() as u64;
        let checked = self.out.len();
        self.out.extend_from_slice(&self.index);
        self.out.extend(self.filter.bytes());
        section.checksum = crc32fast::hash(&self.out[checked..]);
        self.flush()?;
        Ok((self.section, self.at))
    }
}

/// A key and its value; a removal has no value.
pub(crate) type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// The entries of a block, in sequence.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    at: usize,
}

impl Block {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The current entry; `None` after the last one.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let rest = self.bytes.get(self.at..)?;
        let (key_len, value_len) = lens(rest)?;
        let value = rest.get(4 + key_len..4 + key_len + value_len.unwrap_or(0))?;
        Some((&rest[4..4 + key_len], value_len.map(|_| value)))
    }

    pub(crate) fn advance(&mut self) {
        let lens = self.bytes.get(self.at..).and_then(lens);
        self.at = lens.map_or(self.bytes.len(), |(key, value)| self.at + 4 + key + value.unwrap_or(0));
    }
}

fn lens(raw: &[u8]) -> Option<(usize, Option<usize>)> {
    let number = |at: usize| Some(u16::from_le_bytes(raw.get(at..at + 2)?.try_into().ok()?));
    let value = number(2)?;
    Some((usize::from(number(0)?), (value != REMOVED).then_some(usize::from(value))))
}
