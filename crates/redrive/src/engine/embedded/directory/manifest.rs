//! Which pipelines have a store in a directory, and roughly how much each holds, so that a removed store is noticed.
//!
//! ```text
//! redrive pipelines
//! orders pending 12 letters 3 at 1790000000000
//! checksum 1a2b3c4d
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use redrive_core::Time;

use super::format::write_durably;
use super::unusable::{HOW_TO_GO_ON, failed};
use crate::engine::seam::{Counts, EngineError};
use crate::timestamp;

/// Records beside the journal that the store was created: without it a lost journal would look like a new store.
pub(super) const MADE_FILE: &str = "made";
const FILE: &str = "PIPELINES";
const HEAD: &str = "redrive pipelines\n";

/// What a store held when it was last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub pending: u64,
    /// Open dead letters.
    pub letters: u64,
    /// When it was counted; zero if the clock had not been read.
    pub at: Time,
}

impl Holding {
    pub(crate) fn of(counts: &Counts, at: Time) -> Self {
        Self { pending: counts.pending(), letters: counts.letters_open + counts.letters_replaying, at }
    }
}

impl std::fmt::Display for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pending, letters, at } = self;
        write!(f, "{pending} pending messages and {letters} dead letters")?;
        if *at > Time::ZERO { write!(f, " at {}", timestamp::print(*at)) } else { Ok(()) }
    }
}

#[derive(Debug)]
pub(crate) struct Manifest {
    dir: PathBuf,
    stores: BTreeMap<String, Holding>,
}

impl Manifest {
    /// Reads the manifest. If it is missing or damaged, creates it from the stores that exist and returns a note,
    /// unless the directory is from before there were manifests.
    pub(crate) fn open(dir: &Path, is_old: bool) -> Result<(Self, Option<String>), EngineError> {
        let file = dir.join(FILE);
        let manifest = |stores| Self { dir: dir.to_owned(), stores };
        let what = match fs::read_to_string(&file) {
            Ok(text) => match read(&text) {
                Some(stores) => return Ok((manifest(stores), None)),
                None => "is damaged",
            },
            Err(error) if error.kind() == ErrorKind::NotFound => "is missing",
            Err(error) if error.kind() == ErrorKind::InvalidData => "is damaged",
            Err(error) => return Err(failed("reading", &file, &error)),
        };
        let stores = stores_in(dir).map_err(|error| failed("listing", dir, &error))?;
        let is_new = stores.is_empty() && what == "is missing";
        let made = manifest(stores.into_iter().map(|name| (name, Holding::default())).collect());
        made.write()?;
        let note = format!(
            "{} {what}; recreated from the existing stores. A store that was removed meanwhile cannot be detected",
            file.display()
        );
        Ok((made, (!is_old && !is_new).then_some(note)))
    }

    /// Refuses a store that existed once and is gone.
    pub(crate) fn check(&self, pipeline: &str) -> Result<(), EngineError> {
        let Some(holding) = self.stores.get(pipeline) else { return Ok(()) };
        if !is_gone(&self.dir, pipeline) {
            return Ok(());
        }
        Err(EngineError::Damaged(format!(
            "{} was removed, and with it all of pipeline `{pipeline}`: {holding}; {HOW_TO_GO_ON}",
            self.dir.join(pipeline).display()
        )))
    }

    pub(crate) fn holding(&self, pipeline: &str) -> Option<Holding> {
        self.stores.get(pipeline).copied()
    }

    pub(crate) fn set(&mut self, pipeline: &str, holding: Holding) -> Result<(), EngineError> {
        if self.stores.insert(pipeline.to_owned(), holding) == Some(holding) {
            return Ok(());
        }
        self.write()
    }

    pub(crate) fn remove(&mut self, pipeline: &str) -> Result<(), EngineError> {
        self.stores.remove(pipeline);
        self.write()
    }

    fn write(&self) -> Result<(), EngineError> {
        let mut text = HEAD.to_owned();
        for (name, Holding { pending, letters, at }) in &self.stores {
            let _ = writeln!(text, "{name} pending {pending} letters {letters} at {}", at.as_millis());
        }
        let checksum = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "checksum {checksum:08x}");
        let file = self.dir.join(FILE);
        write_durably(&self.dir, &file, text.as_bytes()).map_err(|error| failed("writing", &file, &error))
    }
}

/// The stores that were removed from a directory, with what they held; another process may own it. A missing or damaged
/// manifest yields none; the owner rewrites it.
pub fn removed(dir: &Path) -> Vec<(String, Holding)> {
    let listed = fs::read_to_string(dir.join(FILE)).ok().and_then(|text| read(&text));
    listed.unwrap_or_default().into_iter().filter(|(pipeline, _)| is_gone(dir, pipeline)).collect()
}

fn is_gone(dir: &Path, pipeline: &str) -> bool {
    !dir.join(pipeline).join("journal").is_dir()
}

/// The directories that are stores. One without a segment does not count: a crash interrupted its creation.
fn stores_in(dir: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let has_files = |dir| fs::read_dir(path.join(dir)).is_ok_and(|mut files| files.next().is_some());
        if path.join(MADE_FILE).exists() || has_files("journal") || has_files("index") {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    Ok(names)
}

fn read(text: &str) -> Option<BTreeMap<String, Holding>> {
    let (body, checksum) = text.rsplit_once("checksum ")?;
    if checksum != format!("{:08x}\n", crc32fast::hash(body.as_bytes())) {
        return None;
    }
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, "pending", pending, "letters", letters, "at", at] = words[..] else { return None };
        let number = |word: &str| word.parse().ok();
        let at = Time::from_millis(number(at)?);
        Some((name.to_owned(), Holding { pending: number(pending)?, letters: number(letters)?, at }))
    };
    body.strip_prefix(HEAD)?.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding() -> Holding {
        Holding { pending: 780, letters: 2, at: Time::from_millis(1_790_000_000_000) }
    }

    #[test]
    fn a_store_that_was_removed_is_missed_with_what_it_held() {
        let dir = tempfile::tempdir().unwrap();
        let (mut manifest, note) = Manifest::open(dir.path(), false).unwrap();
        assert_eq!(note, None, "a new directory");
        manifest.check("orders").unwrap();
        manifest.set("orders", holding()).unwrap();
        let (mut manifest, note) = Manifest::open(dir.path(), false).unwrap();
        assert_eq!((note, manifest.holding("orders")), (None, Some(holding())));
        let error = manifest.check("orders").unwrap_err().to_string();
        assert!(
            error.contains("orders") && error.contains("780 pending messages and 2 dead letters at 2026-"),
            "{error}"
        );
        assert!(error.contains("--accept-loss"), "{error}");
        manifest.remove("orders").unwrap();
        Manifest::open(dir.path(), false).unwrap().0.check("orders").unwrap();
    }

    #[test]
    fn a_damaged_manifest_is_made_anew_with_a_word_about_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("orders/journal")).unwrap();
        fs::write(dir.path().join("orders/journal/j-0000000000000000.seg"), "").unwrap();
        assert_eq!(Manifest::open(dir.path(), true).unwrap().1, None, "written before there were manifests");
        let file = dir.path().join(FILE);
        let whole = fs::read(&file).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, flipped).unwrap();
            let (manifest, note) = Manifest::open(dir.path(), false).unwrap();
            assert!(note.is_some_and(|note| note.contains("PIPELINES is damaged")), "bit {bit}");
            assert!(manifest.holding("orders").is_some());
        }
        fs::remove_file(&file).unwrap();
        let (_, note) = Manifest::open(dir.path(), false).unwrap();
        assert!(note.is_some_and(|note| note.contains("is missing")));
    }

    /// Such a directory used to be taken for a store that had lost its journal, and could not be opened.
    #[test]
    fn a_store_whose_creation_was_interrupted_is_not_missed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("orders/journal")).unwrap();
        let (manifest, note) = Manifest::open(dir.path(), false).unwrap();
        assert_eq!((note, manifest.holding("orders")), (None, None));
        for left in [MADE_FILE, "index/r-0000000000000000.run"] {
            let orders = dir.path().join("orders");
            fs::create_dir_all(orders.join("index")).unwrap();
            fs::write(orders.join(left), "").unwrap();
            fs::remove_file(dir.path().join(FILE)).unwrap();
            let (manifest, _) = Manifest::open(dir.path(), false).unwrap();
            assert!(manifest.holding("orders").is_some(), "{left}");
            fs::remove_file(orders.join(left)).unwrap();
        }
    }
}
