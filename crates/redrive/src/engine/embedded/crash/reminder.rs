//! Reminders from one process to the next, each in its own file. Never synced: they survive the process, but not a
//! power failure, and readers must be able to do without them.

use std::io;

use crate::engine::embedded::disk::real::{Disk, DiskFile};
use crate::engine::seam::ReminderKind;

#[derive(Debug)]
pub(crate) struct Reminders<F> {
    health: F,
    key_successes: F,
}

impl<F: DiskFile> Reminders<F> {
    pub(crate) fn open<D: Disk<File = F>>(disk: &D) -> io::Result<Self> {
        let names = disk.list()?;
        let open = |kind: ReminderKind| {
            let name = kind.file_name();
            if names.iter().any(|known| known == name) { disk.open(name) } else { disk.create(name) }
        };
        Ok(Self { health: open(ReminderKind::Health)?, key_successes: open(ReminderKind::KeySuccesses)? })
    }

    /// Replaces the file. If the process dies meanwhile, half of it is left, which the reader has to notice.
    pub(crate) fn keep(&self, kind: ReminderKind, content: &[u8]) -> io::Result<()> {
        let file = self.file(kind);
        file.set_len(0)?;
        file.write_at(0, content)
    }

    pub(crate) fn read(&self, kind: ReminderKind) -> io::Result<Vec<u8>> {
        let file = self.file(kind);
        file.read_vec(0, file.len()?.min(bytes_max(kind)) as usize)
    }

    fn file(&self, kind: ReminderKind) -> &F {
        match kind {
            ReminderKind::Health => &self.health,
            ReminderKind::KeySuccesses => &self.key_successes,
        }
    }
}

/// The maximum size of a reminder; the rest of a longer file is ignored.
fn bytes_max(kind: ReminderKind) -> u64 {
    match kind {
        // The pipeline's lines, and one line for each of a thousand endpoints.
        ReminderKind::Health => 256 * 1024,
        // 24 bytes for each of 100,000 keys.
        ReminderKind::KeySuccesses => 3 * 1024 * 1024,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;

    #[test]
    fn the_last_one_of_each_kind_is_found_by_the_next_process() {
        let (disk, health) = (SimDisk::new(), ReminderKind::Health);
        let first = Reminders::open(&disk).unwrap();
        assert_eq!(first.read(health).unwrap(), b"");
        first.keep(health, b"a long one").unwrap();
        first.keep(health, b"short").unwrap();
        first.keep(ReminderKind::KeySuccesses, b"another").unwrap();
        drop(first);
        let next = Reminders::open(&disk).unwrap();
        assert_eq!(next.read(health).unwrap(), b"short");
        next.keep(health, b"").unwrap();
        assert_eq!(next.read(health).unwrap(), b"");
        assert_eq!(next.read(ReminderKind::KeySuccesses).unwrap(), b"another");
    }
}
