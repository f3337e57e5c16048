//! The few file operations that the log needs, as traits, so that tests can use a simulated disk.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::owner_only;

/// A flat directory of files.
///
/// Names are durable only after [`Disk::sync_dir`], contents only after [`DiskFile::sync_data`].
pub trait Disk: Clone + Debug + Send + Sync + 'static {
    type File: DiskFile;

    fn list(&self) -> io::Result<Vec<String>>;
    /// Fails if the name exists.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    fn open(&self, name: &str) -> io::Result<Self::File>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn sync_dir(&self) -> io::Result<()>;
    fn free_bytes(&self) -> io::Result<u64>;
}

/// What other programs may have done to an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCondition {
    pub len: u64,
    pub has_name: bool,
}

/// A file that is read and written at explicit offsets, from any thread.
pub trait DiskFile: Debug + Send + Sync + 'static {
    /// Writes all of `data` or fails; after a failure any part of it may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Reads up to `into.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Reads up to `len` bytes into new memory; fewer only at the end of the file.
    fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.read_at(offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
    fn len(&self) -> io::Result<u64>;
    /// Its length, and whether it still has a name.
    fn standing(&self) -> io::Result<FileCondition>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn sync_data(&self) -> io::Result<()>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Whether opening a file failed because too many files are open, in this process or on the machine. That is temporary,
/// says nothing about the disk, and nothing was changed.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    let errno = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    errno.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A directory of the operating system's file system.
#[derive(Debug, Clone)]
pub struct RealDisk {
    path: Arc<Path>,
    /// Held open, so that a directory sync needs no lookup and cannot hit another directory.
    dir: Arc<File>,
    traffic: Arc<Traffic>,
}

/// Counts of bytes written and syncs.
#[derive(Debug, Default)]
pub struct Traffic {
    bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Traffic {
    /// The number of bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The number of file syncs.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

/// A file of the operating system.
#[derive(Debug)]
pub struct RealFile {
    file: File,
    traffic: Arc<Traffic>,
}

impl RealDisk {
    /// Uses `path`, which is created if it does not exist.
    ///
    /// The parents of all directories created here are synced, otherwise a power failure could remove the whole
    /// store.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        make_dir(&path)?;
        let dir = Arc::new(File::open(&path)?);
        Ok(Self { path: path.into(), dir, traffic: Arc::default() })
    }

    /// Counts in `traffic`, which may be shared with other disks.
    #[must_use]
    pub fn counting(self, traffic: Arc<Traffic>) -> Self {
        Self { traffic, ..self }
    }

    fn opened(&self, options: &OpenOptions, name: &str) -> io::Result<RealFile> {
        let file = options.open(self.path.join(name))?;
        Ok(RealFile { file, traffic: Arc::clone(&self.traffic) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a directory and its missing parents: private to the user, and durable.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_dir(parent)?;
    match owner_only::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    File::open(parent)?.sync_all()
}

impl Disk for RealDisk {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // Names that are not UTF-8 are not ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<RealFile> {
        self.opened(owner_only::options().read(true).write(true).create_new(true), name)
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        self.opened(OpenOptions::new().read(true).write(true), name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&*self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl DiskFile for RealFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.traffic.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(data, offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Does not zero the memory first, which takes a fifth of the time of reading from the cache.
    fn read_vec(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The allocation may be larger than requested.
        bytes.truncate(len);
        Ok(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn standing(&self) -> io::Result<FileCondition> {
        let metadata = self.file.metadata()?;
        Ok(FileCondition { len: metadata.len(), has_name: metadata.nlink() > 0 })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.traffic.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_file_is_written_read_cut_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(dir.path().join("a/b")).unwrap();
        let file = disk.create("x").unwrap();
        assert!(disk.create("x").is_err(), "create must not take over a file that exists");

        DiskFile::write_at(&file, 3, b"abc").unwrap();
        DiskFile::sync_data(&file).unwrap();
        disk.sync_dir().unwrap();
        let mut got = [9; 8];
        assert_eq!(DiskFile::read_at(&file, 0, &mut got).unwrap(), 6);
        assert_eq!(&got, b"\0\0\0abc\x09\x09");
        assert_eq!(file.read_vec(2, 3).unwrap(), b"\0ab");
        assert_eq!(file.read_vec(4, 99).unwrap(), b"bc");
        assert!(file.read_vec(7, 5).unwrap().is_empty());

        DiskFile::set_len(&file, 4).unwrap();
        assert_eq!(disk.open("x").unwrap().len().unwrap(), 4);
        assert_eq!(disk.list().unwrap(), ["x"]);
        assert_eq!((disk.traffic.bytes(), disk.traffic.syncs()), (3, 1));
        assert!(disk.free_bytes().unwrap() > 0);
        disk.remove("x").unwrap();
        assert!(disk.list().unwrap().is_empty());
    }
}
