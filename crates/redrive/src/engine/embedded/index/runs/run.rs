//! A run: an open section. Its filter and the first key of every block are in memory; a look-up reads one block.

use std::sync::Arc;

use super::files::file_name;
use super::filter::Filter;
use super::section::{Block, Entry, Section};
use crate::engine::embedded::disk::real::DiskFile;
use crate::engine::embedded::index::tables::IndexError;

#[derive(Debug)]
pub(crate) struct Run<F> {
    pub(crate) section: Section,
    file: Arc<F>,
    blocks: Blocks,
    filter: Filter,
}

/// The result of looking up a key in a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Value(Vec<u8>),
    Removed,
    Nothing,
}

impl<F: DiskFile> Run<F> {
    /// Opens a section: reads and verifies everything but the blocks.
    pub(crate) fn open(section: Section, file: Arc<F>) -> Result<Self, IndexError> {
        let (blocks, filter) = Self::read_end(&section, &*file)?;
        Ok(Self { section, file, blocks, filter })
    }

    /// Reads the parts again that are in memory, to check that they are still intact in the file.
    pub(crate) fn check_end(&self) -> Result<(), IndexError> {
        Self::read_end(&self.section, &*self.file).map(drop)
    }

    fn read_end(section: &Section, file: &F) -> Result<(Blocks, Filter), IndexError> {
        let damaged =
            || IndexError::Damaged(format!("{}: the end of a section is damaged", file_name(section.file)));
        let len = section.index_len.checked_add(section.filter_len).ok_or_else(damaged)?;
        let bytes = read(section, file, section.index_at, len)?;
        if crc32fast::hash(&bytes) != section.checksum {
            return Err(damaged());
        }
        let (index, filter) = bytes.split_at(section.index_len as usize);
        let blocks = Blocks::read(index.to_vec()).ok_or_else(damaged)?;
        let filter = Filter::read(filter).ok_or_else(damaged)?;
        Ok((blocks, filter))
    }

    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.filter.may_hold(hash)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Found, IndexError> {
        let Some(number) = self.blocks.of_key(key) else { return Ok(Found::Nothing) };
        let mut block = self.block(number)?;
        while let Some((here, value)) = block.entry() {
            match here.cmp(key) {
                std::cmp::Ordering::Less => block.advance(),
                std::cmp::Ordering::Equal => {
                    return Ok(value.map_or(Found::Removed, |value| Found::Value(value.to_vec())));
                }
                std::cmp::Ordering::Greater => break,
            }
        }
        Ok(Found::Nothing)
    }

    pub(crate) fn blocks_len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn block(&self, number: usize) -> Result<Block, IndexError> {
        let (_, BlockAt { offset, len, checksum }) = self.blocks.get(number);
        let bytes = read(&self.section, &*self.file, offset, u64::from(len))?;
        if crc32fast::hash(&bytes) != checksum {
            let name = file_name(self.section.file);
            return Err(IndexError::Damaged(format!("{name}: the block at {offset} is damaged")));
        }
        Ok(Block::new(bytes))
    }
}

fn read<F: DiskFile>(section: &Section, file: &F, offset: u64, len: u64) -> Result<Vec<u8>, IndexError> {
    let name = || file_name(section.file);
    let bytes = file
        .read_vec(offset, len as usize)
        .map_err(|error| IndexError::Damaged(format!("reading {} at {offset}: {error}", name())))?;
    if bytes.len() as u64 != len {
        return Err(IndexError::Damaged(format!("{} is shorter than it was", name())));
    }
    Ok(bytes)
}

/// The first keys of the blocks, as encoded in the section.
#[derive(Debug)]
struct Blocks {
    raw: Vec<u8>,
    /// The start of each record.
    starts: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct BlockAt {
    offset: u64,
    len: u32,
    checksum: u32,
}

const AFTER_KEY_BYTES: usize = 16;

impl Blocks {
    fn read(raw: Vec<u8>) -> Option<Self> {
        let (mut starts, mut at) = (Vec::new(), 0);
        while at < raw.len() {
            starts.push(u32::try_from(at).ok()?);
            let len = usize::from(u16::from_le_bytes(raw.get(at..at + 2)?.try_into().ok()?));
            at += 2 + len + AFTER_KEY_BYTES;
        }
        (at == raw.len()).then_some(Self { raw, starts })
    }

    fn len(&self) -> usize {
        self.starts.len()
    }

    fn get(&self, number: usize) -> (&[u8], BlockAt) {
        let record = &self.raw[self.starts[number] as usize..];
        let len = usize::from(u16::from_le_bytes([record[0], record[1]]));
        let (key, rest) = record[2..].split_at(len);
        let number = |at: usize, len: usize| {
            rest[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let at = BlockAt { offset: number(0, 8), len: number(8, 4) as u32, checksum: number(12, 4) as u32 };
        (key, at)
    }

    /// The only block that can contain the key.
    fn of_key(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle).0 <= key { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }
}

/// Iterates over a run in key order.
#[derive(Debug)]
pub(crate) struct Cursor<F> {
    run: Arc<Run<F>>,
    next_block: usize,
    block: Block,
}

impl<F: DiskFile> Cursor<F> {
    /// A cursor at the first entry at or after `from`.
    pub(crate) fn seek(run: Arc<Run<F>>, from: &[u8]) -> Result<Self, IndexError> {
        let first = run.blocks.of_key(from).unwrap_or(0);
        let mut cursor = Self { run, next_block: first, block: Block::default() };
        cursor.fill()?;
        while cursor.entry().is_some_and(|(key, _)| key < from) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        self.block.entry()
    }

    pub(crate) fn advance(&mut self) -> Result<(), IndexError> {
        self.block.advance();
        self.fill()
    }

    fn fill(&mut self) -> Result<(), IndexError> {
        while self.block.entry().is_none() && self.next_block < self.run.blocks.len() {
            self.block = self.run.block(self.next_block)?;
            self.next_block += 1;
        }
        Ok(())
    }
}

/// Iterates over several runs as one; of a key, the newest entry counts. The runs are given oldest first.
#[derive(Debug)]
pub(crate) struct Merged<F> {
    cursors: Vec<Cursor<F>>,
}

impl<F: DiskFile> Merged<F> {
    pub(crate) fn seek(runs: impl Iterator<Item = Arc<Run<F>>>, from: &[u8]) -> Result<Self, IndexError> {
        Ok(Self { cursors: runs.map(|run| Cursor::seek(run, from)).collect::<Result<_, _>>()? })
    }

    /// Passes the next entry to `each` and advances; `None` at the end.
    pub(crate) fn next<T>(
        &mut self,
        each: impl FnOnce(&[u8], Option<&[u8]>) -> T,
    ) -> Result<Option<T>, IndexError> {
        let mut newest: Option<(usize, Entry<'_>)> = None;
        for (i, cursor) in self.cursors.iter().enumerate() {
            if let Some((key, value)) = cursor.entry()
                && newest.is_none_or(|(_, (smallest, _))| key <= smallest)
            {
                newest = Some((i, (key, value)));
            }
        }
        let Some((newest, (key, value))) = newest else { return Ok(None) };
        let (answer, key) = (each(key, value), key.to_vec());
        for cursor in &mut self.cursors[..newest] {
            if cursor.entry().is_some_and(|(here, _)| here == key) {
                cursor.advance()?;
            }
        }
        self.cursors[newest].advance()?;
        Ok(Some(answer))
    }
}
