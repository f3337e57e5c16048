//! A read-only directory, for inspection while another process owns it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::real::{Disk, DiskFile, FileCondition};

#[derive(Debug, Clone)]
pub(crate) struct ReadOnlyDisk(pub(crate) PathBuf);

impl Disk for ReadOnlyDisk {
    type File = ReadOnly;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, _name: &str) -> io::Result<ReadOnly> {
        Err(ErrorKind::Unsupported.into())
    }

    fn open(&self, name: &str) -> io::Result<ReadOnly> {
        File::open(self.0.join(name)).map(ReadOnly)
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// A file that cannot be written through this handle.
#[derive(Debug)]
pub(crate) struct ReadOnly(pub(crate) File);

impl DiskFile for ReadOnly {
    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn standing(&self) -> io::Result<FileCondition> {
        Ok(FileCondition { len: self.len()?, has_name: true })
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}
