//! Which deliveries were started and which of them came back, as marks that are never synced: they survive the process
//! but not a power failure.
//!
//! Marks are appended, one write per hand-out and one per batch of verdicts. Marks of messages settled since are
//! ignored. A delivery that was started and neither came back nor was settled was running when the process died. One
//! that came back was not, even if the process died before its verdict was durable.

use std::collections::BTreeMap;
use std::io;

use crate::engine::embedded::disk::real::{Disk, DiskFile};

const NAMES: [&str; 2] = ["started-0", "started-1"];
/// At this size, the other file takes over, beginning with what is in flight. It is twice as much as can be in flight,
/// so that the files do not alternate at every hand-out.
const FILE_BYTES_MAX: u64 = 8 << 20;
const MARK_BYTES: usize = 24;

/// A message's number, and where it waited: for its due time, in the line of its key, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub seq: u64,
    pub due: Option<u64>,
    /// The hash of the key in whose line it was.
    pub line: Option<u64>,
}

/// The deliveries handed out by a process that did not end cleanly.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct LastRun {
    /// Started, and not back yet.
    pub running: Vec<Mark>,
    /// Came back. Whether their verdicts are durable is not known from the marks.
    pub returned: Vec<Mark>,
}

/// The marks of one message since it last came back. It may have been handed out, released, and handed out again from
/// elsewhere; which of these places the journal still knows is found out later.
#[derive(Debug, Default)]
struct HandedOut {
    marks: Vec<Mark>,
    has_returned: bool,
}

impl HandedOut {
    fn follow(&mut self, mark: Mark, returned: bool) {
        if self.has_returned && !returned {
            self.marks.clear();
        }
        self.has_returned = returned;
        if !self.marks.contains(&mark) {
            self.marks.push(mark);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Started<F> {
    files: [F; 2],
    current: usize,
    len: u64,
    buf: Vec<u8>,
    /// Whether the files still hold the marks of the last run. They stay until something is started: a process that
    /// dies before that has not acted on them, so the next one must see them again.
    of_last_run: bool,
}

impl<F: DiskFile> Started<F> {
    /// Opens the marks and returns what the last run had handed out, unless it ended cleanly.
    pub(crate) fn open<D: Disk<File = F>>(disk: &D) -> io::Result<(Self, LastRun)> {
        let names = disk.list()?;
        let open =
            |name: &str| if names.iter().any(|n| n == name) { disk.open(name) } else { disk.create(name) };
        let files = [open(NAMES[0])?, open(NAMES[1])?];
        // Both files have marks only if the process died while it switched between them; then they say the same.
        let mut handed_out: BTreeMap<u64, HandedOut> = BTreeMap::new();
        for file in &files {
            let mut raw = vec![0; file.len()?.min(FILE_BYTES_MAX * 2) as usize];
            let read = file.read_at(0, &mut raw)?;
            // A mark cut short by the death of the process is ignored.
            for (mark, returned) in raw[..read].chunks_exact(MARK_BYTES).map(read_mark) {
                handed_out.entry(mark.seq).or_default().follow(mark, returned);
            }
        }
        let of_last_run = !handed_out.is_empty();
        let mut run = LastRun::default();
        for HandedOut { marks, has_returned } in handed_out.into_values() {
            let with = if has_returned { &mut run.returned } else { &mut run.running };
            with.extend(marks);
        }
        Ok((Self { files, current: 0, len: 0, buf: Vec::new(), of_last_run }, run))
    }

    /// Marks deliveries as started. `out` has everything that is handed out, for the case that a new file begins.
    pub(crate) fn mark(
        &mut self,
        started: impl Iterator<Item = Mark>,
        out: impl FnOnce() -> LastRun,
    ) -> io::Result<()> {
        self.buf.clear();
        started.for_each(|mark| mark.write(&mut self.buf));
        self.append(out)
    }

    /// Marks deliveries as returned: they cannot be the cause of a later crash.
    pub(crate) fn returned(
        &mut self,
        returned: impl Iterator<Item = Mark>,
        out: impl FnOnce() -> LastRun,
    ) -> io::Result<()> {
        self.buf.clear();
        returned.for_each(|mark| write_returned(mark, &mut self.buf));
        self.append(out)
    }

    fn append(&mut self, out: impl FnOnce() -> LastRun) -> io::Result<()> {
        if self.of_last_run {
            self.clear()?;
        }
        if self.len + self.buf.len() as u64 <= FILE_BYTES_MAX {
            self.files[self.current].write_at(self.len, &self.buf)?;
            self.len += self.buf.len() as u64;
            return Ok(());
        }
        let old = self.current;
        self.current = 1 - old;
        self.buf.clear();
        let LastRun { running, returned } = out();
        running.into_iter().for_each(|mark| mark.write(&mut self.buf));
        returned.into_iter().for_each(|mark| write_returned(mark, &mut self.buf));
        self.files[self.current].set_len(0)?;
        self.files[self.current].write_at(0, &self.buf)?;
        self.len = self.buf.len() as u64;
        self.files[old].set_len(0)
    }

    /// Removes all marks, because nothing is running any more.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        (self.len, self.of_last_run) = (0, false);
        self.files.iter().try_for_each(|file| file.set_len(0))
    }
}

const FRESH: u64 = u64::MAX;
const IN_LINE: u64 = u64::MAX - 1;

impl Mark {
    pub(crate) fn write(self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.seq.to_le_bytes());
        // A hash may be any number, so the kind is stored in place of the due time.
        let (due, line) = match (self.due, self.line) {
            (_, Some(hash)) => (IN_LINE, hash),
            (due, None) => (due.unwrap_or(FRESH), 0),
        };
        buf.extend_from_slice(&due.to_le_bytes());
        buf.extend_from_slice(&line.to_le_bytes());
    }

    pub(crate) fn read(raw: &[u8]) -> Self {
        let number = |at: usize| raw[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let due = number(8);
        let line = (due == IN_LINE).then(|| number(16));
        Self { seq: number(0), due: Some(due).filter(|due| *due < IN_LINE), line }
    }
}

/// Set in the message's number, which never gets that large.
const RETURNED: u64 = 1 << 63;

fn write_returned(mark: Mark, buf: &mut Vec<u8>) {
    Mark { seq: mark.seq | RETURNED, ..mark }.write(buf);
}

/// Decodes a mark, and whether it says that the delivery came back.
fn read_mark(raw: &[u8]) -> (Mark, bool) {
    let mark = Mark::read(raw);
    (Mark { seq: mark.seq & !RETURNED, ..mark }, mark.seq & RETURNED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;

    fn mark(seq: u64) -> Mark {
        Mark { seq, due: seq.is_multiple_of(2).then_some(seq * 10), line: None }
    }

    fn nothing() -> LastRun {
        LastRun::default()
    }

    fn running(marks: &[Mark]) -> LastRun {
        LastRun { running: marks.to_vec(), returned: Vec::new() }
    }

    #[test]
    fn marks_survive_the_process_and_a_clean_end_clears_them() {
        let disk = SimDisk::new();
        let (mut started, before) = Started::open(&disk).unwrap();
        assert_eq!(before, nothing());
        started.mark([mark(1), mark(2)].into_iter(), nothing).unwrap();
        drop(started);
        let (mut started, before) = Started::open(&disk).unwrap();
        assert_eq!(before, running(&[mark(1), mark(2)]));
        started.clear().unwrap();
        assert_eq!(Started::open(&disk).unwrap().1, nothing());
    }

    #[test]
    fn what_came_back_was_not_running_unless_it_was_started_again() {
        let disk = SimDisk::new();
        let (mut started, _) = Started::open(&disk).unwrap();
        started.mark((1..=3).map(mark), nothing).unwrap();
        started.returned([mark(1), mark(2)].into_iter(), nothing).unwrap();
        let retry = Mark { due: Some(70), ..mark(2) };
        started.mark([retry].into_iter(), nothing).unwrap();
        let (_, before) = Started::open(&disk).unwrap();
        assert_eq!(before, LastRun { running: vec![retry, mark(3)], returned: vec![mark(1)] });
    }

    #[test]
    fn one_that_was_released_is_found_wherever_it_was() {
        let disk = SimDisk::new();
        let (mut started, _) = Started::open(&disk).unwrap();
        let in_line = Mark { due: None, line: Some(9), ..mark(1) };
        started.mark([mark(1), mark(3)].into_iter(), nothing).unwrap();
        started.mark([in_line].into_iter(), nothing).unwrap();
        assert_eq!(Started::open(&disk).unwrap().1, running(&[mark(1), in_line, mark(3)]));
        started.returned([in_line].into_iter(), nothing).unwrap();
        let (_, before) = Started::open(&disk).unwrap();
        assert_eq!(before, LastRun { running: vec![mark(3)], returned: vec![mark(1), in_line] });
    }

    #[test]
    fn a_new_file_begins_with_what_is_out_and_the_files_stay_small() {
        let disk = SimDisk::new();
        let (mut started, _) = Started::open(&disk).unwrap();
        let out = || LastRun { running: vec![mark(7)], returned: vec![mark(8)] };
        for n in 0..400 {
            let batch = (n * 1000..n * 1000 + 1000).map(mark);
            started.mark(batch, out).unwrap();
        }
        let (_, before) = Started::open(&disk).unwrap();
        assert!(before.running.contains(&mark(7)), "what still runs is never forgotten");
        assert_eq!(before.returned, [mark(8)]);
        assert!(before.running.len() as u64 <= 2 * FILE_BYTES_MAX / MARK_BYTES as u64);
    }
}
