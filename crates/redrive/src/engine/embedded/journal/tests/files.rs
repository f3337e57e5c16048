//! How the log behaves if no file can be opened because too many are open: it waits, and reports no damage.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{body, open, tags, write};
use crate::engine::embedded::disk::real::{Disk, RealDisk};

/// A real directory in which only a limited number of files can be opened.
#[derive(Clone, Debug)]
struct Starved {
    disk: RealDisk,
    left: Arc<AtomicU64>,
}

impl Starved {
    fn new(dir: &tempfile::TempDir) -> Self {
        Self { disk: RealDisk::new(dir.path()).unwrap(), left: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    fn leave(&self, files: u64) {
        self.left.store(files, Ordering::SeqCst);
    }

    fn take(&self) -> io::Result<()> {
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        taken.map(drop).map_err(|_| io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()))
    }
}

impl Disk for Starved {
    type File = <RealDisk as Disk>::File;

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        self.take()?;
        self.disk.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        self.take()?;
        self.disk.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

#[test]
fn a_log_that_finds_no_file_for_its_next_segment_goes_on_in_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Starved::new(&dir);
    let (mut log, _) = open(&disk, 2_000);
    let mut tag = 0;
    let mut write_some = |log: &mut super::Log<Starved>, count: u64| {
        for _ in 0..count {
            write(log, tag..tag + 10).unwrap();
            log.sync().unwrap();
            tag += 10;
        }
        tag
    };
    write_some(&mut log, 20);
    let before = log.segments().len();
    assert!(before > 2);
    disk.leave(0);
    write_some(&mut log, 50);
    assert_eq!(log.segments().len(), before, "there was no file for another one");
    disk.leave(u64::MAX);
    let written = write_some(&mut log, 20);
    assert!(log.segments().len() > before + 2, "now there are");
    assert_eq!(tags(&log), (0..written).collect::<Vec<_>>());
    log.close().unwrap();
    drop(disk);
    let (log, report) = open(&Starved::new(&dir), 2_000);
    assert_eq!(tags(&log), (0..written).collect::<Vec<_>>());
    assert!(report.rot.is_empty(), "{report:?}");
}

#[test]
fn a_reader_gives_up_a_file_it_holds_for_one_that_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Starved::new(&dir);
    let (mut log, _) = open(&disk, 500);
    let mut places = Vec::new();
    for tag in 0..30 {
        let start = log.batch().unwrap().end();
        write(&mut log, tag..tag + 1).unwrap();
        log.sync().unwrap();
        places.push((tag, start));
    }
    let reader = log.reader();
    let read = |(tag, position): (u64, u64)| assert_eq!(reader.read_frame(position).unwrap().body, body(tag));
    places.iter().copied().for_each(read);
    // No descriptor is left; other programs free some later, as on a busy machine.
    disk.leave(0);
    let giving = disk.clone();
    let giver = std::thread::spawn(move || {
        for _ in 0..60 {
            giving.left.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        giving.leave(u64::MAX);
    });
    places.iter().rev().copied().for_each(read);
    giver.join().unwrap();
}
