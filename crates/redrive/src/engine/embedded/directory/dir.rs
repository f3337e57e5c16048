//! A directory with one owner and a format version, which holds one store per pipeline.

#![warn(missing_docs)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::Time;

pub use super::format::FORMAT;
use super::format::{format, write_durably};
use super::lock::DirLock;
use super::manifest::{Holding, MADE_FILE, Manifest};
use super::unusable::{HOW_TO_GO_ON, failed};
use crate::engine::embedded::disk::real::{Disk as _, RealDisk, Traffic};
use crate::engine::embedded::index::runs::SortedRuns;
use crate::engine::embedded::index::tables::IndexError;
use crate::engine::embedded::maintenance::maintainer::HoldingReporter;
use crate::engine::embedded::store::Store;
use crate::engine::embedded::store::location::{OpenIndex, StoreLocation, seed};
use crate::engine::embedded::store::open::{self, StoreReport};
use crate::engine::embedded::tuning::Tuning;
use crate::engine::seam::{EngineError, Query as _, StoreOptions};
use crate::name;

/// From this format on, every directory has a manifest of its pipelines.
const MANIFEST_SINCE: u32 = 2;

/// The durable engine of one machine: a directory that holds a store per pipeline. The durable engine for a single
/// machine: a directory with one store per pipeline. Dropping it, and every store opened from it, gives the directory
/// free for the next owner. The directory is released for the next owner once it and every store opened from it are
/// dropped.
/// ```no_run
/// use redrive::{Embedded, Message, Pipeline, Redrive};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Pipeline::new("orders").handler(async |_: &Message| Ok(()));
/// let redrive = Redrive::builder().engine(Embedded::open("/var/lib/shop")?).pipeline(orders).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Embedded {
    dir: Arc<Owned>,
    tuning: Tuning,
    reports: Arc<Mutex<HashMap<String, StoreReport>>>,
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
pub(crate) struct Owned {
    path: PathBuf,
    pub(crate) id: [u8; 16],
    manifest: Mutex<Manifest>,
    /// What was wrong with the directory itself, for the report of each store.
    note: Option<String>,
    /// The open stores: a journal has a single writer, even within a process.
    open: Mutex<HashSet<String>>,
    _lock: DirLock,
}

impl Owned {
    pub(crate) fn open(path: &Path) -> Result<Self, EngineError> {
        // RealDisk also syncs a directory that it creates.
        RealDisk::new(path).map_err(|error| failed("making", path, &error))?;
        let lock = DirLock::take(path)?;
        let (was, id) = format(path)?;
        let (manifest, note) = Manifest::open(path, was < MANIFEST_SINCE)?;
        let manifest = Mutex::new(manifest);
        Ok(Self { path: path.to_owned(), id, manifest, note, open: Mutex::default(), _lock: lock })
    }

    pub(crate) fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves a store's name until it is dropped.
#[derive(Debug)]
struct DirTaken {
    dir: Arc<Owned>,
    pipeline: String,
}

impl Drop for DirTaken {
    fn drop(&mut self) {
        self.dir.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pipeline);
    }
}

/// The store of a pipeline on a real disk.
pub type EmbeddedStore = Store<RealDisk, SortedRuns<RealDisk>>;

impl Embedded {
    /// Opens or creates a directory and becomes its only owner.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, EngineError> {
        Self::open_with(path, Tuning::default())
    }

    /// Opens or creates a directory, with other sizes and times than the defaults.
    pub fn open_with(path: impl Into<PathBuf>, tuning: Tuning) -> Result<Self, EngineError> {
        let dir = Arc::new(Owned::open(&path.into())?);
        Ok(Self { dir, tuning, reports: Arc::default(), traffic: Arc::default() })
    }

    /// Opens the store of a pipeline.
    pub fn store(&self, pipeline: &str, options: StoreOptions) -> Result<EmbeddedStore, EngineError> {
        check_name(pipeline)?;
        let taken = self.take(pipeline)?;
        let path = self.dir.path.join(pipeline);
        if !self.tuning.accept_missing {
            self.dir.manifest().check(pipeline)?;
        }
        let disk = RealDisk::new(path.join("journal")).map_err(|error| failed("making", &path, &error))?;
        let disk = disk.counting(Arc::clone(&self.traffic));
        let made = path.join(MADE_FILE);
        let is_new = !made.exists();
        let was_there = !is_new || self.dir.manifest().holding(pipeline).is_some();
        if was_there && !self.tuning.accept_missing {
            journal_is_there(&disk, &path)?;
        }
        let owner = RandomState::new().hash_one(std::process::id());
        let location = StoreLocation { disk, store_id: self.dir.id, options, tuning: self.tuning, owner };
        let index = path.join("index");
        let (hash_seed, tuning) = (seed(&self.dir.id), self.tuning);
        let open_index: OpenIndex<_> = Arc::new(move |anew| open_index(&index, hash_seed, &tuning, anew));
        let (mut store, mut report) =
            open::open(&location, &open_index).map_err(|error| in_store(&path, error))?;
        if is_new {
            write_durably(&path, &made, b"").map_err(|error| failed("writing", &made, &error))?;
        }
        self.dir.manifest().set(pipeline, Holding::of(&store.counts(), Time::ZERO))?;
        report.notes.extend(self.dir.note.clone());
        let (dir, name) = (Arc::clone(&self.dir), pipeline.to_owned());
        // The manifest is for troubleshooting, so a count that is a minute old is good enough.
        store.report_holdings(HoldingReporter::new(move |holding| drop(dir.manifest().set(&name, holding))));
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).insert(pipeline.to_owned(), report);
        store.keep_until_the_end(Box::new(taken));
        Ok(store)
    }

    fn take(&self, pipeline: &str) -> Result<DirTaken, EngineError> {
        let mut open = self.dir.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.insert(pipeline.to_owned()) {
            let path = self.dir.path.display();
            return Err(EngineError::Owned(format!(
                "the store `{pipeline}` in {path} is open in this process already"
            )));
        }
        Ok(DirTaken { dir: Arc::clone(&self.dir), pipeline: pipeline.to_owned() })
    }

    /// The report from the last time the store of a pipeline was opened.
    pub fn report(&self, pipeline: &str) -> Option<StoreReport> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).get(pipeline).cloned()
    }

    /// What the journals of all stores opened from here have written and synced.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir.path
    }
}

/// Adds to the error which store it comes from.
fn in_store(path: &Path, error: EngineError) -> EngineError {
    match error {
        EngineError::Damaged(text) => EngineError::Damaged(format!("{}: {text}", path.display())),
        other => other,
    }
}

/// Checks that the journal exists: a store has at least one segment from its creation on, however little it holds.
fn journal_is_there(disk: &RealDisk, path: &Path) -> Result<(), EngineError> {
    let names = disk.list().map_err(|error| failed("reading", path, &error))?;
    if names.iter().any(|name| name.starts_with("j-")) {
        return Ok(());
    }
    Err(EngineError::Damaged(format!(
        "{}: the journal has no segment left, so every message is lost; {HOW_TO_GO_ON}",
        path.display()
    )))
}

/// Opens the tables, or creates empty ones.
pub(crate) fn open_index(
    path: &Path,
    seed: u64,
    tuning: &Tuning,
    anew: bool,
) -> Result<Arc<SortedRuns<RealDisk>>, IndexError> {
    let making = |error| IndexError::Damaged(format!("making {}: {error}", path.display()));
    if !anew {
        let disk = RealDisk::new(path).map_err(making)?;
        return SortedRuns::open(disk, seed, tuning.checkpoint_changes).map(Arc::new);
    }
    remove_strangers(path)
        .map_err(|error| IndexError::Damaged(format!("removing {}: {error}", path.display())))?;
    let disk = RealDisk::new(path).map_err(making)?;
    SortedRuns::anew(disk, seed, tuning.checkpoint_changes).map(Arc::new)
}

/// Removes everything from the index directory that is not a file of the index. Directories are from an older
/// version.
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

/// Checks a pipeline's name, which becomes the name of a directory.
fn check_name(name: &str) -> Result<(), EngineError> {
    name::check(name).map_err(|fault| EngineError::Directory {
        problem: format!("no store can be named {name:?}: {}", fault.problem()),
        fix: name::RULE,
    })
}
