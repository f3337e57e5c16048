//! Which deliveries were started: marks that are never synced, so they survive the process but not a power cut.
//!
//! Marks are appended, one write per hand-out. A mark whose message was settled since means nothing; what is marked, not
//! settled and followed by no clean end was running when the process died.

use std::io;

use super::disk::{Disk, DiskFile};

const NAMES: [&str; 2] = ["started-0", "started-1"];
/// When a file has grown to this size, the other one takes over, beginning with what is in flight. Twice as much as can
/// be in flight at most, or else the files would take turns at every hand-out.
const FILE_BYTES_MAX: u64 = 8 << 20;
const MARK_BYTES: usize = 24;

/// A message's number, and where it had waited: until it was due, or in the line of its key, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub seq: u64,
    pub due: Option<u64>,
    /// The hash of the key in whose line it stood.
    pub line: Option<u64>,
}

#[derive(Debug)]
pub struct Started<F> {
    files: [F; 2],
    current: usize,
    len: u64,
    buf: Vec<u8>,
    /// The marks of the last run are still in the files. They stay until something is started: a process that dies
    /// before that has not acted on them, and the next one must see them again.
    of_last_run: bool,
}

impl<F: DiskFile> Started<F> {
    /// Opens the marks and returns what the last run had started and not ended cleanly.
    pub fn open<D: Disk<File = F>>(disk: &D) -> io::Result<(Self, Vec<Mark>)> {
        let names = disk.list()?;
        let open =
            |name: &str| if names.iter().any(|n| n == name) { disk.open(name) } else { disk.create(name) };
        let files = [open(NAMES[0])?, open(NAMES[1])?];
        let mut marks = Vec::new();
        for file in &files {
            let mut raw = vec![0; file.len()?.min(FILE_BYTES_MAX * 2) as usize];
            let read = file.read_at(0, &mut raw)?;
            // A mark that was being written when the process died may be cut short: it is not a mark.
            marks.extend(raw[..read].chunks_exact(MARK_BYTES).map(Mark::read));
        }
        marks.sort_unstable();
        marks.dedup();
        let of_last_run = !marks.is_empty();
        Ok((Self { files, current: 0, len: 0, buf: Vec::new(), of_last_run }, marks))
    }

    /// Marks deliveries as started. `running` gives all that are in flight, for when a new file begins.
    pub fn mark(
        &mut self,
        started: impl Iterator<Item = Mark>,
        running: impl FnOnce() -> Vec<Mark>,
    ) -> io::Result<()> {
        if self.of_last_run {
            self.clear()?;
        }
        self.buf.clear();
        started.for_each(|mark| mark.write(&mut self.buf));
        if self.len + self.buf.len() as u64 <= FILE_BYTES_MAX {
            self.files[self.current].write_at(self.len, &self.buf)?;
            self.len += self.buf.len() as u64;
            return Ok(());
        }
        let old = self.current;
        self.current = 1 - old;
        self.buf.clear();
        running().into_iter().for_each(|mark| mark.write(&mut self.buf));
        self.files[self.current].set_len(0)?;
        self.files[self.current].write_at(0, &self.buf)?;
        self.len = self.buf.len() as u64;
        self.files[old].set_len(0)
    }

    /// Nothing is running any more.
    pub fn clear(&mut self) -> io::Result<()> {
        (self.len, self.of_last_run) = (0, false);
        self.files.iter().try_for_each(|file| file.set_len(0))
    }
}

const FRESH: u64 = u64::MAX;
const IN_LINE: u64 = u64::MAX - 1;

impl Mark {
    pub(super) fn write(self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.seq.to_le_bytes());
        // A hash may be any number, so the kind stands in the place of the due time.
        let (due, line) = match (self.due, self.line) {
            (_, Some(hash)) => (IN_LINE, hash),
            (due, None) => (due.unwrap_or(FRESH), 0),
        };
        buf.extend_from_slice(&due.to_le_bytes());
        buf.extend_from_slice(&line.to_le_bytes());
    }

    pub(super) fn read(raw: &[u8]) -> Self {
        let number = |at: usize| raw[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let due = number(8);
        let line = (due == IN_LINE).then(|| number(16));
        Self { seq: number(0), due: Some(due).filter(|due| *due < IN_LINE), line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk_sim::SimDisk;

    fn mark(seq: u64) -> Mark {
        Mark { seq, due: seq.is_multiple_of(2).then_some(seq * 10), line: None }
    }

    #[test]
    fn marks_survive_the_process_and_a_clean_end_clears_them() {
        let disk = SimDisk::new();
        let (mut started, before) = Started::open(&disk).unwrap();
        assert!(before.is_empty());
        started.mark([mark(1), mark(2)].into_iter(), Vec::new).unwrap();
        drop(started);
        let (mut started, before) = Started::open(&disk).unwrap();
        assert_eq!(before, [mark(1), mark(2)]);
        started.clear().unwrap();
        assert!(Started::open(&disk).unwrap().1.is_empty());
    }

    #[test]
    fn a_new_file_begins_with_what_is_running_and_the_files_stay_small() {
        let disk = SimDisk::new();
        let (mut started, _) = Started::open(&disk).unwrap();
        for n in 0..300 {
            let batch = (n * 1000..n * 1000 + 1000).map(mark);
            started.mark(batch, || vec![mark(7)]).unwrap();
        }
        let (_, marks) = Started::open(&disk).unwrap();
        assert!(marks.contains(&mark(7)), "what still runs is never forgotten");
        assert!(marks.len() as u64 <= 2 * FILE_BYTES_MAX / MARK_BYTES as u64);
    }
}
