//! Which letters were erased but not yet overwritten in all copies, in a file that survives a crash.
//!
//! A letter is recorded before its tombstone is written, and the list is confirmed before the first copy is
//! overwritten. So when the store is opened, overwriting has either not begun, or has begun only for letters that
//! certainly have their tombstones, and below positions that were written long before.

use std::collections::{BTreeSet, HashSet};
use std::io;

use crate::engine::embedded::disk::real::{Disk, DiskFile};

const NAME: &str = "erasures";
/// A record: its kind, the number of a letter, a checksum.
const RECORD_BYTES: usize = 16;
const LETTER: u32 = 1;
/// The positions of the journal, and of the letter log, up to which copies may be overwritten.
const CONFIRMED_JOURNAL: u32 = 2;
const CONFIRMED_LETTER_LOG: u32 = 3;
/// The letter is overwritten everywhere, or was never erased.
const SETTLED: u32 = 4;

/// The unfinished erasures of an earlier run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundErasures {
    /// All recorded letters; those recorded after the last confirmation may have no tombstone.
    pub(crate) recorded: BTreeSet<u64>,
    /// Letters whose copies may be partly overwritten,
    pub(crate) confirmed: HashSet<u64>,
    /// below these positions of the journal and of the letter log.
    pub(crate) journal_end: u64,
    pub(crate) letter_log_end: u64,
}

#[derive(Debug)]
pub(crate) struct Erasures<D: Disk> {
    disk: D,
    file: Option<D::File>,
    end: u64,
    recorded: BTreeSet<u64>,
}

impl<D: Disk> Erasures<D> {
    pub(crate) fn open(disk: &D) -> io::Result<(Self, FoundErasures)> {
        let mut found = FoundErasures::default();
        let mut erasures = Self { disk: disk.clone(), file: None, end: 0, recorded: BTreeSet::new() };
        if !disk.list()?.iter().any(|name| name == NAME) {
            return Ok((erasures, found));
        }
        let file = disk.open(NAME)?;
        let bytes = file.read_vec(0, file.len()? as usize)?;
        for record in bytes.chunks_exact(RECORD_BYTES) {
            match read(record) {
                Some((LETTER, number)) => drop(found.recorded.insert(number)),
                Some((SETTLED, number)) => {
                    found.recorded.remove(&number);
                    found.confirmed.remove(&number);
                }
                Some((CONFIRMED_JOURNAL, end)) => found.journal_end = end,
                Some((CONFIRMED_LETTER_LOG, end)) => {
                    found.letter_log_end = end;
                    found.confirmed = found.recorded.iter().copied().collect();
                }
                // The last write was torn.
                _ => break,
            }
            erasures.end += RECORD_BYTES as u64;
        }
        erasures.file = Some(file);
        erasures.recorded.clone_from(&found.recorded);
        Ok((erasures, found))
    }

    /// Records letters that are about to be erased. Durable on return.
    pub(crate) fn record(&mut self, letters: &[u64]) -> io::Result<()> {
        self.recorded.extend(letters);
        let records: Vec<u8> = letters.iter().flat_map(|letter| write(LETTER, *letter)).collect();
        self.append(&records)
    }

    /// Confirms that all recorded letters have their tombstones: from now on their copies below these positions may
    /// be overwritten.
    pub(crate) fn confirm(&mut self, journal_end: u64, letter_log_end: u64) -> io::Result<()> {
        let ends = [write(CONFIRMED_JOURNAL, journal_end), write(CONFIRMED_LETTER_LOG, letter_log_end)];
        self.append(&ends.concat())
    }

    /// Removes letters that are overwritten everywhere, or were never erased.
    pub(crate) fn settle<'a>(&mut self, letters: impl IntoIterator<Item = &'a u64>) -> io::Result<()> {
        let known: Vec<u64> =
            letters.into_iter().filter(|letter| self.recorded.remove(letter)).copied().collect();
        if !self.recorded.is_empty() {
            let records: Vec<u8> = known.iter().flat_map(|letter| write(SETTLED, *letter)).collect();
            return self.append(&records);
        }
        if self.file.take().is_some() {
            self.disk.remove(NAME)?;
            self.disk.sync_dir()?;
        }
        self.end = 0;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let is_new = self.file.is_none();
        let file = match self.file.take() {
            Some(file) => file,
            None => self.disk.create(NAME)?,
        };
        let file = self.file.insert(file);
        file.write_at(self.end, bytes)?;
        file.sync_data()?;
        self.end += bytes.len() as u64;
        if is_new { self.disk.sync_dir() } else { Ok(()) }
    }
}

fn write(what: u32, number: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(&what.to_le_bytes());
    record[4..12].copy_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&record[..12]);
    record[12..].copy_from_slice(&crc.to_le_bytes());
    record
}

fn read(record: &[u8]) -> Option<(u32, u64)> {
    let (body, crc) = record.split_at_checked(12)?;
    let right = crc == crc32fast::hash(body).to_le_bytes();
    let what = u32::from_le_bytes(body[..4].try_into().ok()?);
    right.then_some((what, u64::from_le_bytes(body[4..].try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;

    #[test]
    fn what_was_recorded_and_confirmed_is_found_again() {
        let disk = SimDisk::new();
        let (mut erasures, found) = Erasures::open(&disk).unwrap();
        assert_eq!(found, FoundErasures::default());
        erasures.record(&[7, 9]).unwrap();
        erasures.confirm(500, 300).unwrap();
        erasures.record(&[11]).unwrap();
        let (mut again, found) = Erasures::open(&disk).unwrap();
        assert_eq!((found.journal_end, found.letter_log_end), (500, 300));
        assert_eq!(found.recorded, BTreeSet::from([7, 9, 11]));
        assert_eq!(found.confirmed, HashSet::from([7, 9]));
        again.settle(&[7, 9]).unwrap();
        let (mut last, found) = Erasures::open(&disk).unwrap();
        assert_eq!((found.recorded, found.confirmed), (BTreeSet::from([11]), HashSet::new()));
        last.settle(&[11]).unwrap();
        assert!(disk.list().unwrap().is_empty());
    }

    #[test]
    fn a_torn_record_ends_the_list_and_is_written_over() {
        let disk = SimDisk::new();
        let (mut erasures, _) = Erasures::open(&disk).unwrap();
        erasures.record(&[7]).unwrap();
        disk.open(NAME).unwrap().write_at(RECORD_BYTES as u64, &[1; 20]).unwrap();
        let (mut erasures, found) = Erasures::open(&disk).unwrap();
        assert_eq!(found.recorded, BTreeSet::from([7]));
        erasures.record(&[8]).unwrap();
        let (_, found) = Erasures::open(&disk).unwrap();
        assert_eq!(found.recorded, BTreeSet::from([7, 8]), "the torn one was never answered");
    }
}
