//! A directory with one owner and a format version; in it one store per pipeline.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::disk::{Disk as _, RealDisk, Traffic};
use super::open::{self, Place, StoreReport};
use super::runs::SortedRuns;
use super::shelf::ShelfError;
use super::store::Store;
use super::tuning::Tuning;
use super::unusable::failed;
use crate::engine::seam::{EngineError, StoreOptions};
use crate::{name, private};

/// What this program writes. A directory with a higher number is refused.
pub const FORMAT: u32 = 2;
const FORMAT_FILE: &str = "FORMAT";
/// Says that the store of a pipeline was made, beside its journal: without it a lost journal would look like a new one.
const MADE_FILE: &str = "made";
pub(super) const LOCK_FILE: &str = "LOCK";

/// The durable engine of one machine: a directory that holds a store per pipeline.
///
/// Dropping it, and every store opened from it, gives the directory free for the next owner.
#[derive(Debug, Clone)]
pub struct Embedded {
    dir: Arc<Owned>,
    tuning: Tuning,
    reports: Arc<Mutex<HashMap<String, StoreReport>>>,
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
struct Owned {
    path: PathBuf,
    id: [u8; 16],
    /// The stores that are open: a journal has one writer, also within a process.
    open: Mutex<HashSet<String>>,
    /// Held for as long as anybody uses the directory.
    _lock: File,
}

/// A store's name is taken for as long as this lives.
#[derive(Debug)]
struct Taken {
    dir: Arc<Owned>,
    pipeline: String,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.dir.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pipeline);
    }
}

/// The store of a pipeline on a real disk.
pub type EmbeddedStore = Store<RealDisk, SortedRuns<RealDisk>>;

impl Embedded {
    /// Opens or makes a directory and becomes its only owner.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, EngineError> {
        Self::open_with(path, Tuning::default())
    }

    pub fn open_with(path: impl Into<PathBuf>, tuning: Tuning) -> Result<Self, EngineError> {
        let path = path.into();
        // RealDisk makes the directory durable, not only present.
        RealDisk::new(&path).map_err(|error| failed("making", &path, &error))?;
        let lock = lock(&path)?;
        let id = format(&path)?;
        let dir = Arc::new(Owned { path, id, open: Mutex::default(), _lock: lock });
        Ok(Self { dir, tuning, reports: Arc::default(), traffic: Arc::default() })
    }

    /// Opens the store of a pipeline.
    pub fn store(&self, pipeline: &str, options: StoreOptions) -> Result<EmbeddedStore, EngineError> {
        check_name(pipeline)?;
        let taken = self.take(pipeline)?;
        let path = self.dir.path.join(pipeline);
        let disk = RealDisk::new(path.join("journal")).map_err(|error| failed("making", &path, &error))?;
        let disk = disk.counting(Arc::clone(&self.traffic));
        let made = path.join(MADE_FILE);
        let is_new = !made.exists();
        if !is_new && !self.tuning.accept_missing {
            journal_is_there(&disk, &path)?;
        }
        let owner = RandomState::new().hash_one(std::process::id());
        let place = Place { disk, store_id: self.dir.id, options, tuning: self.tuning, owner };
        let index = path.join("index");
        let (mut store, report) =
            open::open(&place, &|anew| open_index(&index, open::seed(&self.dir.id), &self.tuning, anew))?;
        if is_new {
            write_durably(&path, &made, b"").map_err(|error| failed("writing", &made, &error))?;
        }
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).insert(pipeline.to_owned(), report);
        store.keep_until_the_end(Box::new(taken));
        Ok(store)
    }

    fn take(&self, pipeline: &str) -> Result<Taken, EngineError> {
        let mut open = self.dir.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.insert(pipeline.to_owned()) {
            let path = self.dir.path.display();
            return Err(EngineError::Owned(format!(
                "the store `{pipeline}` in {path} is open in this process already"
            )));
        }
        Ok(Taken { dir: Arc::clone(&self.dir), pipeline: pipeline.to_owned() })
    }

    /// What was found when the store of a pipeline was opened last.
    pub fn report(&self, pipeline: &str) -> Option<StoreReport> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).get(pipeline).cloned()
    }

    /// What the journals of all stores opened from here have written and synced.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub fn path(&self) -> &Path {
        &self.dir.path
    }
}

/// A store that was made once has at least one segment, however little it holds.
fn journal_is_there(disk: &RealDisk, path: &Path) -> Result<(), EngineError> {
    let names = disk.list().map_err(|error| failed("reading", path, &error))?;
    if names.iter().any(|name| name.starts_with("j-")) {
        return Ok(());
    }
    Err(EngineError::Damaged(format!(
        "{}: the journal has no segment left, and with it went every message; restore it from a backup, or move this \
         directory away to begin anew",
        path.display()
    )))
}

/// Opens the tables, or makes empty ones.
fn open_index(
    path: &Path,
    seed: u64,
    tuning: &Tuning,
    anew: bool,
) -> Result<Arc<SortedRuns<RealDisk>>, ShelfError> {
    let making = |error| ShelfError(format!("making {}: {error}", path.display()));
    if !anew {
        let disk = RealDisk::new(path).map_err(making)?;
        return SortedRuns::open(disk, seed, tuning.checkpoint_changes).map(Arc::new);
    }
    remove_strangers(path).map_err(|error| ShelfError(format!("removing {}: {error}", path.display())))?;
    let disk = RealDisk::new(path).map_err(making)?;
    SortedRuns::anew(disk, seed, tuning.checkpoint_changes).map(Arc::new)
}

/// Directories in the index are those of an older version.
fn remove_strangers(path: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let is_ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with("r-") || name.starts_with("catalog-"));
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if !is_ours {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A pipeline's name is the name of a directory in ours.
fn check_name(name: &str) -> Result<(), EngineError> {
    name::check(name).map_err(|fault| EngineError::Directory {
        problem: format!("no store can be named {name:?}: {}", fault.problem()),
        fix: name::RULE,
    })
}

/// A child that is being started has all that its parent has open, until it becomes another program. So a directory that
/// was closed may be locked for a moment longer.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_AGAIN: Duration = Duration::from_millis(10);

fn lock(path: &Path) -> Result<File, EngineError> {
    let name = path.join(LOCK_FILE);
    let file = private::options().create(true).truncate(false).write(true).open(&name);
    let mut file = file.map_err(|error| failed("opening", &name, &error))?;
    let began = Instant::now();
    let locked = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_AGAIN);
            }
            tried => break tried,
        }
    };
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let owner = fs::read_to_string(&name).unwrap_or_default();
            let path = path.display();
            return Err(EngineError::Owned(format!("{path} (process {})", owner.trim())));
        }
        Err(TryLockError::Error(error)) => return Err(failed("locking", &name, &error)),
    }
    // For people who look; the lock itself is what counts.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Reads the format file, or writes it for a new directory. Returns the directory's id.
fn format(path: &Path) -> Result<[u8; 16], EngineError> {
    let name = path.join(FORMAT_FILE);
    match fs::read_to_string(&name) {
        Ok(text) => {
            let (found, id) = read_format(&text, &name)?;
            if found < FORMAT {
                // An older program would not keep the watermark; it must refuse from now on.
                write_format(path, &name, id)?;
            }
            Ok(id)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let id = new_id();
            write_format(path, &name, id)?;
            Ok(id)
        }
        Err(error) => Err(failed("reading", &name, &error)),
    }
}

fn write_format(path: &Path, name: &Path, id: [u8; 16]) -> Result<(), EngineError> {
    let text = format!("redrive store\nformat {FORMAT}\nid {:032x}\n", u128::from_be_bytes(id));
    write_durably(path, name, text.as_bytes()).map_err(|error| failed("writing", name, &error))
}

/// The format and the id of a directory that is there already; nothing is made or written.
pub(super) fn format_of(path: &Path) -> Result<(u32, [u8; 16]), EngineError> {
    let name = path.join(FORMAT_FILE);
    let text = match fs::read_to_string(&name) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let what = "there is no store here: the file FORMAT is missing";
            return Err(EngineError::Damaged(format!("{}: {what}", path.display())));
        }
        Err(error) => return Err(failed("reading", &name, &error)),
    };
    read_format(&text, &name)
}

fn read_format(text: &str, name: &Path) -> Result<(u32, [u8; 16]), EngineError> {
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let damaged = |what: &str| {
        EngineError::Damaged(format!(
            "{}: {what}; restore the file from a backup of the directory",
            name.display()
        ))
    };
    let found: u32 =
        field("format ").and_then(|n| n.parse().ok()).ok_or_else(|| damaged("no format number"))?;
    if found > FORMAT {
        return Err(EngineError::Version(format!(
            "{} has format {found}, this program reads up to {FORMAT}; use the newer program",
            name.display()
        )));
    }
    let id = field("id ").filter(|hex| hex.len() == 32).and_then(|hex| u128::from_str_radix(hex, 16).ok());
    let id = id.map(u128::to_be_bytes);
    id.map(|id| (found, id)).ok_or_else(|| damaged("no store id of 32 hexadecimal digits"))
}

/// Complete or not there at all, also after a power cut.
fn write_durably(dir: &Path, name: &Path, content: &[u8]) -> std::io::Result<()> {
    let unfinished = name.with_extension("new");
    let mut file = private::create_file(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, name)?;
    File::open(dir)?.sync_all()
}

fn new_id() -> [u8; 16] {
    // RandomState is seeded by the operating system; that is all an id needs.
    let half = || RandomState::new().hash_one(std::process::id()).to_le_bytes();
    let (a, b) = (half(), half());
    std::array::from_fn(|index| if index < 8 { a[index] } else { b[index - 8] })
}
