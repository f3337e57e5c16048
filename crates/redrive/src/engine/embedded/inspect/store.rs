//! Reads a store without opening it: nothing is locked, truncated, repaired or written. For troubleshooting.
//!
//! The rules for damage are those of `journal/tail.rs`. The owner may be running: files only grow or disappear, and an
//! unfinished end is reported as such.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::letters::Letters;
use super::log::LogWalk;
use super::report::failed;
pub use super::report::{Damage, Entry, Inspection, LogInspection, SegmentInspection, kind_name};
use crate::engine::embedded::directory::format::format_of;
use crate::engine::embedded::disk::read_only::ReadOnlyDisk;
use crate::engine::embedded::index::runs;
use crate::engine::embedded::journal::log::LogOptions;
use crate::engine::embedded::journal::recover::newest_version;
use crate::engine::embedded::journal::segment::WATERMARK_SINCE;
use crate::engine::embedded::journal::watermark::{Found, Watermark, WatermarkState};
use crate::engine::seam::EngineError;

/// How often the index of a running owner is read again before it is reported as damaged.
const INDEX_TRIES: usize = 3;

/// The pipelines that have a store in a directory of the embedded engine.
pub fn pipelines(path: &Path) -> Result<Vec<String>, EngineError> {
    format_of(path)?;
    let listed = fs::read_dir(path).map_err(|error| failed("listing", path, &error))?;
    let mut names = Vec::new();
    for entry in listed {
        let entry = entry.map_err(|error| failed("listing", path, &error))?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.path().join("journal").is_dir()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the whole store of a pipeline; `each` is called for every frame.
pub fn inspect(path: &Path, pipeline: &str, each: &mut dyn FnMut(Entry)) -> Result<Inspection, EngineError> {
    let (format, store_id) = format_of(path)?;
    let store = path.join(pipeline);
    let journal = store.join("journal");
    if !journal.is_dir() {
        return Err(EngineError::Damaged(format!("{}: there is no store `{pipeline}`", path.display())));
    }
    // Read before the logs, because they only grow.
    let (published, watermark) = watermark(&journal, store_id)?;
    let mut letters = Letters::default();
    let mut read = |prefix, log, known| {
        let (letters, each) = (&mut letters, &mut *each);
        LogWalk { dir: &journal, prefix, log, store_id, known, letters, each }.read()
    };
    // The letter log comes first: the journal has the later states of its letters.
    let letter_log = read("l", "letters", published.letters)?;
    let journal = read("j", "journal", published.journal)?;
    let store_id = format!("{:032x}", u128::from_be_bytes(store_id));
    let (owner, pending, letters) = (owner(path), letters.pending(), letters.counts());
    Ok(Inspection {
        pipeline: pipeline.to_owned(),
        path: store,
        format,
        store_id,
        owner,
        journal,
        letter_log,
        pending,
        letters,
        watermark,
        index: None,
    })
}

/// Reads the whole index of a pipeline's store and returns what is wrong with it, if anything. The index is a cache:
/// its owner rebuilds it from the logs.
pub fn check_index(path: &Path, pipeline: &str) -> Option<String> {
    let disk = ReadOnlyDisk(path.join(pipeline).join("index"));
    let mut checked = runs::check(&disk);
    for _ in 0..INDEX_TRIES {
        // A running owner replaces files.
        if checked.is_err() {
            checked = runs::check(&disk);
        }
    }
    match checked {
        Err(_) if !disk.0.is_dir() => None,
        checked => checked.err().map(|error| error.to_string()),
    }
}

/// The content of the watermark, and what is wrong with it.
fn watermark(
    journal: &Path,
    store_id: [u8; 16],
) -> Result<(WatermarkState, Option<&'static str>), EngineError> {
    let disk = ReadOnlyDisk(journal.to_owned());
    let found = Watermark::open(&disk, &store_id).map_err(|error| failed("reading", journal, &error))?;
    let is_older = || -> Result<bool, EngineError> {
        let newest = newest_version(&disk, &LogOptions::new("j", 0, store_id))?;
        Ok(newest.is_none_or(|version| version < WATERMARK_SINCE))
    };
    Ok(match found {
        Found::Whole(watermark) => (watermark.state(), None),
        Found::Nothing if is_older()? => (WatermarkState::default(), None),
        Found::Nothing => {
            (WatermarkState::default(), Some("the watermark is missing: where the logs end is not known"))
        }
        Found::Damaged => {
            (WatermarkState::default(), Some("the watermark is damaged: where the logs end is not known"))
        }
    })
}

/// How often the kernel's list of locks is read before a lock is taken to be absent.
const LOOKS_AT_LOCKS: usize = 5;

/// Who holds the lock, according to the kernel's list: trying the lock could get in the way of a starting owner.
///
/// The list is returned in parts and changes between them, so a single reading may miss a lock that was held all the
/// time.
fn owner(path: &Path) -> Option<u32> {
    let inode = fs::metadata(path).ok()?.ino();
    (0..LOOKS_AT_LOCKS).find_map(|_| holder(&fs::read_to_string("/proc/locks").ok()?, inode))
}

fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1).filter(|field| *field != "->");
        let is_flock = fields.next() == Some("FLOCK");
        let pid = fields.nth(2)?.parse().ok()?;
        let place = fields.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        (is_flock && place == inode).then_some(pid)
    })
}
