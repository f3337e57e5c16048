//! One owner per directory. The directory itself is locked: a file in it can be removed and created again, and a second
//! process would lock the new one.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::unusable::failed;
use crate::engine::seam::EngineError;
use crate::owner_only;

/// Names the owner. It is locked too, for older versions and for file systems that cannot lock directories.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// How long to wait for the lock. A child process keeps its parent's files open until it executes another program, so
/// the directory may stay locked for a moment after it was closed.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_AGAIN: Duration = Duration::from_millis(10);

/// The lock; held as long as the directory is in use.
#[derive(Debug)]
pub(crate) struct DirLock {
    _dir: File,
    _file: File,
}

impl DirLock {
    pub(crate) fn take(path: &Path) -> Result<Self, EngineError> {
        let dir = File::open(path).map_err(|error| failed("opening", path, &error))?;
        match wait_for(&dir) {
            // Not every network file system can lock directories; then the lock on the file has to do.
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return Err(owned(path)),
        }
        let name = path.join(LOCK_FILE);
        let file = owner_only::options().create(true).truncate(false).write(true).open(&name);
        let mut file = file.map_err(|error| failed("opening", &name, &error))?;
        match wait_for(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(owned(path)),
            Err(TryLockError::Error(error)) => return Err(failed("locking", &name, &error)),
        }
        // For information only; the lock is what counts.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _dir: dir, _file: file })
    }
}

fn owned(path: &Path) -> EngineError {
    let owner = fs::read_to_string(path.join(LOCK_FILE)).unwrap_or_default();
    let owner = if owner.trim().is_empty() { "not known, its LOCK file is gone" } else { owner.trim() };
    EngineError::Owned(format!("{} (process {owner})", path.display()))
}

fn wait_for(file: &File) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_AGAIN);
            }
            tried => return tried,
        }
    }
}
