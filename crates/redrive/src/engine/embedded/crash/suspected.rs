//! Which messages may have killed the process, in a short file of its own. Never synced: it survives the process but
//! not a power failure.
//!
//! Records are appended, and the last one of a message counts. When the process dies, a waiting suspect keeps its
//! crashes; an announced one gets one more, unless the process was ended from outside. A suspect that came back is
//! cleared: if the process ends before its verdict is durable, this attempt is not suspected again. Messages settled
//! since are dropped.

use std::collections::BTreeMap;
use std::io;

use redrive_core::Time;

use super::started::{LastRun, Mark};
use crate::engine::embedded::disk::real::{Disk, DiskFile};
use crate::engine::seam::{LastEnd, Suspect};

const NAME: &str = "suspects";
const RECORD_BYTES: usize = 48;

const WAITS: u8 = 1;
const RUNS: u8 = 2;
const CLEARED: u8 = 3;

#[derive(Debug)]
pub(crate) struct Suspected<F> {
    file: F,
    len: u64,
    known: BTreeMap<u64, KnownSuspect>,
    /// The announced suspect, until it has come back.
    running: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownSuspect {
    mark: Mark,
    /// 0 if it is cleared.
    crashes: u32,
    /// In milliseconds; 0 before the clock was first read.
    first: u64,
    last: u64,
}

impl<F: DiskFile> Suspected<F> {
    /// Returns the suspects that the last process left, both waiting and running ones. Writes nothing before
    /// [`Self::adopt`].
    pub(crate) fn open<D: Disk<File = F>>(disk: &D, last_end: LastEnd) -> io::Result<(Self, Vec<Mark>)> {
        let is_there = disk.list()?.iter().any(|name| name == NAME);
        let file = if is_there { disk.open(NAME)? } else { disk.create(NAME)? };
        let len = file.len()?;
        let mut raw = vec![0; len as usize];
        let read = file.read_at(0, &mut raw)?;
        let mut last: BTreeMap<u64, (u8, KnownSuspect)> = BTreeMap::new();
        for (state, known) in raw[..read].chunks_exact(RECORD_BYTES).filter_map(read_record) {
            last.insert(known.mark.seq, (state, known));
        }
        let known: BTreeMap<u64, KnownSuspect> = (last.into_iter())
            .map(|(seq, (state, known))| {
                let has_crashed = state == RUNS && last_end == LastEnd::Unknown;
                let crashes = known.crashes + u32::from(has_crashed);
                // Its time of death is set when the clock is first read.
                let last = if has_crashed { 0 } else { known.last };
                (seq, KnownSuspect { crashes, last, ..known })
            })
            .collect();
        let marks = known.values().map(|known| known.mark).collect();
        let len = (read - read % RECORD_BYTES) as u64;
        Ok((Self { file, len, known, running: None }, marks))
    }

    /// Keeps the suspects that are still open, adds what the last run had handed out, and writes all of them. Doing it
    /// twice changes nothing, so a death of the process here is not counted as a crash of theirs.
    pub(crate) fn adopt(&mut self, open: &[Mark], last_run: &LastRun) -> io::Result<()> {
        self.known.retain(|_, known| open.contains(&known.mark));
        for mark in &last_run.returned {
            self.known.insert(mark.seq, KnownSuspect { mark: *mark, crashes: 0, first: 0, last: 0 });
        }
        for mark in &last_run.running {
            self.known.entry(mark.seq).or_insert(KnownSuspect { mark: *mark, crashes: 1, first: 0, last: 0 });
        }
        if self.known.is_empty() {
            return self.forget();
        }
        let mut raw = Vec::with_capacity(self.known.len() * RECORD_BYTES);
        self.known.values().for_each(|known| write_record(&mut raw, known.at_rest(), known));
        self.append(&raw)
    }

    /// Whether the message is a suspect, or was cleared and has no durable verdict yet.
    pub(crate) fn is_known(&self, seq: u64) -> bool {
        self.known.contains_key(&seq)
    }

    /// The numbers of the suspects.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.known.iter().filter(|(_, known)| known.crashes > 0).map(|(seq, _)| *seq)
    }

    /// Whether there are neither suspects nor cleared messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What is known about a message that is handed out; `None` if it is no suspect.
    pub(crate) fn of(&mut self, seq: u64, now: Time) -> Option<Suspect> {
        let known = self.known.get_mut(&seq).filter(|known| known.crashes > 0)?;
        for time in [&mut known.first, &mut known.last] {
            if *time == 0 {
                *time = now.as_millis();
            }
        }
        let time = |ms: u64| Some(Time::from_millis(ms));
        Some(Suspect { crashes: known.crashes, first_crash: time(known.first), last_crash: time(known.last) })
    }

    /// Records a new place: it has come due, or has joined the line of its key.
    pub(crate) fn moved(&mut self, mark: Mark) -> io::Result<()> {
        let Some(known) = self.known.get_mut(&mark.seq).filter(|known| known.mark != mark) else {
            return Ok(());
        };
        known.mark = mark;
        let known = *known;
        self.note(known.at_rest(), &known)
    }

    /// Records that it is about to run.
    pub(crate) fn announce(&mut self, seq: u64) -> io::Result<()> {
        let Some(known) = self.known.get(&seq).copied() else { return Ok(()) };
        self.running = Some(seq);
        self.note(RUNS, &known)
    }

    /// Whether another suspect was announced and has not come back.
    pub(crate) fn is_another_running(&self, seq: u64) -> bool {
        self.running.is_some_and(|running| running != seq)
    }

    /// Records that it was released, unstarted or without a result: it waits again.
    pub(crate) fn released(&mut self, seq: u64) -> io::Result<()> {
        let Some(known) = self.known.get(&seq).copied() else { return Ok(()) };
        self.running = self.running.filter(|running| *running != seq);
        self.note(known.at_rest(), &known)
    }

    /// Records that it came back. Until its verdict is in the journal, the message stays known as cleared.
    pub(crate) fn cleared(&mut self, seq: u64) -> io::Result<()> {
        self.running = self.running.filter(|running| *running != seq);
        let Some(known) = self.known.get_mut(&seq).filter(|known| known.crashes > 0) else { return Ok(()) };
        known.crashes = 0;
        let known = *known;
        self.note(CLEARED, &known)
    }

    /// Removes it, because its end is durable.
    pub(crate) fn settled(&mut self, seq: u64) -> io::Result<()> {
        self.running = self.running.filter(|running| *running != seq);
        if self.known.remove(&seq).is_some() && self.known.is_empty() {
            return self.forget();
        }
        Ok(())
    }

    /// Removes all records.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        self.known.clear();
        if self.len == 0 {
            return Ok(());
        }
        self.len = 0;
        self.file.set_len(0)
    }

    fn note(&mut self, state: u8, known: &KnownSuspect) -> io::Result<()> {
        let mut raw = Vec::with_capacity(RECORD_BYTES);
        write_record(&mut raw, state, known);
        self.append(&raw)
    }

    fn append(&mut self, raw: &[u8]) -> io::Result<()> {
        self.file.write_at(self.len, raw)?;
        self.len += raw.len() as u64;
        Ok(())
    }
}

impl KnownSuspect {
    /// Its recorded state while it does not run.
    const fn at_rest(&self) -> u8 {
        if self.crashes == 0 { CLEARED } else { WAITS }
    }
}

fn write_record(raw: &mut Vec<u8>, state: u8, known: &KnownSuspect) {
    let KnownSuspect { mark, crashes, first, last } = known;
    mark.write(raw);
    raw.extend_from_slice(&first.to_le_bytes());
    raw.extend_from_slice(&last.to_le_bytes());
    raw.extend_from_slice(&crashes.to_le_bytes());
    raw.extend_from_slice(&[state, 0, 0, 0]);
}

/// Decodes a record; `None` if it is not valid.
fn read_record(raw: &[u8]) -> Option<(u8, KnownSuspect)> {
    let mark = Mark::read(&raw[..24]);
    let number = |at: usize| raw[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let crashes = raw[40..44].try_into().map(u32::from_le_bytes).ok()?;
    let state = raw[44];
    let known = KnownSuspect { mark, crashes, first: number(24)?, last: number(32)? };
    [WAITS, RUNS, CLEARED].contains(&state).then_some((state, known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;

    const NOW: Time = Time::from_millis(5_000);

    fn mark(seq: u64) -> Mark {
        Mark { seq, due: None, line: None }
    }

    fn reopened_after(
        disk: &SimDisk,
        last_end: LastEnd,
        last_run: &LastRun,
    ) -> Suspected<<SimDisk as Disk>::File> {
        let (mut suspected, open) = Suspected::open(disk, last_end).unwrap();
        suspected.adopt(&open, last_run).unwrap();
        suspected
    }

    fn reopened(disk: &SimDisk, started: &[Mark]) -> Suspected<<SimDisk as Disk>::File> {
        let last_run = LastRun { running: started.to_vec(), returned: Vec::new() };
        reopened_after(disk, LastEnd::Unknown, &last_run)
    }

    fn crashes(suspected: &mut Suspected<<SimDisk as Disk>::File>, seq: u64) -> Option<u32> {
        suspected.of(seq, NOW).map(|suspect| suspect.crashes)
    }

    #[test]
    fn who_waits_keeps_its_crashes_and_who_ran_has_one_more() {
        let disk = SimDisk::new();
        let mut first = reopened(&disk, &[mark(1), mark(2)]);
        assert_eq!((crashes(&mut first, 1), crashes(&mut first, 2)), (Some(1), Some(1)));
        first.announce(2).unwrap();
        drop(first);
        let mut second = reopened(&disk, &[mark(1)]);
        assert_eq!((crashes(&mut second, 1), crashes(&mut second, 2)), (Some(1), Some(2)));
        drop(second);
        let mut nothing_ran = reopened(&disk, &[]);
        assert_eq!(crashes(&mut nothing_ran, 2), Some(2), "a process that started nothing is no crash");
    }

    #[test]
    fn one_that_was_given_up_in_order_has_no_crash_more() {
        let disk = SimDisk::new();
        let mut first = reopened(&disk, &[mark(1)]);
        first.announce(1).unwrap();
        first.released(1).unwrap();
        drop(first);
        assert_eq!(crashes(&mut reopened(&disk, &[]), 1), Some(1));
    }

    #[test]
    fn the_file_is_empty_once_all_are_settled() {
        let disk = SimDisk::new();
        let mut suspected = reopened(&disk, &[mark(1), mark(2)]);
        suspected.announce(1).unwrap();
        suspected.settled(1).unwrap();
        suspected.settled(2).unwrap();
        assert_eq!(suspected.file.len().unwrap(), 0);
        assert!(reopened(&disk, &[]).is_empty());
    }

    #[test]
    fn a_clean_run_clears_an_attempt_for_good() {
        let disk = SimDisk::new();
        let mut first = reopened(&disk, &[mark(1), mark(2)]);
        first.announce(1).unwrap();
        first.cleared(1).unwrap();
        assert!(!first.is_another_running(2), "the next one may have its turn");
        drop(first);
        // It is delivered again because its verdict was lost, and the process dies while another message runs.
        let mut second = reopened(&disk, &[mark(1), mark(3)]);
        assert_eq!([1, 2, 3].map(|seq| crashes(&mut second, seq)), [None, Some(1), Some(1)]);
        assert_eq!(second.numbers().collect::<Vec<_>>(), [2, 3]);
        drop(second);
        let last_run = LastRun { running: Vec::new(), returned: vec![mark(2)] };
        let mut third = reopened_after(&disk, LastEnd::Unknown, &last_run);
        assert_eq!([1, 2, 3].map(|seq| crashes(&mut third, seq)), [None, None, Some(1)]);
        for seq in [1, 2, 3] {
            third.settled(seq).unwrap();
        }
        assert!(reopened(&disk, &[]).is_empty());
    }

    #[test]
    fn an_end_from_outside_adds_no_crash_and_takes_none_away() {
        let disk = SimDisk::new();
        let mut first = reopened(&disk, &[mark(1)]);
        first.announce(1).unwrap();
        drop(first);
        let mut second = reopened_after(&disk, LastEnd::FromOutside, &LastRun::default());
        assert_eq!(crashes(&mut second, 1), Some(1));
        second.announce(1).unwrap();
        drop(second);
        assert_eq!(crashes(&mut reopened(&disk, &[]), 1), Some(2));
    }

    #[test]
    fn a_record_that_was_cut_short_is_none() {
        let disk = SimDisk::new();
        let suspected = reopened(&disk, &[mark(1)]);
        suspected.file.write_at(suspected.len, &[7; 20]).unwrap();
        drop(suspected);
        let mut again = reopened(&disk, &[mark(3)]);
        assert_eq!((crashes(&mut again, 1), crashes(&mut again, 3)), (Some(1), Some(1)));
        drop(again);
        assert_eq!(crashes(&mut reopened(&disk, &[]), 3), Some(1));
    }
}
