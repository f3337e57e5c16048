//! A reminder from one process to the next, in a file of its own beside the marks of what was started. Never synced: it
//! survives the process, but not a power cut, and whoever reads it must be able to do without.

use std::io;

use crate::engine::embedded::disk::real::{Disk, DiskFile};

const NAME: &str = "reminder";
/// Longer ones are no reminders: the pipeline's lines, and one for each of a thousand endpoints.
const BYTES_MAX: u64 = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Reminder<F> {
    file: F,
}

impl<F: DiskFile> Reminder<F> {
    pub(crate) fn open<D: Disk<File = F>>(disk: &D) -> io::Result<Self> {
        let is_there = disk.list()?.iter().any(|name| name == NAME);
        Ok(Self { file: if is_there { disk.open(NAME)? } else { disk.create(NAME)? } })
    }

    /// A process that dies in between leaves half of it, which its reader has to notice.
    pub(crate) fn keep(&self, text: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_at(0, text)
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        self.file.read_vec(0, self.file.len()?.min(BYTES_MAX) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;

    #[test]
    fn the_last_one_is_found_by_the_next_process() {
        let disk = SimDisk::new();
        let first = Reminder::open(&disk).unwrap();
        assert_eq!(first.read().unwrap(), b"");
        first.keep(b"a long one").unwrap();
        first.keep(b"short").unwrap();
        drop(first);
        let next = Reminder::open(&disk).unwrap();
        assert_eq!(next.read().unwrap(), b"short");
        next.keep(b"").unwrap();
        assert_eq!(next.read().unwrap(), b"");
    }
}
