//! A local file of the records that were handed out and not finished. It survives the process.
//!
//! Kafka knows only what may have been handed out, which is more. If the file of the last owner still exists, its
//! suspects are exact; without it, or on another machine, the notes alone decide. A file belongs to one run of a
//! process, and a note names the run that wrote it. The file is never synced: no message causes a power failure.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// At this size the file is rewritten with only what is in flight.
const FILE_BYTES_MAX: usize = 4 << 20;
const RUN_BYTES: usize = 8;
const MARK_BYTES: usize = 16;
/// Flag in an offset, which is never that large: the message has ended.
const ENDED: u64 = 1 << 63;
/// Flag: the suspect that runs. Together with [`ENDED`]: none does.
const ALONE: u64 = 1 << 62;

/// Returns the name of a partition in the file.
pub fn place(topic: &str, partition: i32) -> u64 {
    xxh3_64_with_seed(topic.as_bytes(), u64::from(partition.cast_unsigned()))
}

#[derive(Debug)]
pub struct StartedFile {
    path: PathBuf,
    run: u64,
    file: Option<File>,
    len: usize,
    /// Marks that have not been written yet.
    buf: Vec<u8>,
    /// The suspect that runs, as place and offset.
    alone: Option<(u64, u64)>,
    left: Option<EarlierRun>,
    /// Whether there is no reliable file, because nothing is ever suspected or because it cannot be written.
    is_off: bool,
}

/// What the previous run had in flight, by place.
#[derive(Debug)]
struct EarlierRun {
    run: u64,
    marks: HashMap<u64, BTreeSet<u64>>,
    alone: Option<(u64, u64)>,
}

impl StartedFile {
    /// Reads what the last run left. Nothing is written until something is handed out.
    pub fn open(dir: &Path, pipeline: &str) -> Self {
        let path = dir.join(format!("{pipeline}.started"));
        let left = std::fs::read(&path).ok().and_then(|raw| read(&raw));
        Self { path, run: new_run(), file: None, len: 0, buf: Vec::new(), alone: None, left, is_off: false }
    }

    /// For messages that cannot kill the process: what is in flight is not recorded.
    pub fn off(dir: &Path, pipeline: &str) -> Self {
        Self { is_off: true, left: None, ..Self::open(dir, pipeline) }
    }

    /// Returns the id of this run for notes; `None` if its file cannot be relied on.
    pub fn run(&self) -> Option<u64> {
        (!self.is_off).then_some(self.run)
    }

    /// Returns the id of this run, whether or not its file can be relied on.
    pub fn id(&self) -> u64 {
        self.run
    }

    /// Returns what `run` had in flight in a partition, and which suspect was running, if this is the file of that run.
    pub fn left_by(&self, run: u64, place: u64) -> Option<(BTreeSet<u64>, Option<u64>)> {
        let left = self.left.as_ref().filter(|left| left.run == run)?;
        let alone = left.alone.filter(|(at, _)| *at == place).map(|(_, offset)| offset);
        Some((left.marks.get(&place).cloned().unwrap_or_default(), alone))
    }

    /// Notes that this suspect runs alone.
    pub fn runs_alone(&mut self, place: u64, offset: u64) {
        self.alone = Some((place, offset));
        self.started(place, offset | ALONE);
    }

    /// Notes that a suspect came back unstarted, or that its run was given up: it stays a suspect, and none runs.
    pub fn did_not_run(&mut self, place: u64, offset: u64) {
        if self.alone.take_if(|alone| *alone == (place, offset)).is_some() {
            self.started(place, offset | ALONE | ENDED);
        }
    }

    pub fn started(&mut self, place: u64, offset: u64) {
        self.buf.extend_from_slice(&place.to_le_bytes());
        self.buf.extend_from_slice(&offset.to_le_bytes());
    }

    pub fn ended(&mut self, place: u64, offset: u64) {
        self.started(place, offset | ENDED);
        if self.alone == Some((place, offset)) {
            self.alone = None;
            // Write at once: if the process dies from here on, this message was not the cause.
            self.flush();
        }
    }

    /// Whether the file has to be rewritten; then call [`Self::begin`] with everything in flight.
    pub fn is_full(&self) -> bool {
        self.file.is_none() || self.len + self.buf.len() > FILE_BYTES_MAX
    }

    /// Writes the buffered marks, if there is a file to append to.
    pub fn flush(&mut self) {
        if self.buf.is_empty() || self.is_off {
            self.buf.clear();
            return;
        }
        let Some(file) = &mut self.file else { return };
        match file.write_all(&self.buf) {
            Ok(()) => self.len += self.buf.len(),
            Err(error) => self.give_up(&error),
        }
        self.buf.clear();
    }

    /// Replaces the file with one that holds everything in flight.
    pub fn begin(&mut self, in_flight: impl Iterator<Item = (u64, u64)>) {
        self.buf.clear();
        if self.is_off {
            return;
        }
        let mut raw = self.run.to_le_bytes().to_vec();
        let alone = self.alone.map(|(place, offset)| (place, offset | ALONE));
        for (place, offset) in in_flight.chain(alone) {
            raw.extend_from_slice(&place.to_le_bytes());
            raw.extend_from_slice(&offset.to_le_bytes());
        }
        match replaced(&self.path, &raw) {
            Ok(file) => {
                self.len = raw.len();
                self.file = Some(file);
            }
            Err(error) => self.give_up(&error),
        }
    }

    fn give_up(&mut self, error: &std::io::Error) {
        let path = self.path.display();
        tracing::warn!(%path, %error, "cannot record in-flight messages; after a crash more of them will be suspects");
        self.is_off = true;
        self.file = None;
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Replaces the file atomically, so that a process that dies leaves either the old or the new one.
fn replaced(path: &Path, raw: &[u8]) -> std::io::Result<File> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let beside = path.with_extension("started.new");
    let mut file = File::create(&beside)?;
    file.write_all(raw)?;
    std::fs::rename(&beside, path)?;
    Ok(file)
}

fn read(raw: &[u8]) -> Option<EarlierRun> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let (run, raw) = raw.split_at_checked(RUN_BYTES)?;
    let mut marks: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    let mut alone = None;
    // A mark that was being written when the process died may be cut short; it is ignored.
    for mark in raw.chunks_exact(MARK_BYTES) {
        let (place, offset) = (number(&mark[..8]), number(&mark[8..]));
        let (which, ended) = (offset & !(ENDED | ALONE), offset & ENDED != 0);
        if offset & ALONE != 0 {
            alone = (!ended).then_some((place, which));
        } else if ended {
            marks.entry(place).or_default().remove(&which);
            alone = alone.filter(|running| *running != (place, which));
        } else {
            marks.entry(place).or_default().insert(which);
        }
    }
    Some(EarlierRun { run: number(run), marks, alone })
}

fn new_run() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_is_known_to_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = StartedFile::open(dir.path(), "orders");
        let run = first.run().unwrap();
        let (here, there) = (place("orders", 1), place("orders.retry.5s", 1));
        assert!(first.is_full());
        first.begin([(here, 3)].into_iter());
        first.started(here, 4);
        first.started(there, 9);
        first.flush();
        first.ended(here, 3);
        first.flush();
        first.started(here, 5);
        drop(first);
        let next = StartedFile::open(dir.path(), "orders");
        assert_eq!(next.left_by(run, here), Some((BTreeSet::from([4]), None)));
        assert_eq!(next.left_by(run, there), Some((BTreeSet::from([9]), None)));
        assert_eq!(next.left_by(run, place("orders", 2)), Some((BTreeSet::new(), None)));
        assert_eq!(next.left_by(run + 1, here), None, "the partition had another owner since");
    }

    #[test]
    fn of_the_suspects_it_is_known_which_one_ran() {
        let dir = tempfile::tempdir().unwrap();
        let here = place("orders", 1);
        let mut first = StartedFile::open(dir.path(), "orders");
        let run = first.run().unwrap();
        let left = |first: &mut StartedFile| {
            first.flush();
            StartedFile::open(dir.path(), "orders").left_by(run, here).unwrap()
        };
        first.begin([(here, 3), (here, 4)].into_iter());
        first.runs_alone(here, 3);
        assert_eq!(left(&mut first), (BTreeSet::from([3, 4]), Some(3)));
        first.begin([(here, 3), (here, 4)].into_iter());
        assert_eq!(left(&mut first).1, Some(3), "a file that begins anew knows it too");
        first.ended(here, 3);
        assert_eq!(left(&mut first), (BTreeSet::from([4]), None));
        first.runs_alone(here, 4);
        first.did_not_run(here, 5);
        assert_eq!(left(&mut first).1, Some(4), "another one came back");
        first.did_not_run(here, 4);
        assert_eq!(left(&mut first), (BTreeSet::from([4]), None), "it was given up in order");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_not_relied_on() {
        let mut started = StartedFile::open(Path::new("/proc/nowhere"), "orders");
        started.begin(std::iter::empty());
        assert_eq!(started.run(), None);
        started.started(1, 1);
        started.flush();
    }
}
