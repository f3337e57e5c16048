//! Attempts of handlers in a file that survives their process: 16 bytes each, written immediately.
//!
//! One system call per record, so that a kill leaves no attempt half written.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const RECORD_BYTES: usize = 16;
const NUMBER_BITS: u32 = 48;

/// One attempt as its handler saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    pub order: u64,
    /// The attempt number that the engine reported, counted from 1.
    pub attempt: u8,
    pub succeeded: bool,
    pub at_us: u64,
}

/// Appends attempts; shared by all handlers of a process.
#[derive(Debug)]
pub struct Trace(File);

impl Trace {
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self(File::options().create(true).append(true).open(path)?))
    }

    pub fn record(&self, order: u64, attempt: u8, succeeded: bool) -> io::Result<()> {
        (&self.0).write_all(&encode(Tried { order, attempt, succeeded, at_us: wall_us() }))
    }
}

/// All attempts in a file, oldest first. A missing file has none.
pub fn read(path: &Path) -> io::Result<Vec<Tried>> {
    let mut all = Vec::new();
    visit(path, |tried| all.push(tried))?;
    Ok(all)
}

/// Calls `seen` for each attempt in a file, without holding the file in memory.
pub fn visit(path: &Path, mut seen: impl FnMut(Tried)) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut record = [0; RECORD_BYTES];
    loop {
        match reader.read_exact(&mut record) {
            Ok(()) => seen(decode(record)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// The number of attempts in a file, without reading it.
pub fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len() / RECORD_BYTES as u64)
}

/// The wall clock in microseconds since the epoch.
pub fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn encode(tried: Tried) -> [u8; RECORD_BYTES] {
    let order = tried.order & ((1 << NUMBER_BITS) - 1);
    let word = order | u64::from(tried.attempt) << NUMBER_BITS | u64::from(tried.succeeded) << 56;
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&word.to_le_bytes());
    record[8..].copy_from_slice(&tried.at_us.to_le_bytes());
    record
}

fn decode(record: [u8; RECORD_BYTES]) -> Tried {
    let half = |from: usize| u64::from_le_bytes(std::array::from_fn(|at| record[from + at]));
    let (word, at_us) = (half(0), half(8));
    Tried {
        order: word & ((1 << NUMBER_BITS) - 1),
        attempt: (word >> NUMBER_BITS) as u8,
        succeeded: word >> 56 == 1,
        at_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_read_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        assert_eq!((read(&path).unwrap(), len(&path)), (vec![], 0));
        let trace = Trace::append(&path).unwrap();
        for (order, attempt, succeeded) in [(0, 1, false), (0, 2, true), ((1 << 48) - 1, 255, true)] {
            trace.record(order, attempt, succeeded).unwrap();
        }
        let seen: Vec<_> =
            read(&path).unwrap().iter().map(|tried| (tried.order, tried.attempt, tried.succeeded)).collect();
        assert_eq!(seen, [(0, 1, false), (0, 2, true), ((1 << 48) - 1, 255, true)]);
        assert_eq!(len(&path), 3);
    }
}
