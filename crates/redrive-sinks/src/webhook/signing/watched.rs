//! The content of a file, reread when the file changes: a secret is rotated without a restart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::secret::{Secret, SecretError};

/// How often the file is checked, at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);

type Parse<T> = fn(&str) -> Result<T, String>;

/// The parsed content of a file.
pub(crate) struct Watched<T> {
    path: PathBuf,
    parse: Parse<T>,
    state: Mutex<WatchState<T>>,
}

struct WatchState<T> {
    looked: Instant,
    stamp: Option<(SystemTime, u64)>,
    value: Arc<T>,
}

impl<T> Watched<T> {
    /// Reads the file for the first time, and reports its faults.
    pub(crate) fn open(
        path: &Path,
        bytes_max: u64,
        parse: Parse<T>,
        now: Instant,
    ) -> Result<Self, SecretError> {
        let stamp = stamp(path);
        let value = Arc::new(read(path, bytes_max, parse)?);
        Ok(Self { path: path.to_owned(), parse, state: Mutex::new(WatchState { looked: now, stamp, value }) })
    }

    /// The current content. If the file becomes unusable, the last good content stays in force, and the log says so.
    pub(crate) fn get(&self, bytes_max: u64, now: Instant) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= LOOK_EVERY {
            state.looked = now;
            let stamp = stamp(&self.path);
            if stamp != state.stamp {
                state.stamp = stamp;
                match read(&self.path, bytes_max, self.parse) {
                    Ok(value) => state.value = Arc::new(value),
                    Err(error) => tracing::warn!(
                        target: "redrive::sink",
                        "the changed file is not used, what it held before stays in force: {error}"
                    ),
                }
            }
        }
        Arc::clone(&state.value)
    }
}

fn read<T>(path: &Path, bytes_max: u64, parse: Parse<T>) -> Result<T, SecretError> {
    let secret = Secret::read_up_to(path, bytes_max)?;
    parse(secret.expose()).map_err(|problem| SecretError { path: path.to_owned(), problem })
}

/// A stamp that changes whenever the content does, as far as the file system can tell.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| "no number".to_owned())
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_spoiled_one_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        std::fs::write(&path, "1\n").unwrap();
        let start = Instant::now();
        let watched = Watched::open(&path, 100, number, start).unwrap();
        std::fs::write(&path, "22\n").unwrap();
        assert_eq!(*watched.get(100, start), 1, "not looked at again so soon");
        assert_eq!(*watched.get(100, start + LOOK_EVERY), 22);
        std::fs::write(&path, "spoiled").unwrap();
        assert_eq!(*watched.get(100, start + LOOK_EVERY * 2), 22);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(*watched.get(100, start + LOOK_EVERY * 3), 22);
        let error = Watched::open(&path, 100, number, start).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
